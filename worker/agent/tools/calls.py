"""Tool calls on their way from a reply to the ledger and back: safe to store, to run and to send
again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from shared.messages.transcript import ToolCall
from worker.agent.model.model import LLMResponse, ToolCallRequest
from worker.agent.tools.tool import valid_text


def stored_call(call: ToolCallRequest) -> ToolCall:
    """Return the call in the form of the ledger, with repaired arguments if the model's own text is
    not a JSON object."""
    text = call.raw
    if call.arguments is not None and not _is_object(text):
        text = msgspec.json.encode(call.arguments).decode()
    return ToolCall(call.id, call.name, text)


def requested_call(call: ToolCall) -> ToolCallRequest:
    """Return a stored call as a request again."""
    whole = _is_object(call.arguments)
    return ToolCallRequest(call.id, call.name, msgspec.json.decode(call.arguments) if whole else None, call.arguments)


def unique_ids(calls: Sequence[ToolCallRequest], used_ids: set[str], round_: int) -> tuple[ToolCallRequest, ...]:
    """Return the calls, each with an id that is unique in the turn: some providers repeat or omit
    ids."""
    named: list[ToolCallRequest] = []
    for at, call in enumerate(calls):
        # The ledger finds intents, results and effects by this id; a repeated one would mix up
        # calls.
        new = call.id if call.id and call.id not in used_ids else f"call_{round_}_{at}"
        while new in used_ids:
            new += "_"
        used_ids.add(new)
        named.append(msgspec.structs.replace(call, id=new))
    return tuple(named)


def whole_calls(response: LLMResponse) -> tuple[ToolCallRequest, ...]:
    """Return a reply's calls, safe to store and to send back.

    In a reply cut by its length, arguments are not repaired: a repair would run half of the
    intended call.
    """
    calls = []
    for call in response.tool_calls:
        raw = valid_text(call.raw)
        arguments = call.arguments
        if response.finish_reason == "length" and not _is_object(raw):
            arguments = None
        name = re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unnamed"
        calls.append(ToolCallRequest(valid_text(call.id), name, arguments, raw))
    return tuple(calls)


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
