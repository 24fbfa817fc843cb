"""Who may speak, as mails tell it."""

from __future__ import annotations

from typing import Final

from gateway.platform.protocol import PlatformMessage
from tests.gateway.channels.email.mails import ME, SERVER, parsed_mail
from tests.helpers.access_table import Ids, Situation

IDS: Final = Ids(
    "email",
    {
        "listed": "listed@p.example", "admin": "admin@p.example", "paired": "paired@p.example",
        "stranger": "stranger@p.example", "member": "member@p.example", "bot": "bot@p.example", "self": ME,
        "nobody": "",
    },
    {"listed": "g-1", "narrow": "g-2", "open": "g-3", "off": "g-4", "other": "g-5"},
)  # fmt: skip

WITH_FILE: Final = """--b
Content-Type: text/plain

hello
--b
Content-Type: text/plain; name="note.txt"
Content-Disposition: attachment; filename="note.txt"

The pond is deep.
--b--
"""


def can_be(situation: Situation) -> bool:
    """Mail has no groups, edits and buttons."""
    return situation.group is None and situation.entry not in ("edited", "pressed")


def hear(situation: Situation, words: str | None = None, nth: int = 1) -> PlatformMessage | None:
    """What is heard of it; `words` instead of the usual ones, `nth` makes it another message."""
    sender, listed = IDS.people[situation.person] or "anybody", IDS.people["listed"]
    body = {
        "command": "/help",
        "forwarded": f"---------- Forwarded message ---------\nFrom: {listed}",
        "file": WITH_FILE,
    }
    return parsed_mail(
        words or body.get(situation.entry, "hello"),
        From=f'"{situation.called or listed}" <{sender}>',
        Reply_To=listed,
        Sender=listed,
        Return_Path=f"<{listed}>",
        Authentication_Results=f"{SERVER}; dmarc=pass",
        Auto_Submitted="auto-generated" if situation.person == "bot" else None,
        Subject="Fwd: x" if situation.entry == "forwarded" else "x",
        Message_ID=f"<{nth}@p.example>",
        References="<1@p.example>" if nth > 1 else None,  # all in one thread
        Content_Type='multipart/mixed; boundary="b"' if situation.entry == "file" else "text/plain; charset=utf-8",
    )
