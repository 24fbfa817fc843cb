"""Effects of a turn besides its answer, made in one step with their ledger entries."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from shared.messages.outbound import OutboundMessage
from shared.messages.subagent import SubagentTask
from shared.messages.transcript import TranscriptEntry


class SayEffect(msgspec.Struct, frozen=True, kw_only=True):
    """A line for the log of a chat, now. `session` names the chat. For another chat than the turn's
    own, `listed_for` is the person in whose list of chats it moves up, and `history` is added to
    that chat's conversation, so that a later turn there knows of it. `sources` mark that chat."""

    session: str
    line: OutboundMessage
    listed_for: str = ""
    history: tuple[TranscriptEntry, ...] = ()
    sources: tuple[str, ...] = ()

    kind: ClassVar = "say"

    @property
    def to(self) -> str:
        return self.session

    def marked(self, sources: tuple[str, ...]) -> SayEffect:
        """Return the effect of a turn with this mark, which goes on to the other chat."""
        history = tuple(replace(entry, sources=sources) for entry in self.history)
        return replace(self, sources=sources, history=history) if history else self


class SpawnEffect(msgspec.Struct, frozen=True, kw_only=True):
    """A new subagent of the turn's own session, queued. One turn may spawn at most `per_turn`."""

    task: SubagentTask
    per_turn: int = 5

    kind: ClassVar = "spawn"

    @property
    def to(self) -> str:
        return self.task.id

    def marked(self, sources: tuple[str, ...]) -> SpawnEffect:
        """Return the effect of a turn with this mark, which goes on to the task."""
        return replace(self, task=replace(self.task, sources=sources))


Effect = SayEffect | SpawnEffect
