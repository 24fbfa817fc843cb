"""The model for a first try without an API key: offline, small, and honest about it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from shared.clock import SYSTEM_CLOCK, Clock
from worker.agent.limits import CHARS_PER_TOKEN, estimate_tokens
from worker.agent.model.ask import GOES_ON
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta, TokenUsage, ToolCallRequest, ToolSpec
from worker.agent.model.prompt import RUNTIME_MARK
from worker.llm.demo import memory
from worker.llm.demo import text as demo_text
from worker.llm.demo.forms import fill_form
from worker.llm.demo.reminders import due_reminder
from worker.llm.demo.replies import ABOUT_TO, confirm_fact, describe_report, describe_result, recall_fact
from worker.llm.demo.wishes import wanted_tools

PIECE_S: Final = 0.025

Messages = Sequence[Mapping[str, Any]]
Calls = tuple[ToolCallRequest, ...]
Sleep = Callable[[float], Awaitable[None]]

_RECALL = re.compile(r"\b(?:what(?:'s| is| are)|remember|know|tell me) my (?P<what>[\w ]{1,40}\w)", re.IGNORECASE)


class DemoModel:
    """Knows a few tricks, uses the tools it is offered, remembers facts, and says what it is."""

    name = "demo"

    def __init__(self, *, sleep: Sleep = asyncio.sleep, piece_s: float = PIECE_S, clock: Clock = SYSTEM_CLOCK) -> None:
        self._sleep = sleep
        self._clock = clock
        self._piece_s = piece_s

    async def preload(self) -> None:
        """Do nothing: the first call has no slow part."""

    async def close(self) -> None:
        """Do nothing: it has no connections."""

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        messages, so_far = _split_cut_off(request.messages)
        text, calls = _reply(messages, {tool.name: tool for tool in request.tools}, self._clock.now_ms())
        text = text.removeprefix(so_far)
        pieces = re.findall(r"\s*\S+", text)
        cut = len(pieces) > request.max_tokens
        text = "".join(pieces[: request.max_tokens])
        if on_delta is not None:
            for piece in pieces[: request.max_tokens]:
                await self._sleep(self._piece_s)
                await on_delta(piece)
        prompt_tokens = estimate_tokens(request.messages, request.tools)
        return LLMResponse(
            content=text or None,
            tool_calls=() if cut else calls,
            finish_reason="length" if cut else "tool_calls" if calls else "stop",
            usage=TokenUsage(prompt_tokens, len(text) // CHARS_PER_TOKEN),
        )


def _split_cut_off(messages: Messages) -> tuple[Messages, str]:
    """Return the messages that are to be answered, and what has been written of the answer."""
    if messages and messages[-1].get(GOES_ON):
        return messages[:-2], str(messages[-2]["content"])
    return messages, ""


def _reply(messages: Messages, offered: Mapping[str, ToolSpec], now_ms: int) -> tuple[str, Calls]:
    texts = [_message_text(message) for message in messages if message["role"] == "user"]
    if set(offered) == {memory.TOOL}:  # a consolidation job asks, not a person
        entry_wanted = "history_entry" in offered[memory.TOOL].parameters.get("properties", {})
        answer = memory.save_arguments if entry_wanted else memory.rework_arguments
        return "", (_call("demo_0", memory.TOOL, answer(texts[-1] if texts else "")),)
    now = texts[-1] if texts else ""
    latest = _last(messages, "user")
    reports = [describe_report(_message_text(message)) for message in latest]
    if reports and all(reports):
        return "\n\n".join(filter(None, reports)), ()
    results = [(str(one.get("name", "")), str(one.get("content") or "")) for one in _last(messages, "tool")]
    if results:
        return "\n\n".join(describe_result(*result) for result in results), ()
    if reminder := due_reminder(now):
        return reminder, ()
    before = sum(len(message.get("tool_calls") or ()) for message in messages)
    calls = tuple(
        _call(f"demo_{before + at}", name, arguments)
        for at, (name, arguments) in enumerate(wanted_tools(now, now_ms))
        if name in offered
    )
    if calls:
        return ABOUT_TO, calls
    system = [_message_text(message) for message in messages if message["role"] == "system"]
    if form := fill_form("".join(system), now):
        return form, ()
    notes = [note for text in system for note in memory.parse_notes(text)]
    facts = [fact for text in texts[:-1] for fact in memory.facts(text)]
    return _answer_text(now, [*notes, *facts]), ()


def _call(id: str, name: str, arguments: dict[str, Any]) -> ToolCallRequest:
    return ToolCallRequest(id, name, arguments, msgspec.json.encode(arguments).decode())


def _answer_text(now: str, known: Sequence[tuple[str, str]]) -> str:
    recall = _RECALL.search(now)
    fact = next(memory.facts(now), None)
    if recall:
        what = recall["what"].lower()
        return recall_fact(what, dict(known).get(what))
    if fact:
        return confirm_fact(*fact)
    for pattern, text in demo_text.ANSWERS:
        if pattern.search(now):
            return text
    return demo_text.default_answer(now)


def _last(messages: Messages, role: str) -> Messages:
    """Return the messages of this role at the end."""
    others = (at for at, message in enumerate(messages) if message["role"] != role)
    return messages[max(others, default=-1) + 1 :]


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = " ".join(part.get("text", "") for part in content)
    return content.partition(f"\n\n{RUNTIME_MARK}")[0].strip()
