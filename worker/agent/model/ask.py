"""Asking the model: one whole reply, whatever it takes (streaming, cut replies, empty replies,
broken streams)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from shared.errors import ModelError
from worker.agent.hook import AgentHook
from worker.agent.journal import SILENT, Journal, Show
from worker.agent.limits import Meter
from worker.agent.model.model import LLMResponse, Model, ToolCallRequest, ToolSpec
from worker.agent.model.stream import Stream
from worker.agent.model.think import strip_think
from worker.agent.tools.calls import whole_calls
from worker.agent.tools.tool import valid_text

RESTARTS: Final = 2
CONTINUE: Final = "Your reply was cut off. Go on exactly where it stopped, without repeating anything."

Messages = list[dict[str, Any]]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reply: `text` is what may be shown, without thoughts."""

    text: str
    calls: tuple[ToolCallRequest, ...] = ()
    finish_reason: str = "stop"
    reasoning: str | None = None


class Asker:
    """Asks one model on behalf of one turn. What each call used is told to the meter."""

    def __init__(
        self,
        model: Model,
        tools: Sequence[ToolSpec],
        journal: Journal,
        *,
        hook: AgentHook,
        show: Show,
        meter: Meter,
        max_tokens: int,
        temperature: float,
        continuations: int,
    ) -> None:
        self._model = model
        self._tools = tools
        self._journal = journal
        self._hook = hook
        self._show = show
        self._streams = show is not SILENT or hook.wants_streaming
        self._max_tokens = max(1, max_tokens)
        self._temperature = temperature
        self._continuations = continuations
        self._meter = meter
        self._stream = Stream(show, hook)
        self.before = ""
        """Answers of this turn that messages came behind: they stay in view."""

    @property
    def shown(self) -> str:
        """The text people see now."""
        return self._stream.shown

    async def ask(self, messages: Messages) -> Reply:
        """One reply. An empty one is asked for once more; a second empty one is returned as it is.

        Raises ModelError, and what the journal, the show and the allowance raise.
        """
        reply = await self._whole(messages)
        if reply.text or reply.calls:
            return reply
        return await self._whole(messages)

    async def _whole(self, messages: Messages) -> Reply:
        stream = Stream(self._show, self._hook, self.before)
        asked = messages
        for _ in range(1 + self._continuations):
            response = await self._call(asked, stream)
            await self._meter.add(response.usage)
            part = valid_text(response.content or "")
            stream.keep(part)
            if response.finish_reason != "length" or response.tool_calls or not part:
                break
            said = {"role": "assistant", "content": stream.kept}
            asked = [*messages, said, {"role": "user", "content": CONTINUE}]
        if self._streams:
            await stream.end()
        return Reply(
            text=strip_think(stream.kept),
            calls=whole_calls(response),
            finish_reason=response.finish_reason,
            reasoning=response.reasoning_content and valid_text(response.reasoning_content),
        )

    async def _call(self, messages: Messages, stream: Stream) -> LLMResponse:
        """One call, repeated when it broke off after text was shown: only here can that text be
        taken back."""
        for restarts_left in range(RESTARTS, -1, -1):
            await self._journal.checkpoint()
            if stream is not self._stream:  # not sooner: a turn that is stopped here keeps what it shows
                await self._stream.clear()
                self._stream = stream
                if self._streams:
                    await stream.begin()
            try:
                return await self._model.chat(
                    messages,
                    self._tools,
                    max_tokens=self._max_tokens,
                    temperature=self._temperature,
                    on_delta=stream.delta if self._streams else None,
                )
            except BaseException as exc:
                if stream.touched or _had_begun(exc):
                    self._meter.broke_off(messages, self._tools, said=stream.heard)
                if not (isinstance(exc, ModelError) and exc.retryable and stream.touched and restarts_left):
                    raise
                await stream.rewind()
        raise AssertionError("the last try returns or raises")


def _had_begun(exc: BaseException) -> bool:
    """Whether the model was at work, as far as anybody knows, when a call without a word of it
    ended: it may think for long before the first. A refusal costs nothing."""
    return isinstance(exc, asyncio.CancelledError) or (isinstance(exc, ModelError) and exc.kind == "timeout")
