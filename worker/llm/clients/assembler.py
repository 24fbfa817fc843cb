"""A reply, assembled from the chunks of a stream or from a whole answer."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.errors import ModelError
from worker.agent.model.model import LLMResponse, TokenUsage, ToolCallRequest
from worker.llm.clients.answer_parts import arguments_text, parse_model_name, parse_usage, text_and_thoughts
from worker.llm.clients.arguments import parse_arguments


class ReplyAssembler:
    """Assembles a reply from the chunks of a stream."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, _PartialCall] = {}
        self._usage = TokenUsage()
        self._finish = ""
        self._model = ""

    def add(self, chunk: Any, *, whole: bool = False) -> tuple[bool, str]:
        """Add one chunk, or a `whole` answer. Return whether it carried anything, and its text."""
        self._usage = parse_usage(chunk) or self._usage
        self._model = self._model or parse_model_name(chunk)
        choice = chunk.choices[0] if chunk.choices else None
        message = choice and (choice.message if whole else choice.delta)
        if choice is None or message is None:
            return False, ""
        if choice.finish_reason:
            self._finish = choice.finish_reason
        text, thought = text_and_thoughts(message)
        if text:
            self._content.append(text)
        if thought:
            self._reasoning.append(thought)
        pieces = message.tool_calls or ()
        for piece in pieces:
            self._add_call(piece, whole)
        return bool(text or thought or pieces), text

    def whole(self, *, ended: bool = False) -> LLMResponse:
        """Return the reply. Raises ModelError for one that was cut off."""
        if not self._finish and not ended:
            raise ModelError("connection", "the model's stream ended before its reply did", retryable=True)
        return LLMResponse(
            content="".join(self._content) or None,
            tool_calls=tuple(call.whole() for call in self._calls),
            finish_reason=self._finish or ("tool_calls" if self._calls else "stop"),
            usage=self._usage,
            reasoning_content="".join(self._reasoning) or None,
            model=self._model,
        )

    def _add_call(self, piece: Any, whole: bool) -> None:
        index, id_ = getattr(piece, "index", None), piece.id or ""
        name = (piece.function and piece.function.name) or ""
        call = None if whole else self._open_call(index, id_, name)
        if call is None:
            call = _PartialCall()
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
        call.id = call.id or id_
        call.name = call.name or name
        call.pieces.append(arguments_text(piece.function))

    def _open_call(self, index: int | None, id_: str, name: str) -> _PartialCall | None:
        """Return the call that a piece continues; None if it begins one. Some providers give every
        call index 0, some give no index, and some omit the id, so both are compared."""
        if index is not None:
            call = self._by_index.get(index)
            return None if call and id_ and call.id and id_ != call.id else call
        last = self._calls[-1] if self._calls else None
        call = next((one for one in self._calls if id_ and one.id == id_), last)
        return None if call and call.ended_by(id_, name) else call


class _PartialCall:
    """A tool call whose pieces are still arriving."""

    __slots__ = ("id", "name", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []

    def whole(self) -> ToolCallRequest:
        raw = "".join(self.pieces)
        return ToolCallRequest(self.id, self.name, parse_arguments(raw), raw)

    def ended_by(self, id_: str, name: str) -> bool:
        """Return whether a piece without an index begins another call."""
        if id_ and self.id:
            return id_ != self.id
        return bool(name and self.name) and (name != self.name or _is_json("".join(self.pieces)))


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
