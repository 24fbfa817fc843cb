"""Asking the model: one whole reply, whatever it takes (streaming, cut replies, empty replies, broken streams)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from shared.errors import ModelError
from shared.messages.transcript import ToolCall
from worker.agent.hook import AgentHook
from worker.agent.journal import SILENT, Journal, Show
from worker.agent.model import LLMResponse, Model, ToolCallRequest, ToolSpec, Usage
from worker.agent.think import ThinkFilter, strip_think
from worker.agent.tool import valid_text

CONTINUATIONS: Final = 3
RESTARTS: Final = 2
CONTINUE: Final = "Your reply was cut off. Go on exactly where it stopped, without repeating anything."

Messages = list[dict[str, Any]]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reply: `text` is what may be shown, without thoughts."""

    text: str
    calls: tuple[ToolCallRequest, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = Usage()
    reasoning: str | None = None


class Stream:
    """The reply that is being shown. Text can be taken back up to what is kept of earlier parts."""

    def __init__(self, show: Show, hook: AgentHook) -> None:
        self._show = show
        self._hook = hook
        self._think = ThinkFilter()
        self._shown: list[str] = []
        self._kept: list[str] = []
        self.touched = False
        """Whether a delta came since the last keep or rewind."""

    @property
    def shown(self) -> str:
        return "".join(self._shown)

    @property
    def kept(self) -> str:
        return "".join(self._kept)

    async def delta(self, text: str) -> None:
        self.touched = True
        await self._out(self._think.feed(valid_text(text)))

    def keep(self, part: str) -> None:
        """A call ended well and this was its text."""
        self._kept.append(part)
        self.touched = False

    async def rewind(self) -> None:
        """A call broke off: its text is taken back, that of earlier calls is shown again."""
        await self.clear()
        await self._hook.on_stream_end()
        self.touched = False
        await self._out(self._think.feed(self.kept))

    async def clear(self) -> None:
        """Nothing is shown any more."""
        self._think = ThinkFilter()
        if self._shown:
            self._shown.clear()
            await self._show.reset()

    async def end(self) -> None:
        await self._out(self._think.flush())
        await self._hook.on_stream_end()

    async def _out(self, visible: str) -> None:
        if visible:
            self._shown.append(visible)
            await self._show.text(visible)
            await self._hook.on_stream(visible)


class Asker:
    """Asks one model on behalf of one turn."""

    def __init__(
        self,
        model: Model,
        tools: Sequence[ToolSpec],
        journal: Journal,
        *,
        hook: AgentHook,
        show: Show,
        max_tokens: int,
        temperature: float,
    ) -> None:
        self._model = model
        self._tools = tools
        self._journal = journal
        self._hook = hook
        self._show = show
        self._streams = show is not SILENT or hook.wants_streaming
        self._max_tokens = max(1, max_tokens)
        self._temperature = temperature
        self._stream = Stream(show, hook)

    @property
    def shown(self) -> str:
        """The text people see now."""
        return self._stream.shown

    async def ask(self, messages: Messages) -> Reply:
        """One reply. An empty one is asked for once more; a second empty one is returned as it is.

        Raises ModelError, and what the journal and the show raise.
        """
        reply = await self._whole(messages)
        if reply.text or reply.calls:
            return reply
        again = await self._whole(messages)
        return msgspec.structs.replace(again, usage=reply.usage + again.usage)

    async def _whole(self, messages: Messages) -> Reply:
        stream = Stream(self._show, self._hook)
        asked, usage = messages, Usage()
        for _ in range(1 + CONTINUATIONS):
            response = await self._call(asked, stream)
            part = valid_text(response.content or "")
            stream.keep(part)
            usage += response.usage
            if response.finish_reason != "length" or response.tool_calls or not part:
                break
            said = {"role": "assistant", "content": stream.kept}
            asked = [*messages, said, {"role": "user", "content": CONTINUE}]
        if self._streams:
            await stream.end()
        return Reply(
            text=strip_think(stream.kept),
            calls=_whole_calls(response),
            finish_reason=response.finish_reason,
            usage=usage,
            reasoning=response.reasoning_content and valid_text(response.reasoning_content),
        )

    async def _call(self, messages: Messages, stream: Stream) -> LLMResponse:
        """One call, repeated when it broke off after text was shown: only here can that text be taken back."""
        for restarts_left in range(RESTARTS, -1, -1):
            await self._journal.checkpoint()
            if stream is not self._stream:  # not sooner: a turn that is stopped here keeps what it shows
                await self._stream.clear()
                self._stream = stream
            try:
                return await self._model.chat(
                    messages,
                    self._tools,
                    max_tokens=self._max_tokens,
                    temperature=self._temperature,
                    on_delta=stream.delta if self._streams else None,
                )
            except ModelError as exc:
                if not (exc.retryable and stream.touched and restarts_left):
                    raise
                await stream.rewind()
        raise AssertionError("the last try returns or raises")


def stored_call(call: ToolCallRequest) -> ToolCall:
    """The call as the ledger keeps it: repaired arguments where the model's own text is no JSON object."""
    text = call.raw
    if call.arguments is not None and not _is_object(text):
        text = msgspec.json.encode(call.arguments).decode()
    return ToolCall(call.id, call.name, text)


def requested_call(call: ToolCall) -> ToolCallRequest:
    """The way back from the ledger."""
    whole = _is_object(call.arguments)
    return ToolCallRequest(call.id, call.name, msgspec.json.decode(call.arguments) if whole else None, call.arguments)


def unique_ids(calls: Sequence[ToolCallRequest], taken: set[str], round_: int) -> tuple[ToolCallRequest, ...]:
    """The calls with an id each that no other call of the turn has: some providers repeat or omit them."""
    named: list[ToolCallRequest] = []
    for at, call in enumerate(calls):
        new = call.id if call.id and call.id not in taken else f"call_{round_}_{at}"
        while new in taken:
            new += "_"
        taken.add(new)
        named.append(msgspec.structs.replace(call, id=new))
    return tuple(named)


def _whole_calls(response: LLMResponse) -> tuple[ToolCallRequest, ...]:
    """The reply's calls, made safe to store and to send back.

    In a reply cut by length the arguments count only as they stand: a repair would run half of what was meant.
    """
    calls = []
    for call in response.tool_calls:
        raw = valid_text(call.raw)
        arguments = call.arguments
        if response.finish_reason == "length" and not _is_object(raw):
            arguments = None
        name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unnamed"
        calls.append(ToolCallRequest(valid_text(call.id), name, arguments, raw))
    return tuple(calls)


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
