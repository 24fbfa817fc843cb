"""Texts of a model call for its span, in the form of OpenTelemetry's conventions: only where
`tracing.content` asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from shared.tracing import Span
from worker.agent.model.model import LLMResponse, ModelRequest

MESSAGE_CHARS: Final = 4096
CALL_CHARS: Final = 16_384
"""Limits of one text, and of all texts of a request: spans wait in memory for the collector."""

Part = dict[str, Any]


def set_request_texts(chat_span: Span, request: ModelRequest) -> None:
    """Set what the model is asked: the newest messages, as many as fit."""
    messages: list[Part] = []
    left = CALL_CHARS
    for message in reversed(request.messages):
        parts = list(_parts(message))
        left -= sum(len(str(value)) for part in parts for value in part.values())
        if left < 0 and messages:
            break
        messages.append({"role": message["role"], "parts": parts})
    chat_span.set("gen_ai.input.messages", _json(messages[::-1]))


def set_reply_texts(chat_span: Span, reply: LLMResponse) -> None:
    """Set what the model replied."""
    parts: list[Part] = []
    if reply.reasoning_content:
        parts.append({"type": "reasoning", "content": _cut(reply.reasoning_content)})
    if reply.content:
        parts.append({"type": "text", "content": _cut(reply.content)})
    parts += [_call(call.id, call.name, call.raw) for call in reply.tool_calls]
    answer = {"role": "assistant", "parts": parts, "finish_reason": reply.finish_reason}
    chat_span.set("gen_ai.output.messages", _json([answer]))


def _parts(message: Mapping[str, Any]) -> Iterator[Part]:
    content = message.get("content")
    if message["role"] == "tool":
        yield {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": _cut(content)}
        return
    pieces = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    for piece in pieces:
        # An image is named, and never sent.
        yield {"type": "text", "content": _cut(piece["text"])} if "text" in piece else {"type": piece["type"]}
    for call in message.get("tool_calls") or ():
        yield _call(call["id"], call["function"]["name"], call["function"]["arguments"])


def _call(id: str, name: str, arguments: str) -> Part:
    return {"type": "tool_call", "id": id, "name": name, "arguments": _cut(arguments)}


def _cut(text: object) -> str:
    return str(text)[:MESSAGE_CHARS]


def _json(messages: list[Part]) -> str:
    return msgspec.json.encode(messages).decode()
