"""Effects of a turn besides its answer, made in one step with their ledger entries."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shared.messages.outbound import OutboundMessage
from shared.messages.subagent import SubagentTask
from shared.messages.transcript import TranscriptEntry


class SayEffect(msgspec.Struct, frozen=True, kw_only=True):
    """A line for the log of a chat, now. `session` names the chat. For another chat than the turn's
    own, `listed_for` is the person in whose list of chats it moves up, and `history` is added to
    that chat's conversation, so that a later turn there knows of it."""

    session: str
    line: OutboundMessage
    listed_for: str = ""
    history: tuple[TranscriptEntry, ...] = ()

    kind: ClassVar = "say"

    @property
    def to(self) -> str:
        return self.session


class SpawnEffect(msgspec.Struct, frozen=True, kw_only=True):
    """A new subagent of the turn's own session, queued. One turn may spawn at most `per_turn`."""

    task: SubagentTask
    per_turn: int = 5

    kind: ClassVar = "spawn"

    @property
    def to(self) -> str:
        return self.task.id


Effect = SayEffect | SpawnEffect
