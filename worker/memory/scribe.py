"""Getting one usable `save_memory` call out of a model, whatever it replies first."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from shared.errors import ModelError, ShoalError
from shared.metrics import MODEL_COST_USD, MODEL_REQUESTS, MODEL_SECONDS, MODEL_TOKENS
from worker.agent.model.model import LLMResponse, Model, ModelRequest, TokenUsage, ToolCallRequest, ToolSpec
from worker.agent.model.prompt import clean
from worker.agent.tools.schema import object_schema
from worker.agent.tools.tool import shorten

REPLIES: Final = 3  # without a usable call; then the model is given up for this text
ENTRY_CHARS: Final = 4000
SHRUNK_FROM_CHARS: Final = 1000
SHRUNK_TO: Final = 0.25
TEMPERATURE: Final = 0.3
TOOL_NAME: Final = "save_memory"

Messages = list[dict[str, Any]]
Count = Callable[[TokenUsage], Awaitable[None]]  # called after each call; raises nothing
_STAMPED = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d\]")
_UNCHANGED = re.compile(
    r"\W*(?:unchanged|no changes?(?: needed)?|no updates?|same(?: as before)?|none|null|n/?a)\W*", re.IGNORECASE
)


class _MemoryUpdate(msgspec.Struct):
    memory_update: Annotated[str, Meta(description="The whole new MEMORY.md in Markdown. It replaces the old one.")]


class _SaveMemory(msgspec.Struct):
    history_entry: Annotated[
        str,
        Meta(
            description="2 to 5 sentences in one paragraph that tell this part of the conversation, "
            "beginning with its time as [YYYY-MM-DD HH:MM]."
        ),
    ]
    memory_update: Annotated[
        str,
        Meta(
            description="The whole new MEMORY.md in Markdown: what still holds of the old one, and what is "
            "new. It replaces the old one. Leave it out when nothing changes."
        ),
    ] = ""


CONSOLIDATE: Final = ToolSpec(
    TOOL_NAME, "Write down what must not be forgotten of this conversation.", object_schema(_SaveMemory)
)
REWORK: Final = ToolSpec(TOOL_NAME, "Write MEMORY.md anew.", object_schema(_MemoryUpdate))


class SavedMemory(msgspec.Struct, frozen=True):
    """The model's result. `memory` is None if MEMORY.md stays as it is; `refused` says that the
    model wanted to change it, and its text was not acceptable."""

    entry: str = ""
    memory: str | None = None
    refused: bool = False


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
        self, system: str, text: str, tool: ToolSpec, *, old: str, stamp: str = "", count: Count | None = None
    ) -> SavedMemory:
        """Return what the model saves of `text`, given that MEMORY.md is `old`. The tool
        CONSOLIDATE requires an entry; one without a time gets `stamp`. A MEMORY.md that is too big
        or has lost most of the old one is sent back once, then refused. Raises UnusableReply."""
        messages: Messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        call = await self._usable_call(messages, tool, REPLIES, count)
        entry, memory = _history_entry(call, stamp), _memory_update(call, old)
        # A model that loses most of its notes would lose them for good, so it is asked twice.
        objection = self._objection(memory, old)
        if not objection:
            return SavedMemory(entry, memory)
        messages += _sent_back(call, f"{objection} Call `{TOOL_NAME}` again, whole.")
        refused = SavedMemory(entry, refused=True)
        try:
            call = await self._usable_call(messages, tool, 1, count)
        except (UnusableReply, ModelError) as exc:
            if isinstance(exc, ModelError) and exc.retryable:
                raise
            return refused
        memory = _memory_update(call, old)
        if self._objection(memory, old):
            return refused
        return SavedMemory(_history_entry(call, stamp), memory)

    async def _usable_call(
        self, messages: Messages, tool: ToolSpec, replies: int, count: Count | None
    ) -> ToolCallRequest:
        """Return a usable call. The exchange before it is appended to `messages`."""
        for _ in range(replies):
            response = await self._call(messages, tool)
            if count is not None:
                await count(response.usage)
            call = next((call for call in response.tool_calls if call.name == TOOL_NAME), None)
            fault = _fault_of(response, call, tool)
            if call is not None and not fault:
                return call
            again = f"{fault} Call `{TOOL_NAME}` now, and say nothing else."
            messages.append(clean({"role": "assistant", "content": response.content}))
            messages.append({"role": "user", "content": again})
        failed = f"{self._model.name!r} gave no call of {TOOL_NAME!r} that can be used"
        raise UnusableReply(f"{failed}; a larger model may")

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

    async def _call(self, messages: Messages, tool: ToolSpec) -> LLMResponse:
        name, started = self._model.name, time.monotonic()
        try:
            request = ModelRequest(messages, [tool], self._max_tokens, TEMPERATURE)
            response = await self._model.chat(request)
        except ModelError as exc:
            MODEL_REQUESTS.labels(name, exc.kind).inc()
            raise
        MODEL_REQUESTS.labels(name, "ok").inc()
        MODEL_SECONDS.labels(name).observe(time.monotonic() - started)
        MODEL_TOKENS.labels(name, "input").inc(response.usage.prompt_tokens)
        MODEL_TOKENS.labels(name, "output").inc(response.usage.completion_tokens)
        MODEL_COST_USD.labels(name).inc(response.usage.cost_usd)
        return response


def _fault_of(response: LLMResponse, call: ToolCallRequest | None, tool: ToolSpec) -> str:
    """Return what is wrong with a reply, as a sentence for the model; `""` for nothing."""
    if response.finish_reason == "length":
        too_long = "Your reply was cut off because it was too long."
        return f"{too_long} Write less, so that the whole call has room."
    if call is None:
        return f"You did not call the tool `{TOOL_NAME}`, so nothing was saved."
    if call.arguments is None:
        return f"The arguments of `{TOOL_NAME}` were not one complete JSON object."
    for name in tool.parameters.get("required", ()):
        if not _argument_text(call.arguments.get(name)):
            return f"The argument `{name}` of `{TOOL_NAME}` was missing or empty."
    return ""


def _sent_back(call: ToolCallRequest, text: str) -> Messages:
    id = call.id or "call_0"
    function = {"name": TOOL_NAME, "arguments": msgspec.json.encode(call.arguments).decode()}
    sent = {"id": id, "type": "function", "function": function}
    answer = {"role": "tool", "tool_call_id": id, "name": TOOL_NAME, "content": f"Error: {text}"}
    return [clean({"role": "assistant", "tool_calls": [sent]}), answer]


def _history_entry(call: ToolCallRequest, stamp: str) -> str:
    entry = shorten(_argument_text((call.arguments or {}).get("history_entry")), ENTRY_CHARS)
    return entry if not entry or _STAMPED.match(entry) else f"[{stamp}] {entry}"


def _memory_update(call: ToolCallRequest, old: str) -> str | None:
    """Return the new text; None for one that changes nothing, such as an empty one."""
    text = _argument_text((call.arguments or {}).get("memory_update"))
    return None if not text or text == old.strip() or _UNCHANGED.fullmatch(text) else text


def _argument_text(value: Any) -> str:
    """Return an argument as text: models also write objects, lists and numbers."""
    if value is None or isinstance(value, str):
        return (value or "").strip()
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
