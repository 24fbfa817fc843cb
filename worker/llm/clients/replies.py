"""Replies in OpenAI's protocol, whole or streamed, for every client that reads the bytes itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from shared.errors import ModelError
from worker.agent.model.model import LLMResponse, OnDelta, TokenUsage, ToolCallRequest
from worker.llm.clients.arguments import parse_arguments
from worker.llm.clients.completion import ChatCompletion, decode
from worker.llm.clients.faults import kind_of_error, model_error
from worker.llm.policies.timeouts import CallTimeouts


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


LIMIT_BYTES: Final = 16 * 1024 * 1024  # of one event; no provider comes near it, it saves memory


class EventReader:
    """Splits a stream into server-sent events, in whatever pieces it arrives.

    https://html.spec.whatwg.org/multipage/server-sent-events.html. Only `data` counts: comments,
    which keep a connection open, event names, ids and retry times are skipped. Lines end with LF or
    CRLF; a lone CR, which the standard also allows, does not end a line here.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._waiting_bytes = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of each event that ends here. Raises ValueError over the limit."""
        *lines, rest = piece.split(b"\n")
        events = []
        for line in lines:
            if self._line:
                line = b"".join([*self._line, line])
                self._line.clear()
            event = self._feed_line(line[:-1] if line.endswith(b"\r") else line)
            if event is not None:
                events.append(event)
        if rest:
            self._line.append(rest)
        self._waiting_bytes = len(rest) if lines else self._waiting_bytes + len(rest)
        if self._waiting_bytes + sum(map(len, self._data)) > self._limit_bytes:
            raise ValueError("an event is too big")
        return events

    def end(self) -> list[bytes]:
        return self.feed(b"\n\n")

    def _feed_line(self, line: bytes) -> bytes | None:
        if not line:
            event = b"\n".join(self._data) if self._data else None
            self._data.clear()
            return event
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value[1:] if value.startswith(b" ") else value)
        return None


NextPiece = Callable[[], Awaitable[bytes]]

DRAIN_S: Final = 0.1  # for the last bytes of a stream: unread, its connection cannot be reused
_DONE: Final = b"[DONE]"


def parse_completion(data: bytes, model: str) -> ChatCompletion:
    """Return an answer, or one event of a stream. Raises ModelError, which names `model`, for data
    that is neither, and for an answer that reports an error."""
    try:
        completion = decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise model_error(model, "bad_reply", type(exc).__name__) from None
    if completion.error is not None:
        kind = kind_of_error(completion.error, "connection")
        raise model_error(model, kind, "an error in its answer")
    return completion


async def read_whole_answer(data: bytes, model: str, on_delta: OnDelta | None) -> LLMResponse:
    """Return the reply of an answer that was not streamed; its text goes to `on_delta` in one
    piece. Raises ModelError, and what `on_delta` raises."""
    reply = parse_whole_reply(parse_completion(data, model), model)
    if on_delta is not None and reply.content:
        await on_delta(reply.content)
    return reply


async def read_event_stream(
    next_piece: NextPiece, model: str, timeouts: CallTimeouts, on_delta: OnDelta | None
) -> LLMResponse:
    """Read a streamed reply to its end, and pass its text on. `next_piece` returns `b""` at the end
    of the body. Raises ModelError, and what `next_piece` and `on_delta` raise."""
    reply, events, ended = ReplyAssembler(), EventReader(), False
    while not ended:
        piece = await next_piece()
        try:
            found = events.feed(piece) if piece else events.end()
        except ValueError:
            raise model_error(model, "bad_reply", "an event over the size limit") from None
        for data in found:
            if ended := data == _DONE:
                break
            carries, text = reply.add(parse_completion(data, model))
            if carries:  # not so a keep-alive of the provider, which must not extend the time limit
                timeouts.on_token()
            if text and on_delta is not None:
                await on_delta(text)
        if not piece:
            break
    whole = reply.whole(ended=ended)
    # With what follows the last event read, the connection can be used again.
    with contextlib.suppress(TimeoutError, ModelError):
        async with asyncio.timeout(DRAIN_S):
            while await next_piece():
                pass
    return whole


def parse_whole_reply(answer: Any, model: str) -> LLMResponse:
    """Return the reply of an answer that was not streamed. Raises ModelError if it has none."""
    if not answer.choices or answer.choices[0].message is None:
        raise model_error(model, "bad_reply", "an answer without a message")
    reply = ReplyAssembler()
    reply.add(answer, whole=True)
    return reply.whole(ended=True)


def parse_usage(answer: Any) -> TokenUsage | None:
    """Return the token counts of an answer or a chunk, if it has them."""
    usage = getattr(answer, "usage", None)
    if usage is None:
        return None
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return TokenUsage(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached or 0)


def parse_model_name(answer: Any) -> str:
    """Return the name of the model that made an answer or a chunk; `""` if it gives none."""
    name = getattr(answer, "model", None)
    return name if isinstance(name, str) else ""


def text_and_thoughts(message: Any) -> tuple[str, str]:
    """Return text and thoughts of a message or a delta. Some providers send one list of both."""
    thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    thought = thought if isinstance(thought, str) else ""
    content = message.content or ""
    if isinstance(content, str):
        return content, thought
    inner = "".join(each.text or "" for part in content for each in part.thinking or ())
    return "".join(part.text or "" for part in content), thought + inner


def arguments_text(function: Any) -> str:
    """Return the arguments as text; a few servers send the object itself."""
    arguments = function.arguments if function else None
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return msgspec.json.encode(arguments).decode()
