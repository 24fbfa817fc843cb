"""The chunks of an answer as the AI SDK reads them: its UI message stream. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self

import msgspec

from gateway.channels.web.api.answer import DROPPED_CODE
from gateway.channels.web.api.completion import Completion
from gateway.channels.web.api.encoder import DONE, event
from gateway.channels.web.api.errors import ApiError, as_sentence
from shared.messages.outbound import StoredAnswer
from shared.messages.transcript import ToolCall

TEXT: Final = "text"  # id of the text, of which an answer has one
STOPPED: Final = "The answer was stopped."

_FINISH: Final[Mapping[str, Literal["stop", "length", "tool-calls"]]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool-calls",
}


class ChatFold:
    """Encodes an answer as one step of a message: its text, then the calls of the client's functions.
    `message_id` is the id of the message; None leaves the client with the one that it goes on with,
    whose calls would be lost under another id."""

    headers: ClassVar[Mapping[str, str]] = {"x-vercel-ai-ui-message-stream": "v1"}

    def __init__(self, message_id: str | None) -> None:
        self._message_id = message_id
        self._open = False  # the text has begun, and has not ended

    @classmethod
    def of(cls, completion: Completion) -> Self:
        """Return the fold of a completion that was begun. The id is that of the stored response."""
        return cls(None if completion.continues else f"resp_{completion.begun.ticket}")

    def encode_answer(self, answer: StoredAnswer | None) -> bytes:
        """Encode the whole stream of an answer that is known."""
        assert answer is not None, "a chat is always streamed"
        text = self.encode_text(answer.text) if answer.text else b""
        return self.encode_first() + text + self.encode_last(answer)

    def encode_first(self) -> bytes:
        """Encode the chunks before the first text."""
        name = {} if self._message_id is None else {"messageId": self._message_id}
        return _chunk("start", **name) + _chunk("start-step")

    def encode_text(self, text: str) -> bytes:
        """Encode a piece of text."""
        begun = b"" if self._open else _chunk("text-start", id=TEXT)
        self._open = True
        return begun + _chunk("text-delta", id=TEXT, delta=text)

    def encode_last(self, answer: StoredAnswer) -> bytes:
        """Encode the chunks at the end."""
        if answer.stopped:
            return self._end_step() + _chunk("abort", reason=STOPPED) + DONE
        end = self._end_step(answer.calls) + _chunk("finish", finishReason=_FINISH[answer.finish])
        return end + DONE

    def encode_error(self, error: ApiError, *, over: bool) -> bytes:
        """Encode the error that ends the stream. It is shown to people as it is. A message that was
        taken back has no answer, which is no error."""
        sentence = as_sentence(error.message)
        if over and error.code == DROPPED_CODE:
            last = _chunk("abort", reason=sentence)
        else:
            last = _chunk("error", errorText=sentence)
        return self._end_step() + last + DONE

    def _end_step(self, calls: tuple[ToolCall, ...] = ()) -> bytes:
        ended = _chunk("text-end", id=TEXT) if self._open else b""
        self._open = False
        # Each call is whole: half of one cannot be continued by another worker.
        return ended + b"".join(map(_call, calls)) + _chunk("finish-step")


def _call(call: ToolCall) -> bytes:
    return _chunk("tool-input-available", toolCallId=call.id, toolName=call.name, input=_input(call.arguments))


def _input(arguments: str) -> Any:
    """Return the arguments of a call; the text itself where a model wrote no JSON."""
    try:
        return msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return arguments


def _chunk(kind: str, **fields: Any) -> bytes:
    return event(msgspec.json.encode({"type": kind, **fields}))
