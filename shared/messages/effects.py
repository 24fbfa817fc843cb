"""What a turn does inside Shoal besides its answer: carried out in one step with the ledger entry that tells of it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shared.messages.outbound import OutboundMessage


class Say(msgspec.Struct, frozen=True, kw_only=True):
    """A line for the log of a chat, now. `session` names the chat."""

    session: str
    line: OutboundMessage

    kind: ClassVar = "say"

    @property
    def to(self) -> str:
        return self.session


Effect = Say
