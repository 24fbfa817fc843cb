"""Getting one usable `save_memory` call out of a model, whatever it replies first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from shared.errors import ModelError, ShoalError
from worker.agent.model.model import LLMResponse, Model, ModelRequest, TokenUsage, ToolCallRequest, ToolSpec
from worker.agent.model.prompt import clean
from worker.agent.tools.names import match_tool
from worker.llm.counted import ask_counted
from worker.memory.saving import TOOL_NAME, Messages, SavedMemory, fault_of, history_entry, memory_update, sent_back

REPLIES: Final = 3  # without a usable call; then the model is given up for this text
SHRUNK_FROM_CHARS: Final = 1000
SHRUNK_TO: Final = 0.25
TEMPERATURE: Final = 0.3

Count = Callable[[TokenUsage], Awaitable[None]]  # called after each call; raises nothing


class UnusableReply(ShoalError):
    """Raised when a model was asked often enough and never made a usable call."""

    kind = "no_call"


class MemoryWriter:
    """Asks one model. `limit_bytes` is the size limit of a MEMORY.md."""

    def __init__(self, model: Model, *, limit_bytes: int, max_tokens: int) -> None:
        self._model = model
        self._limit_bytes = limit_bytes
        self._max_tokens = max_tokens

    async def ask(
        self,
        system: str,
        text: str,
        tool: ToolSpec,
        *,
        old: str,
        stamp: str = "",
        count: Count | None = None,
        session: str = "",
    ) -> SavedMemory:
        """Return what the model saves of `text`, given that MEMORY.md is `old`. `session` is that
        of the text: what a provider refuses in a turn it may refuse here, too. The tool CONSOLIDATE
        requires an entry; one without a time gets `stamp`. A MEMORY.md that is too big or has lost
        most of the old one is sent back once, then refused. Raises UnusableReply."""
        messages: Messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        call = await self._usable_call(messages, tool, REPLIES, count, session)
        entry = history_entry(call, stamp)
        memory = memory_update(call, old)
        # A model that loses most of its notes would lose them for good, so it is asked twice.
        objection = self._objection(memory, old)
        if not objection:
            return SavedMemory(entry, memory)
        messages += sent_back(call, f"{objection} Call `{TOOL_NAME}` again, whole.")
        refused = SavedMemory(entry, refused=True)
        try:
            call = await self._usable_call(messages, tool, 1, count, session)
        except (UnusableReply, ModelError) as exc:
            if isinstance(exc, ModelError) and exc.retryable:
                raise
            return refused
        memory = memory_update(call, old)
        if self._objection(memory, old):
            return refused
        return SavedMemory(history_entry(call, stamp), memory)

    async def _usable_call(
        self, messages: Messages, tool: ToolSpec, replies: int, count: Count | None, session: str
    ) -> ToolCallRequest:
        """Return a usable call. The exchange before it is appended to `messages`."""
        for _ in range(replies):
            response = await self._call(messages, tool, session)
            if count is not None:
                await count(response.usage)
            calls = response.tool_calls
            call = next((call for call in calls if match_tool(call.name, (TOOL_NAME,)) == TOOL_NAME), None)
            fault = fault_of(response, call, tool)
            if call is not None and not fault:
                return call
            again = f"{fault} Call `{TOOL_NAME}` now, and say nothing else."
            messages.append(clean({"role": "assistant", "content": response.content}))
            messages.append({"role": "user", "content": again})
        raise UnusableReply(f"{self._model.name!r} gave no usable call of {TOOL_NAME!r}; a larger model may")

    def _objection(self, memory: str | None, old: str) -> str:
        if memory is None:
            return ""
        size = len(memory.encode())
        if size > self._limit_bytes:
            return (
                f"This MEMORY.md has {size:,} bytes; at most {self._limit_bytes:,} are allowed. "
                "Write a shorter one: join notes, and drop what matters least."
            )
        if len(old) >= SHRUNK_FROM_CHARS and len(memory) < len(old) * SHRUNK_TO:
            return (
                f"This MEMORY.md has {len(memory):,} characters, the old one {len(old):,}. "
                "It replaces the old one: write it whole, with every note that still holds."
            )
        return ""

    async def _call(self, messages: Messages, tool: ToolSpec, session: str) -> LLMResponse:
        request = ModelRequest(messages, [tool], self._max_tokens, TEMPERATURE, session)
        return await ask_counted(self._model, request)
