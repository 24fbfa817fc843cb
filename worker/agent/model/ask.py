"""Asking the model for one whole reply: streaming, cut replies, empty replies, broken streams."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shared.errors import ModelError
from worker.agent.limits import Meter
from worker.agent.model.model import LLMResponse, Model, ModelRequest, ToolCallRequest, ToolSpec
from worker.agent.model.record import content_text
from worker.agent.model.stream import ReplyStream
from worker.agent.ports import NULL_PORTS, Journal
from worker.agent.tools.names import match_tool
from worker.agent.tools.text import is_json_object, valid_text
from worker.agent.turn import AgentRunSpec

RESTARTS: Final = 2
GOES_ON: Final = "goes_on"
"""Mark of a message that asks for the rest of the reply before it. The client of a model takes it
out, or sends that reply alone where a provider goes on with it by itself."""

CUT_OFF: Final = "Your reply was cut off."
CONTINUE: Final = f"{CUT_OFF} Go on exactly where it stopped, without repeating anything."
# The word shows where the seam is, and whether the cut went through it.
GO_ON: Final = (
    f"{CUT_OFF} Go on where it stopped: begin with its last word, then write what comes next, or call "
    "the tools that come next, and repeat nothing else. If it was complete, write that word alone."
)

Messages = list[dict[str, Any]]


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reply. `text` is the part that may be shown, without thoughts."""

    text: str
    calls: tuple[ToolCallRequest, ...] = ()
    finish_reason: str = "stop"
    reasoning: str | None = None
    model: str = ""


class Asker:
    """Asks one model on behalf of one turn, and charges the meter for each call."""

    def __init__(
        self, spec: AgentRunSpec, model: Model, tools: Sequence[ToolSpec], journal: Journal, meter: Meter
    ) -> None:
        self._spec = spec
        self._model = model
        self._tools = tools
        self._journal = journal
        self._meter = meter
        # A reply shown to nobody is asked for in one piece: a stream costs more for the same text.
        # Of one that must fit a schema nothing is shown before it does.
        shown = spec.progress is not NULL_PORTS or spec.hook.wants_streaming
        self._streams = shown and not spec.options.schema
        self._stream = ReplyStream(spec.progress, spec.hook)
        self.forced: Sequence[ToolSpec] = ()
        """Functions of which the next reply must call one; no other tool is offered with them."""

        self.before = ""  # answers that were followed by further messages: they stay visible

    @property
    def shown(self) -> str:
        return self._stream.shown.rstrip() or self.before

    async def ask(self, messages: Messages, begun: str = "") -> ModelReply:
        """Return one reply; an empty one is asked for once more. It goes on with `begun`, which an
        earlier worker has shown. Raises ModelError and TurnEnded."""
        reply = await self._ask_whole(messages, begun)
        nothing = not reply.text and not reply.calls and reply.finish_reason != "content_filter"
        return await self._ask_whole(messages) if nothing else reply

    async def _ask_whole(self, messages: Messages, begun: str = "") -> ModelReply:
        """Return one reply, continued while it is cut by its length."""
        stops = self._spec.options.stop
        quoted = _asked(messages)
        stream = ReplyStream(self._spec.progress, self._spec.hook, self.before, begun, stops, quoted)
        prompt = _continued(messages, begun, GO_ON) if begun else messages
        for _ in range(1 + self._spec.continuations):
            response = await self._call(messages, prompt, stream)
            await self._meter.add(response.usage)
            part = valid_text(response.content or "")
            stream.keep(part)
            if response.finish_reason != "length" or response.tool_calls or not part:
                break
            prompt = _continued(messages, stream.kept, CONTINUE)
        if self._streams:
            await stream.end()
        return ModelReply(
            text=stream.text,
            calls=_whole_calls(response, {tool.name for tool in self._tools}),
            finish_reason=response.finish_reason,
            reasoning=response.reasoning_content and valid_text(response.reasoning_content),
            model=response.asked,
        )

    async def _call(self, messages: Messages, prompt: Messages, stream: ReplyStream) -> LLMResponse:
        """Make one call with a prompt for `messages`. If its stream broke after text was shown, go on
        with a longer text and take back a shorter one: only here can that be done, so the retries
        inside the model leave such faults alone."""
        spec = self._spec
        tools = self.forced or self._tools
        request = ModelRequest(
            prompt,
            tools,
            max_tokens=max(1, spec.max_tokens),
            temperature=spec.temperature,
            session=spec.session,
            top_p=spec.top_p,
            seed=spec.seed,
            tool_choice="required" if self.forced else "auto",
        )
        for restarts_left in range(RESTARTS, -1, -1):
            await self._journal.checkpoint()
            # Cleared after the checkpoint: a turn that is stopped there keeps the text it shows.
            if stream is not self._stream:
                await self._stream.clear()
                self._stream = stream
                if self._streams:
                    await stream.begin()
            try:
                response = await self._model.chat(request, stream.delta if self._streams else None)
            except BaseException as exc:  # a cancelled call has cost tokens too
                # Before the first token it may think for long. A refused call costs nothing.
                timeout = isinstance(exc, ModelError) and exc.kind == "timeout"
                if stream.unkept or timeout or isinstance(exc, asyncio.CancelledError):
                    self._meter.add_estimate(request.messages, tools, output=stream.unkept)
                broken = isinstance(exc, ModelError) and exc.retryable and stream.unkept
                if not broken or not restarts_left:
                    raise
            else:
                # Nobody can tell whether it is whole. A second one like it is taken: its provider may
                # never say more.
                if response.finish_reason or restarts_left < RESTARTS or not self._streams:
                    return response
                self._meter.add_estimate(request.messages, tools, output=stream.unkept)
            if self._spec.continue_partial and (begun := stream.go_on()):
                request = replace(request, messages=_continued(messages, begun, GO_ON))
                await self._spec.progress.note_broken(len(begun))
            else:
                await stream.rewind()
        raise AssertionError("the last try returns or raises")


def _continued(messages: Messages, so_far: str, how: str) -> Messages:
    return [*messages, {"role": "assistant", "content": so_far}, {"role": "user", "content": how, GOES_ON: True}]


def _asked(messages: Messages) -> str:
    """Return the text of the newest message of a person."""
    asked = next((one for one in reversed(messages) if one["role"] == "user"), {"content": ""})
    return content_text(asked["content"])


def _whole_calls(response: LLMResponse, tools: Collection[str]) -> tuple[ToolCallRequest, ...]:
    """Return a reply's calls, safe to store and to send back, each by the name of the tool that it
    means. In a reply cut by its length, arguments are not repaired: a repair would run half of the
    intended call."""
    calls = []
    for call in response.tool_calls:
        raw = valid_text(call.raw)
        half = response.finish_reason == "length" and not is_json_object(raw)
        arguments = None if half else call.arguments
        name = re.sub(r"[^A-Za-z0-9_-]", "_", match_tool(call.name, tools))[:64] or "unnamed"
        calls.append(ToolCallRequest(valid_text(call.id), name, arguments, raw, valid_text(call.extra)))
    return tuple(calls)
