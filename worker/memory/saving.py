"""The tool by which a model saves memory, and the reading of its calls."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from worker.agent.model.model import LLMResponse, ToolCallRequest, ToolSpec
from worker.agent.model.prompt import clean
from worker.agent.tools.schema import object_schema
from worker.agent.tools.text import shorten

ENTRY_CHARS: Final = 4000
TOOL_NAME: Final = "save_memory"
Messages = list[dict[str, Any]]
_STAMPED = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d\]")
_UNCHANGED = re.compile(
    r"\W*(?:unchanged|no changes?(?: needed)?|no updates?|same(?: as before)?|none|null|n/?a)\W*", re.IGNORECASE
)


class _MemoryUpdate(msgspec.Struct):
    memory_update: Annotated[str, Meta(description="The whole new file in Markdown. It replaces the old one.")]


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
REWORK: Final = ToolSpec(TOOL_NAME, "Write the file anew.", object_schema(_MemoryUpdate))


class SavedMemory(msgspec.Struct, frozen=True):
    """The model's result. `memory` is None if MEMORY.md stays as it is; `refused` says that the
    model wanted to change it, and its text was not acceptable."""

    entry: str = ""
    memory: str | None = None
    refused: bool = False


def fault_of(response: LLMResponse, call: ToolCallRequest | None, tool: ToolSpec) -> str:
    """Return what is wrong with a reply, as a sentence for the model; `""` for nothing."""
    if response.finish_reason == "length":
        return "Your reply was cut off because it was too long. Write less, so that the whole call has room."
    if call is None:
        return f"You did not call the tool `{TOOL_NAME}`, so nothing was saved."
    if call.arguments is None:
        return f"The arguments of `{TOOL_NAME}` were not one complete JSON object."
    for name in tool.parameters.get("required", ()):
        if not _argument_text(call.arguments.get(name)):
            return f"The argument `{name}` of `{TOOL_NAME}` was missing or empty."
    return ""


def sent_back(call: ToolCallRequest, text: str) -> Messages:
    """Return the messages of a call and of its failure with this text."""
    id = call.id or "call_0"
    function = {"name": TOOL_NAME, "arguments": msgspec.json.encode(call.arguments).decode()}
    sent = {"id": id, "type": "function", "function": function}
    answer = {"role": "tool", "tool_call_id": id, "name": TOOL_NAME, "content": f"Error: {text}"}
    return [clean({"role": "assistant", "tool_calls": [sent]}), answer]


def history_entry(call: ToolCallRequest, stamp: str) -> str:
    """Return the entry that was saved, shortened; one without a time gets `stamp`."""
    entry = shorten(_argument_text((call.arguments or {}).get("history_entry")), ENTRY_CHARS)
    return entry if not entry or _STAMPED.match(entry) else f"[{stamp}] {entry}"


def memory_update(call: ToolCallRequest, old: str) -> str | None:
    """Return the new text; None for one that changes nothing, such as an empty one."""
    text = _argument_text((call.arguments or {}).get("memory_update"))
    return None if not text or text == old.strip() or _UNCHANGED.fullmatch(text) else text


def _argument_text(value: Any) -> str:
    """Return an argument as text: models also write objects, lists and numbers."""
    if value is None or isinstance(value, str):
        return (value or "").strip()
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
