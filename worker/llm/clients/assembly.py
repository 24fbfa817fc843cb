"""Putting a reply together, whole or from chunks, in the form of OpenAI's protocol."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.errors import ModelError
from worker.agent.model.model import LLMResponse, TokenUsage, ToolCallRequest
from worker.llm.clients.arguments import parse_arguments


class ReplyAssembler:
    """Puts the pieces of a streamed reply together."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_PartialCall] = []
        self._by_index: dict[int, _PartialCall] = {}
        self._usage = TokenUsage()
        self._finish = ""
        self._model = ""

    def add(self, chunk: Any) -> tuple[bool, str]:
        """Take one chunk in; answer whether it carried anything, and its text."""
        self._usage = parse_usage(chunk) or self._usage
        self._model = self._model or parse_model_name(chunk)
        if not chunk.choices or chunk.choices[0].delta is None:
            return False, ""
        choice = chunk.choices[0]
        if choice.finish_reason:
            self._finish = choice.finish_reason
        text, thought = _text_and_thoughts(choice.delta)
        if text:
            self._content.append(text)
        if thought:
            self._reasoning.append(thought)
        pieces = choice.delta.tool_calls or ()
        for piece in pieces:
            self._add_call(piece)
        return bool(text or thought or pieces), text

    def whole(self, *, ended: bool = False) -> LLMResponse:
        """The reply. One without a finish reason was cut off, unless its sender said that it
        `ended`."""
        if not self._finish and not ended:
            raise ModelError("connection", "the model's stream ended before its reply did", retryable=True)
        return LLMResponse(
            content="".join(self._content) or None,
            tool_calls=tuple(parse_call(call.id, call.name, "".join(call.pieces)) for call in self._calls),
            finish_reason=self._finish or ("tool_calls" if self._calls else "stop"),
            usage=self._usage,
            reasoning_content="".join(self._reasoning) or None,
            model=self._model,
        )

    def _add_call(self, piece: Any) -> None:
        name = (piece.function and piece.function.name) or ""
        call = self._call_of(piece.index, piece.id or "", name)
        call.id = call.id or piece.id or ""
        call.name = call.name or name
        call.pieces.append(_arguments_text(piece.function))

    def _call_of(self, index: int | None, id_: str, name: str) -> _PartialCall:
        """The call that a piece belongs to. Some give every call index 0, some give none, some omit
        the id."""
        if index is not None:
            call = self._by_index.get(index)
            new = call is None or bool(id_ and call.id and id_ != call.id)
        else:
            call = next((one for one in self._calls if id_ and one.id == id_), self._calls[-1] if self._calls else None)
            new = call is None or call.ended_by(id_, name)
        if call is None or new:
            call = _PartialCall()
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
        return call


class _PartialCall:
    """A tool call of which more may come."""

    __slots__ = ("id", "name", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []

    def ended_by(self, id_: str, name: str) -> bool:
        """Whether a piece without an index begins another call: it says another id or name, or this
        one is whole."""
        if id_ and self.id:
            return id_ != self.id
        return bool(name and self.name) and (name != self.name or _is_json("".join(self.pieces)))


def parse_whole_reply(answer: Any) -> LLMResponse:
    """The reply of an answer that was not streamed. Raises IndexError for one without any."""
    choice = answer.choices[0]
    content, reasoning = _text_and_thoughts(choice.message)
    calls = tuple(
        parse_call(call.id or "", (call.function and call.function.name) or "", _arguments_text(call.function))
        for call in choice.message.tool_calls or ()
    )
    return LLMResponse(
        content=content or None,
        tool_calls=calls,
        finish_reason=choice.finish_reason or ("tool_calls" if calls else "stop"),
        usage=parse_usage(answer) or TokenUsage(),
        reasoning_content=reasoning or None,
        model=parse_model_name(answer),
    )


def parse_call(id_: str, name: str, raw: str) -> ToolCallRequest:
    """A tool call with its arguments read."""
    return ToolCallRequest(id_, name, parse_arguments(raw), raw)


def parse_usage(answer: Any) -> TokenUsage | None:
    """The token counts of an answer or a chunk, when it has them."""
    usage = getattr(answer, "usage", None)
    if usage is None:
        return None
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return TokenUsage(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached or 0)


def parse_model_name(answer: Any) -> str:
    """The model that an answer, or a chunk, says it is from; `""` when it says none."""
    name = getattr(answer, "model", None)
    return name if isinstance(name, str) else ""


def _text_and_thoughts(message: Any) -> tuple[str, str]:
    """The text and the thoughts of a message or a delta. With some providers the text is a list of
    both."""
    thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    thought = thought if isinstance(thought, str) else ""
    content = message.content or ""
    if isinstance(content, str):
        return content, thought
    text = "".join(part.text or "" for part in content)
    return text, thought + "".join(inner.text or "" for part in content for inner in part.thinking or ())


def _arguments_text(function: Any) -> str:
    """The arguments as text; a few servers send the object itself."""
    arguments = function.arguments if function else None
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return msgspec.json.encode(arguments).decode()


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
