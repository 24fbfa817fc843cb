"""What an answer of a mail server means for a post (RFC 5321, enhanced codes of RFC 3463). Pure."""

from __future__ import annotations

import re
from typing import Final, Literal

from gateway.platform.protocol import ChannelBroken, ChatClosed, MaybeSent, NotAccepted, PostRefused, Throttled

Step = Literal["greeting", "login", "sender", "recipient", "content"]
"""What was answered: the connection, user and password, MAIL FROM, RCPT TO, or DATA and the
mail."""

Refusal = Throttled | PostRefused | ChatClosed | NotAccepted | MaybeSent | ChannelBroken

_ENHANCED: Final = re.compile(r"\s*([245]\.\d{1,3}\.\d{1,3})\b")
_FULL: Final = ("5.2.2", "5.2.3", "5.3.4")
_NOT_LOGGED_IN: Final = (530, 538)


def refusal(step: Step, code: int, text: str, *, slow_down_s: float) -> Refusal:
    """The error that it stands for. Says the codes alone: a server's words may hold addresses."""
    found = _ENHANCED.match(text)
    enhanced = found[1] if found else ""
    said = f"the mail server said {code}{f' {enhanced}' if enhanced else ''} to {_WORDS[step]}"
    if 400 <= code < 500:
        return _for_now(step, code, enhanced, said, slow_down_s)
    if 500 <= code < 600:
        return _for_good(step, code, enhanced, said)
    return MaybeSent(said) if step == "content" else NotAccepted(said)


def _for_now(step: Step, code: int, enhanced: str, said: str, slow_down_s: float) -> Refusal:
    """4.7: a matter of policy, such as too many mails, or a stranger's first one."""
    if not enhanced.startswith("4.7.") or step == "login":
        return NotAccepted(said)
    return Throttled(slow_down_s, whole_bot=code == 421 or step in ("greeting", "sender"))


def _for_good(step: Step, code: int, enhanced: str, said: str) -> Refusal:
    if step == "login":
        return ChannelBroken(f"{said}: write the right user and password into channels.email")
    if step == "greeting":
        return ChannelBroken(f"{said}: it does not talk with this machine; ask whoever runs it")
    if code in _NOT_LOGGED_IN:
        return ChannelBroken(f"{said}: it wants a user and a password; see channels.email.smtp_login")
    if code == 552 or enhanced in _FULL or step == "content":
        return PostRefused(said)
    if step == "sender":
        return ChannelBroken(f"{said}: channels.email.address is not an address that this user may write from")
    return ChatClosed(said)


_WORDS: Final[dict[Step, str]] = {
    "greeting": "the connection",
    "login": "user and password",
    "sender": "our address",
    "recipient": "the address of the person",
    "content": "the mail",
}
