"""What a mail server's answer means: one table."""

from __future__ import annotations

import pytest

from gateway.channels.email.refusals import Step, map_error
from gateway.platform.protocol import ChannelBroken, ChatClosed, MaybeSent, NotAccepted, PostRefused, Throttled


@pytest.mark.parametrize(
    ("step", "code", "text", "kind"),
    [
        ("greeting", 421, "4.3.2 Out of order", NotAccepted),
        ("greeting", 421, "4.7.0 Too many connections", "whole bot"),
        ("greeting", 554, "5.7.1 No mail from you", ChannelBroken),
        ("login", 535, "5.7.8 Wrong", ChannelBroken),
        ("login", 534, "5.7.9 Use an app password", ChannelBroken),
        ("login", 454, "4.7.0 Temporary authentication failure", NotAccepted),
        ("sender", 451, "4.3.0 Trouble", NotAccepted),
        ("sender", 450, "4.7.1 Too many mails", "whole bot"),
        ("sender", 530, "5.7.0 Log in first", ChannelBroken),
        ("sender", 553, "5.7.1 Not your address", ChannelBroken),
        ("sender", 552, "5.3.4 Too large", PostRefused),
        ("recipient", 450, "4.2.0 Greylisted", NotAccepted),
        ("recipient", 450, "4.7.1 Greylisted", "chat"),
        ("recipient", 451, "", NotAccepted),
        ("recipient", 452, "4.2.2 Mailbox full", NotAccepted),
        ("recipient", 421, "4.7.0 Too many mails", "whole bot"),
        ("recipient", 550, "5.1.1 No such person", ChatClosed),
        ("recipient", 550, "No such person", ChatClosed),
        ("recipient", 550, "5.2.1 Switched off", ChatClosed),
        ("recipient", 554, "5.7.1 Relay access denied", ChatClosed),
        ("recipient", 552, "5.2.2 Mailbox full", PostRefused),
        ("recipient", 550, "5.2.2 Mailbox full", PostRefused),
        ("content", 554, "5.6.0 I do not like it", PostRefused),
        ("content", 552, "5.3.4 Too large", PostRefused),
        ("content", 550, "5.7.1 Looks like spam", PostRefused),
        ("content", 451, "4.3.0 Trouble", NotAccepted),
        ("content", 452, "4.3.1 Disk full", NotAccepted),
        ("content", 421, "4.7.28 Too many mails", "whole bot"),
        ("content", 450, "4.7.1 Too many mails", "chat"),
        ("content", -1, "?", MaybeSent),
        ("content", 354, "Go on", MaybeSent),
        ("recipient", -1, "?", NotAccepted),
    ],
)
def test_every_answer_has_a_meaning(step: Step, code: int, text: str, kind: object) -> None:
    """4xx: later; 5xx: for the chat, for the post, or for a person to mend. Its words are not repeated."""
    found = map_error(step, code, text, slow_down_s=7.0)
    if isinstance(kind, type):
        assert type(found) is kind
    else:
        assert isinstance(found, Throttled)
        assert (found.retry_after_s, found.whole_bot) == (7.0, kind == "whole bot")
    assert "person" not in str(found).replace("of the person", "")
