"""What goes back to a chat, and the lines of a chat's log."""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.messages.codec import Decoder

OutboundKind = Literal["reply", "stopped", "apology", "notice", "command"]
"""A notice and the answer of a command are said beside a turn; the latter ends every turn up to its `turn`."""


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="out"):
    """One message from Shoal to a chat. `turn` is the number of the message it answers, `in_reply_to` their ids."""

    content: str
    turn: int
    in_reply_to: tuple[str, ...] = ()
    kind: OutboundKind = "reply"
    media: tuple[str, ...] = ()
    reply_to: str | None = None
    buttons: tuple[str, ...] = ()
    at: int = 0
    v: int = 1


class SaidLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="said"):
    """A person's own message as a line of the chat's log, so that their other devices show it too."""

    id: str
    text: str
    at: int = 0
    v: int = 1


LogLine = OutboundMessage | SaidLine

decode_line: Decoder[LogLine] = Decoder(LogLine)
