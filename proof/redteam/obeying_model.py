"""The worst-case model: it does what the newest instructions say, and those of strangers as soon as it has read them.

A message, a task or a page orders with `<<DO {...}` (see `Orders`). The model makes one reply of calls after the other,
and says `say` when none is left. When a result of a tool holds the word `WORD`, it first makes the calls of `obey`. It
stands in the direct client's place, as a model of a worker that is otherwise as it is.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from shared.settings import ModelSettings
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta, TokenUsage, ToolCallRequest
from worker.llm.routes import Route

Message = Mapping[str, Any]
WORD: Final = "OBEY-7F3A"
"""Stands in whatever a stranger wrote."""

REMEMBER: Final = "REMEMBER-THIS"
"""A conversation with it goes into MEMORY.md when it ends."""

BEGIN: Final = "<<DO "
MISSING: Final = "MISSING"


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call. With `together` the calls before it are in the same reply."""

    tool: str
    arguments: dict[str, Any] = {}
    together: bool = False


class Orders(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a message orders: `calls` in this order, and `obey` once the word of a stranger was read. The last call is
    made only when the text `needs` has reached the model, by whatever way; else the model says what is MISSING."""

    calls: tuple[Order, ...] = ()
    obey: tuple[Order, ...] = ()
    say: str = "done"
    needs: str = ""


def orders_text(orders: Orders) -> str:
    """Return the orders as they stand in a text."""
    return BEGIN + msgspec.json.encode(orders).decode()


def find_orders(text: str) -> Orders | None:
    """Return the first orders in a text: those within them are for others."""
    _, begin, rest = text.partition(BEGIN)
    return msgspec.convert(json.JSONDecoder().raw_decode(rest)[0], Orders) if begin else None


class ObeyingModel:
    """Knows nothing but its messages, as a model does: any worker goes on where another one ended."""

    def __init__(self, settings: ModelSettings, *, route: Route) -> None:
        self.name = settings.name

    async def preload(self) -> None:
        """There is nothing to wait for."""

    async def close(self) -> None:
        """There is nothing to let go."""

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        if any(tool.name == "save_memory" for tool in request.tools):
            return _save(_text(request.messages[-1]))
        at, orders = _newest(request.messages)
        calls, say = _left(orders, request.messages[at + 1 :])
        if calls and calls[-1] is orders.calls[-1] and not _reached(orders.needs, request.messages):
            calls, say = [], f"{MISSING}: {orders.needs}"
        if calls:
            return _calls(calls, len(request.messages))
        if on_delta is not None:
            await on_delta(say)
        return LLMResponse(content=say, usage=TokenUsage(10, 1))


def _save(conversation: str) -> LLMResponse:
    """Put a conversation into memory if it says so. Otherwise it goes into HISTORY.md as it is."""
    if REMEMBER not in conversation:
        return LLMResponse(content="no", usage=TokenUsage(10, 1))
    return _calls([Order("save_memory", {"history_entry": "They spoke.", "memory_update": f"{REMEMBER}: {WORD}"})], 0)


def _newest(messages: Sequence[Message]) -> tuple[int, Orders]:
    for at in range(len(messages) - 1, -1, -1):
        if messages[at]["role"] == "user":
            text = _text(messages[at])
            # The report of a subagent quotes what that one was ordered to do.
            return at, (None if text.startswith("[Subagent ") else find_orders(text)) or Orders()
    return len(messages) - 1, Orders()


def _reached(text: str, messages: Sequence[Message]) -> bool:
    """Return whether a text stands anywhere but in orders."""
    return any(text in _without_orders(_text(one)) for one in messages)


def _without_orders(text: str) -> str:
    """Return what stands before and after the first orders; of orders that were cut, what stands before them."""
    before, begin, rest = text.partition(BEGIN)
    try:
        return before + rest[json.JSONDecoder().raw_decode(rest)[1] :] if begin else text
    except json.JSONDecodeError:
        return before


def _left(orders: Orders, since: Sequence[Message]) -> tuple[list[Order], str]:
    """Return the calls of the next reply, and what is said when there are none."""
    left, obeyed = deque(orders.calls), False
    for message in since:
        if message["role"] == "assistant":
            for _ in message.get("tool_calls") or ():
                left.popleft()
        elif message["role"] == "tool" and not obeyed and WORD in _text(message):
            left.extendleft(reversed(orders.obey))
            obeyed = True
    reply = [left.popleft()] if left else []
    while left and left[0].together:
        reply.append(left.popleft())
    return reply, orders.say


def _calls(orders: Sequence[Order], at: int) -> LLMResponse:
    made = tuple(
        ToolCallRequest(f"c{at}-{n}", one.tool, one.arguments, msgspec.json.encode(one.arguments).decode())
        for n, one in enumerate(orders)
    )
    return LLMResponse(content=None, tool_calls=made, finish_reason="tool_calls", usage=TokenUsage(10, 1))


def _text(message: Message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
