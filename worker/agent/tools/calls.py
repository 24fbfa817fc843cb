"""Tool calls on their way from a reply to the ledger and back: safe to store, run and resend."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from shared.messages.transcript import ToolCall
from worker.agent.model.model import LLMResponse, ToolCallRequest
from worker.agent.tools.tool import valid_text


def stored_call(call: ToolCallRequest) -> ToolCall:
    """Return the call for the ledger, with repaired arguments if the model's are no JSON object."""
    text = call.raw
    if call.arguments is not None and not is_json_object(text):
        text = msgspec.json.encode(call.arguments).decode()
    return ToolCall(call.id, call.name, text)


def requested_call(call: ToolCall) -> ToolCallRequest:
    """Return a stored call as a request again."""
    text = call.arguments
    arguments = msgspec.json.decode(text) if is_json_object(text) else None
    return ToolCallRequest(call.id, call.name, arguments, text)


def whole_calls(response: LLMResponse) -> tuple[ToolCallRequest, ...]:
    """Return a reply's calls, safe to store and to send back. In a reply cut by its length,
    arguments are not repaired: a repair would run half of the intended call."""
    calls = []
    for call in response.tool_calls:
        raw = valid_text(call.raw)
        half = response.finish_reason == "length" and not is_json_object(raw)
        arguments = None if half else call.arguments
        name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unnamed"
        calls.append(ToolCallRequest(valid_text(call.id), name, arguments, raw))
    return tuple(calls)


def is_json_object(text: str) -> bool:
    """Return whether a text is one complete JSON object."""
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
