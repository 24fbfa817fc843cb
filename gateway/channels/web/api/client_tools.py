"""Functions that a client offers with a request, and the calls and results of them that it brings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gateway.channels.web.api.errors import ApiError, bad_parameter
from shared.messages.inbound import ClientTool
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, UserEntry

MOST_TOOLS: Final = 64
TOOL_LIMIT_BYTES: Final = 16 * 1024
TOOLS_LIMIT_BYTES: Final = 64 * 1024
OUTPUT_LIMIT_BYTES: Final = 64 * 1024
OUTPUTS_LIMIT_BYTES: Final = 512 * 1024
NO_CALL: Final = "no_such_call"
NO_OUTPUT: Final = "missing_output"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID: Final = re.compile(r"[!-~]{1,128}")

Entry = UserEntry | AssistantEntry | ToolEntry
Step = AssistantEntry | ToolEntry


class OfferedTools(msgspec.Struct, frozen=True):
    """The functions of a request, and the one that must be called first (see TurnOptions). `other`:
    it offers something else, too."""

    tools: tuple[ClientTool, ...] = ()
    choice: str = ""
    other: bool = False


def read_tools(fields: Mapping[str, Any], *, nested: bool) -> OfferedTools:
    """Read `tools` and `tool_choice`; `nested` as chat completions have them. Raises ApiError."""
    listed = fields.get("tools") or []
    if len(listed) > MOST_TOOLS:
        raise bad_parameter("tools", f"there are {len(listed):,} tools; at most {MOST_TOOLS} are taken")
    tools = [
        _read_tool(tool, f"tools[{at}]", nested=nested)
        for at, tool in enumerate(listed)
        if tool.get("type", "function") == "function"
    ]
    names = [tool.name for tool in tools]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise bad_parameter("tools", f"two functions are named {name!r}")
    if sum(len(msgspec.json.encode(tool)) for tool in tools) > TOOLS_LIMIT_BYTES:
        raise bad_parameter("tools", f"all tools together have more than {TOOLS_LIMIT_BYTES // 1024} kB")
    choice = _read_choice(fields.get("tool_choice"), names, nested=nested)
    return OfferedTools(() if choice == "none" else tuple(tools), choice, len(tools) < len(listed))


def _read_tool(tool: Mapping[str, Any], where: str, *, nested: bool) -> ClientTool:
    where = f"{where}.function" if nested else where
    function = tool.get("function") if nested else tool
    if not isinstance(function, dict):
        raise bad_parameter(where, f"{where} must be an object", code="invalid_type")
    name = function.get("name")
    about = function.get("description") or ""
    schema = function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad_parameter(f"{where}.name", f"{where}.name must be 1 to 64 letters, digits, '_' and '-'")
    if not isinstance(about, str):
        raise bad_parameter(f"{where}.description", f"{where}.description must be a text", code="invalid_type")
    if schema is not None and not isinstance(schema, dict):
        raise bad_parameter(f"{where}.parameters", f"{where}.parameters must be an object", code="invalid_type")
    made = ClientTool(name, about, msgspec.json.encode(schema).decode() if schema else "")
    if len(msgspec.json.encode(made)) > TOOL_LIMIT_BYTES:
        raise bad_parameter(where, f"{where} has more than {TOOL_LIMIT_BYTES // 1024} kB")
    return made


def _read_choice(choice: object, names: Sequence[str], *, nested: bool) -> str:
    if choice in (None, "auto"):
        return ""
    if choice == "none":
        return "none"
    if choice == "required":
        if not names:
            message = "'tool_choice' demands a call, and 'tools' offers no function"
            raise bad_parameter("tool_choice", message, code="unsupported_parameter")
        return "required"
    function = choice.get("function") if nested and isinstance(choice, dict) else choice
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(choice, dict) or choice.get("type") != "function" or name not in names:
        message = "'tool_choice' must be 'auto', 'none', 'required', or name a function of 'tools'"
        raise bad_parameter("tool_choice", message, code="unsupported_parameter")
    return str(name)


def read_calls(message: Mapping[str, Any], where: str) -> tuple[ToolCall, ...]:
    """Read the calls of an assistant's message. Raises ApiError."""
    listed = message.get("tool_calls") or []
    if not isinstance(listed, list):
        raise bad_parameter(f"{where}.tool_calls", f"{where}.tool_calls must be a list", code="invalid_type")
    return tuple(_read_call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(listed))


def _read_call(call: object, where: str) -> ToolCall:
    fields = call if isinstance(call, dict) else {}
    function = fields.get("function") or fields.get("custom")
    if not isinstance(function, dict):
        raise bad_parameter(where, f"{where} must be the call of a function", code="invalid_type")
    name = function.get("name")
    arguments = function.get("arguments", function.get("input"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad_parameter(f"{where}.function.name", f"{where}.function.name must name a function")
    return ToolCall(read_id(fields.get("id"), f"{where}.id"), name, arguments if isinstance(arguments, str) else "{}")


def read_id(value: object, where: str) -> str:
    """Return the id of a call. Raises ApiError."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise bad_parameter(where, f"{where} must be the id of a call")
    return value


def pair_results(entries: Iterable[tuple[str, Entry]], sources: tuple[str, ...]) -> list[Entry]:
    """Return the entries of a conversation, given with their places in the request. Results are
    named as their calls and marked with `sources`; calls in a row are those of one reply. Raises
    ApiError for a result without its call, and for calls without a result."""
    paired: list[Entry] = []
    waiting: dict[str, ToolCall] = {}
    for where, entry in entries:
        if isinstance(entry, ToolEntry):
            if (call := waiting.pop(entry.call_id, None)) is None:
                message = f"{where} is the result of {entry.call_id!r}, and no call before it has that id"
                raise bad_parameter(where, message, code=NO_CALL)
            paired.append(replace(entry, name=call.name, sources=sources, client=True))
            continue
        calls = entry.tool_calls if isinstance(entry, AssistantEntry) else ()
        if waiting and not (calls and isinstance(paired[-1], AssistantEntry)):
            raise missing_output(waiting)
        waiting |= {call.id: call for call in calls}
        before = paired[-1] if paired else None
        if calls and isinstance(before, AssistantEntry) and isinstance(entry, AssistantEntry):
            text = "\n\n".join(filter(None, [before.content, entry.content])) or None
            paired[-1] = replace(before, content=text, tool_calls=(*before.tool_calls, *calls))
        else:
            paired.append(entry)
    if waiting:
        raise missing_output(waiting)
    return paired


def missing_output(ids: Iterable[str]) -> ApiError:
    """Return the error of calls without a result."""
    named = ", ".join(ids)
    return ApiError(400, f"no tool output found for function call {named}", code=NO_OUTPUT)


def check_outputs(outputs: Sequence[tuple[str, str]], param: str) -> None:
    """Check the results that are submitted. Raises ApiError."""
    ids = [id for id, _ in outputs]
    if len(set(ids)) < len(ids):
        raise bad_parameter(param, f"{param} has two results of one call")
    sizes = [len(text.encode()) for _, text in outputs]
    if max(sizes) > OUTPUT_LIMIT_BYTES or sum(sizes) > OUTPUTS_LIMIT_BYTES:
        raise ApiError(
            413,
            "a result has more than "
            f"{OUTPUT_LIMIT_BYTES // 1024} kB, all together more than {OUTPUTS_LIMIT_BYTES // 1024} kB",
            code="too_big",
            param=param,
        )
