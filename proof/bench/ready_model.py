"""A model that is no further than a function call: what a turn costs without any client of models.

It stands in the direct client's place, so prices, limits, retries and traces around it are those of a real one. The
name says how it answers, as that of `proof.bench.stub` does; a message that names another one is answered so, and one
that says `use a tool` after a call of one.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from proof.bench.stub import text_of
from shared.settings import ModelSettings
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta, TokenUsage, ToolCallRequest
from worker.llm.routes import Route

TOOL: Final = "use a tool"
CALL: Final = ToolCallRequest("call_0", "calculate", {"expression": "6*7"}, '{"expression": "6*7"}')
MODEL: Final = re.compile(r"p\d+-f\d+-g\d+")


class ReadyModel:
    """Answers at once, or when its time has come."""

    def __init__(self, settings: ModelSettings, *, route: Route) -> None:
        self.name = settings.name
        self._model = route.model

    async def preload(self) -> None:
        """There is nothing to wait for."""

    async def close(self) -> None:
        """There is nothing to let go."""

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        last = request.messages[-1]
        if last["role"] == "user" and TOOL in last["content"]:
            return LLMResponse(content=None, tool_calls=(CALL,), finish_reason="tool_calls", usage=TokenUsage(7000, 10))
        named = MODEL.search(last["content"])
        count, first_ms, gap_ms = (int(part[1:]) for part in (named[0] if named else self._model).split("-"))
        pieces = text_of(count)
        if first_ms:
            await asyncio.sleep(first_ms / 1000)
        if on_delta is not None:
            for piece in pieces:
                if gap_ms:
                    await asyncio.sleep(gap_ms / 1000)
                await on_delta(piece)
        return LLMResponse(content="".join(pieces), usage=TokenUsage(7000, len(pieces)))
