"""The tolerant reading of an answer: from plain values, whatever types its fields have, to the
strict form of `completion.py`. One function a field. What cannot be read is left out, and spoils
nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from worker.llm.clients.completion import (
    CachedTokens,
    CallPiece,
    ChatCompletion,
    FunctionPiece,
    WireChoice,
    WireMessage,
    WireUsage,
)

_WRAPPERS: Final = ("data", "result", "response", "output", "body", "chunk")
_ENDINGS: Final = ("finish_reason", "finishReason", "stop_reason", "finish_details", "done_reason")
_THOUGHTS: Final = (
    "reasoning_content",
    "reasoning",
    "thinking",
    "thoughts",
    "reasoning_text",
    "reasoning_details",
)
_THOUGHT_PARTS: Final = ("think", "reason", "thought")  # beginnings of the types of parts
_TEXTS: Final = ("text", "content", "value", "output_text", "refusal")
_ARGUMENTS: Final = ("arguments", "input", "parameters", "args")
_NAMES: Final = ("name", "tool_name", "function_name")
_PROMPT: Final = ("prompt_tokens", "input_tokens", "prompt_eval_count", "promptTokenCount")
_COMPLETION: Final = ("completion_tokens", "output_tokens", "eval_count", "candidatesTokenCount")
_NO_ERROR: Final = frozenset({"", "0", "200", "false", "none", "null", "ok", "success"})

Fields = Mapping[str, Any]


def read_completion(value: Any) -> ChatCompletion:
    """Return an answer, or a chunk of one, from plain values."""
    fields = _unwrapped(_fields(value))
    choices = read_choices(fields)
    model = fields.get("model")
    return ChatCompletion(choices, read_usage(fields), read_error(fields, bool(choices)), model)


def read_choices(fields: Fields) -> list[WireChoice] | None:
    """Return the answers that a provider gives; None if it gives none."""
    found = fields.get("choices")
    if isinstance(found, dict):  # one choice without a list, or several by number
        found = [found] if {"delta", "message", "text"} & set(found) else list(found.values())
    if not isinstance(found, list) or not found:
        # An answer without choices, as in Ollama's own protocol.
        found = [fields] if _carries(fields) else []
    return [read_choice(_fields(choice)) for choice in found] or None


def read_choice(fields: Fields) -> WireChoice:
    """Return one answer, whose message or delta may stand beside where it belongs."""
    delta = read_message(fields.get("delta"))
    message = read_message(fields.get("message"))
    if _is_empty(delta) and _is_empty(message):
        beside = {name: fields[name] for name in ("content", "text", "tool_calls", "function_call") if name in fields}
        delta = (read_message(beside) if beside else None) or delta or message
    return WireChoice(
        index=read_integer(fields.get("index")),
        delta=delta,
        message=message,
        finish_reason=read_ending(fields),
        error=read_error(fields, False) if fields.get("error") else None,
    )


def read_message(value: Any) -> WireMessage | None:
    """Return a message or a delta of one; None if there is none."""
    if isinstance(value, str | list):
        value = {"content": value}
    if not isinstance(value, dict):
        return None
    content = value.get("content", value.get("text"))
    thoughts = next((text for name in _THOUGHTS if (text := read_text(value.get(name), thoughts=True))), "")
    return WireMessage(
        content=read_text(content),
        tool_calls=[*read_calls(value.get("tool_calls")), *_calls_in_parts(content)] or None,
        reasoning_content=thoughts + read_thoughts(content) or None,
        function_call=read_function(_decoded(value.get("function_call"))),
        refusal=read_text(value.get("refusal")) or read_text(_refusals(content)) or None,
    )


def read_text(value: Any, *, thoughts: bool = False) -> str:
    """Return the text of a field: text, a part, or a list of both. Without `thoughts` that of parts
    that are thoughts is left out."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(read_text(part, thoughts=thoughts) for part in value)
    if isinstance(value, dict):
        if not thoughts and (_is_thought(value) or value.get("type") == "refusal"):
            return ""
        names = (*_TEXTS, *_THOUGHTS, "summary") if thoughts else _TEXTS[:-1]
        return next((text for name in names if (text := read_text(value.get(name), thoughts=thoughts))), "")
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def read_thoughts(content: Any) -> str:
    """Return the text of the parts that are thoughts."""
    parts = content if isinstance(content, list) else [content]
    return "".join(read_text(part, thoughts=True) for part in parts if isinstance(part, dict) and _is_thought(part))


def read_calls(value: Any) -> Iterator[CallPiece]:
    """Yield the calls, or pieces of calls, of a list, of one alone, or of either as JSON text."""
    found = _decoded(value)
    for each in found if isinstance(found, list) else [found]:
        fields = _decoded(each)
        if isinstance(fields, dict) and fields:
            yield read_call(fields)


def read_call(fields: Fields) -> CallPiece:
    """Return a call; its name and arguments may stand in it or beside it."""
    function = _decoded(fields.get("function"))
    if isinstance(function, str):
        function = {"name": function}
    inner = read_function(function) or FunctionPiece()
    beside = read_function(fields) or FunctionPiece()
    name = inner.name or beside.name
    arguments = inner.arguments or beside.arguments
    identity = fields.get("id", fields.get("tool_call_id"))
    piece = FunctionPiece(name, arguments)
    return CallPiece(read_integer(fields.get("index")), read_identity(identity), piece, fields.get("extra_content"))


def read_function(value: Any) -> FunctionPiece | None:
    """Return a name and arguments; None if there is neither."""
    if not isinstance(value, dict):
        return None
    name = next((text for key in _NAMES if isinstance(text := value.get(key), str) and text), None)
    arguments = next((value[key] for key in _ARGUMENTS if value.get(key) is not None), None)
    return None if name is None and arguments is None else FunctionPiece(name, read_arguments(arguments))


def read_arguments(value: Any) -> str | None:
    """Return arguments as JSON text; an object may be the only item of a list."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) <= 1:
        value = value[0] if value else {}
    return msgspec.json.encode(value).decode()


def read_identity(value: Any) -> str | None:
    """Return an id; some are numbers."""
    return None if value is None or isinstance(value, bool | list | dict) else str(value)


def read_ending(fields: Fields) -> str | None:
    """Return why an answer ended: a word, or an object with one."""
    for name in _ENDINGS:
        value = fields.get(name)
        if isinstance(value, dict):
            value = value.get("type", value.get("reason"))
        if isinstance(value, list):
            value = next((word for word in value if isinstance(word, str)), None)
        if isinstance(value, str) and value:
            return value
        if value is True:
            return "stop"
    return None


def read_usage(fields: Fields) -> WireUsage | None:
    """Return the token counts, by the names of several protocols; None if there are none."""
    usage = fields.get("usage") or fields.get("usage_metadata") or _of_choice(fields, "usage")
    usage = next((one for one in usage if isinstance(one, dict)), None) if isinstance(usage, list) else usage
    if not isinstance(usage, dict):
        usage = fields if "eval_count" in fields else {}
    prompt = next((count for name in _PROMPT if (count := read_integer(usage.get(name))) is not None), None)
    written = next(
        (count for name in _COMPLETION if (count := read_integer(usage.get(name))) is not None),
        None,
    )
    if prompt is None and written is None:
        return None
    cached = read_integer(_fields(usage.get("prompt_tokens_details")).get("cached_tokens"))
    counts = [None if count is None else max(0, count) for count in (prompt, written, cached)]
    return WireUsage(counts[0], counts[1], CachedTokens(counts[2]))


def read_integer(value: Any) -> int | None:
    """Return a whole number, also of a float or a text; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) else None


def read_error(fields: Fields, answered: bool) -> Any:
    """Return the error that an answer reports in one of many forms; None if it reports none.
    Without `answered`, a message in place of an answer is one."""
    error = fields.get("error")
    if _is_error(error):
        return {"message": fields.get("message"), "code": fields.get("code")} if error is True else error
    if answered:
        return None
    if "error" in (fields.get("object"), fields.get("type")):
        return dict(fields)
    for name in ("errors", "detail", "error_msg", "error_message", "errorMessage"):
        if _is_error(fields.get(name)):
            return {"message": fields[name], "code": fields.get("code", fields.get("error_code"))}
    status = _fields(fields.get("base_resp"))
    code = status.get("status_code", fields.get("code", read_integer(fields.get("status"))))
    message = status.get("status_msg", fields.get("message", fields.get("msg")))
    if isinstance(message, str) and _is_error(code):
        return {"message": message, "code": code}
    return None


def _is_error(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_error, value.values()))
    return bool(value) and str(value).strip().lower() not in _NO_ERROR


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _unwrapped(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the answer inside an object of a gateway, if there is one."""
    inner = (_fields(fields.get(name)) for name in _WRAPPERS) if "choices" not in fields else ()
    return next((one for one in inner if "choices" in one), fields)


def _carries(fields: Fields) -> bool:
    message = isinstance(fields.get("message"), dict) or isinstance(fields.get("delta"), dict)
    return message or ("message" not in fields and isinstance(fields.get("content", fields.get("text")), str))


def _is_empty(message: WireMessage | None) -> bool:
    return message is None or not (message.content or message.tool_calls or message.function_call)


def _is_thought(part: Fields) -> bool:
    kind = str(part.get("type") or "").replace("redacted_", "")
    marked = kind.startswith(_THOUGHT_PARTS) or part.get("thought") is True
    return marked or (not part.get("text") and any(part.get(name) for name in _THOUGHTS))


def _refusals(content: Any) -> list[Any]:
    parts = content if isinstance(content, list) else [content]
    return [part.get("refusal") for part in parts if isinstance(part, dict) and part.get("type") == "refusal"]


def _calls_in_parts(content: Any) -> Iterator[CallPiece]:
    """Yield the calls that stand among the parts of a content, as in Anthropic's protocol."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in (
            "tool_use",
            "tool_call",
            "function_call",
            "function",
        ):
            yield read_call(part)


def _of_choice(fields: Fields, name: str) -> Any:
    choices = fields.get("choices")
    return _fields(choices[0]).get(name) if isinstance(choices, list) and choices else None


def _decoded(value: Any) -> Any:
    """Return the value itself, or the one that a JSON text holds."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return value
