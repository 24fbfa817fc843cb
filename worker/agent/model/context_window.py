"""What the model sees of a turn: built at its beginning, longer with every round, made smaller
before it is too big."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from shared.errors import ModelError
from shared.messages.transcript import ToolEntry, TranscriptEntry, UserEntry
from worker.agent.followups import Said
from worker.agent.hook import AgentHook, Iteration
from worker.agent.journal import Journal
from worker.agent.limits import Budget, Meter, estimate_tokens
from worker.agent.model.compact import Compact
from worker.agent.model.model import ToolSpec
from worker.agent.model.prompt import Message, build_messages, clean, said_message, to_message
from worker.agent.pictures import Gallery
from worker.agent.turn import AgentRunSpec

AIM: Final = 0.75
"""What share of its limit a compacted prompt should have, so that the next rounds need not compact
again."""


class View:
    """The messages of one turn."""

    def __init__(
        self,
        spec: AgentRunSpec,
        tools: Sequence[ToolSpec],
        journal: Journal,
        *,
        hook: AgentHook,
        meter: Meter,
        compact: Compact | None,
        now_ms: int,
    ) -> None:
        self.messages: list[dict[str, Any]] = build_messages(spec, now_ms)
        self._task = self.messages[-1]
        self._spec = spec
        self._joined = {said.entry: said for said in spec.joined.values()}
        self._gallery = Gallery(spec.pictures)
        self._tools = tools
        self._counted: int | None = None
        self._journal = journal
        self._hook = hook
        self._meter = meter
        self._compact = compact
        self._budget = Budget(spec.context_tokens, spec.max_tokens, compact_at=spec.compact_at)

    def add(self, entries: Iterable[TranscriptEntry]) -> None:
        """More was said and done; what tools looked at stands behind all results of a reply."""
        seen: list[str] = []
        for entry in entries:
            if isinstance(entry, ToolEntry):
                seen.extend(entry.images)
            elif seen:
                self.messages.append(self._gallery.frame(seen))
                seen = []
            self.messages.append(self._message(entry))
        if seen:
            self.messages.append(self._gallery.frame(seen))

    def hear(self, said: Iterable[Said]) -> None:
        """Messages joined the turn."""
        self.messages.extend(clean(said_message(one)) for one in said)

    def _message(self, entry: TranscriptEntry) -> Message:
        if isinstance(entry, UserEntry):
            return clean(said_message(self._joined.get(entry) or Said(entry)))
        return to_message(entry)

    async def begin(self, round_: int) -> None:
        """Make the messages ready for a round: hooks may change them, and a prompt over its budget
        is compacted."""
        await self._gallery.hang()
        context = Iteration(self._spec.session, self._spec.turn, round_, self.messages)
        await self._hook.before_iteration(context)
        if self._hook.changes_messages:  # else they are as they were made here, which is clean
            self.messages = [clean(message) for message in context.messages]
        if self._budget.context_tokens and self._budget.exceeded_by(self._tokens()):
            await self._shrink(int(self._budget.prompt_tokens * AIM))

    async def mended(self, refusal: ModelError) -> bool:
        """Make the prompt such that the model may take it after all; answer whether it changed."""
        if refusal.kind == "context_length":
            return await self.halve()
        if refusal.kind != "bad_request":
            return False
        before = self.messages
        self.messages = self._gallery.take_down(before)
        return self.messages != before

    async def halve(self) -> bool:
        """Make the prompt about half as big, because the model found it too big; answer whether it
        became smaller."""
        before = self._tokens()
        await self._shrink(before // 2)
        return self._tokens() < before

    def _tokens(self) -> int:
        return estimate_tokens(self.messages) + self._tools_tokens

    @property
    def _tools_tokens(self) -> int:
        if self._counted is None:
            self._counted = estimate_tokens((), self._tools)
        return self._counted

    async def _shrink(self, aim_tokens: int) -> None:
        if self._compact is None:
            return
        await self._journal.checkpoint()
        try:
            smaller = await self._compact(
                self.messages,
                task=self._task,
                keep=self._spec.compact_keep,
                aim_tokens=max(0, aim_tokens - self._tools_tokens),
            )
        except asyncio.CancelledError:
            self._meter.broke_off(self.messages)
            raise
        self.messages = [clean(message) for message in smaller.messages]
        if smaller.usage is not None:
            await self._meter.add(smaller.usage)
