"""Putting a streamed reply together, from chunks in the form of OpenAI's client."""

from __future__ import annotations

from typing import Any

from shared.errors import ModelError
from worker.agent.model import LLMResponse, ToolCallRequest, Usage
from worker.llm.arguments import parse_arguments


class Assembly:
    """Puts the pieces of a streamed reply together."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._usage = Usage()
        self._finish = ""

    def add(self, chunk: Any) -> tuple[bool, str]:
        """Take one chunk in; answer whether it carried anything, and its text."""
        self._usage = usage_of(chunk) or self._usage
        if not chunk.choices:
            return False, ""
        choice = chunk.choices[0]
        self._finish = choice.finish_reason or self._finish
        text = choice.delta.content or ""
        thought = getattr(choice.delta, "reasoning_content", None) or ""
        pieces = choice.delta.tool_calls or ()
        if text:
            self._content.append(text)
        if thought:
            self._reasoning.append(thought)
        for piece in pieces:
            self._add_call(piece)
        return bool(text or thought or pieces), text

    def whole(self) -> LLMResponse:
        if not self._finish:
            raise ModelError("connection", "the model's stream ended before its reply did", retryable=True)
        return LLMResponse(
            content="".join(self._content) or None,
            tool_calls=tuple(requested(call.id, call.name, "".join(call.pieces)) for call in self._calls),
            finish_reason=self._finish,
            usage=self._usage,
            reasoning_content="".join(self._reasoning) or None,
        )

    def _add_call(self, piece: Any) -> None:
        index = piece.index or 0
        call = self._by_index.get(index)
        if call is None or (piece.id and call.id and piece.id != call.id):  # some providers give every call index 0
            call = self._by_index[index] = _Call()
            self._calls.append(call)
        call.id = call.id or piece.id or ""
        call.name = call.name or piece.function.name or ""
        call.pieces.append(piece.function.arguments or "")


class _Call:
    """A tool call of which more may come."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []


def requested(id_: str, name: str, raw: str) -> ToolCallRequest:
    """A tool call with its arguments read."""
    return ToolCallRequest(id_, name, parse_arguments(raw), raw)


def usage_of(answer: Any) -> Usage | None:
    """The token counts of a reply or a chunk, when it has them."""
    usage = getattr(answer, "usage", None)
    return None if usage is None else Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0)
