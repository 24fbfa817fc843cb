"""The HTTP response of an answer that may take minutes, as OpenAI's clients read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final, Literal

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.channels.web.api.completion import PARAGRAPH, Completion
from gateway.channels.web.api.errors import ApiError, as_api_error, encode_error, error_response, turn_error
from gateway.channels.web.api.parameters import ignored_header
from shared.clock import Clock
from shared.log import logger
from shared.messages.outbound import StoredAnswer, TokensUsed
from shared.tasks import cancel_all

log = logger("api")

_STREAM = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
}

Finish = Literal["stop", "length"]

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"


def encode_model(name: str) -> bytes:
    """Encode a model that requests may name."""
    return msgspec.json.encode(_model(name))


def encode_models(names: Iterable[str]) -> bytes:
    """Encode the list of models."""
    return msgspec.json.encode({"object": "list", "data": [_model(name) for name in names]})


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "shoal"}


class CompletionEncoder(msgspec.Struct, frozen=True):
    """Encodes one answer, whole or in pieces. `created` is in s; `model` as requests name it."""

    id: str
    created: int
    model: str
    with_usage: bool = False

    def encode_completion(self, text: str, finish: Finish, usage: TokensUsed | None) -> bytes:
        """Encode the complete answer."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        body = self._body("chat.completion", [choice])
        return msgspec.json.encode(body | {"usage": _usage(usage)})

    def encode_first(self) -> bytes:
        """Encode the first piece, which has the role."""
        return self._piece({"role": "assistant", "content": ""})

    def encode_text(self, text: str) -> bytes:
        """Encode a piece of text."""
        return self._piece({"content": text})

    def encode_last(self, finish: Finish, usage: TokensUsed | None) -> bytes:
        """Encode the pieces at the end."""
        end = self._piece({}, finish)
        return (end + self._event([], _usage(usage)) if self.with_usage else end) + DONE

    def _piece(self, delta: dict[str, str], finish: Finish | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._event([choice])

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        chunk = self._body("chat.completion.chunk", choices)
        if self.with_usage:  # null in all but the last
            chunk["usage"] = usage
        return event(msgspec.json.encode(chunk))

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}


def event(data: bytes) -> bytes:
    """Return one event of a stream."""
    return b"data: " + data + b"\n\n"


def _usage(used: TokensUsed | None) -> dict[str, Any]:
    """Return the tokens of all model calls of the turn; zeros where they are unknown."""
    used = used or TokensUsed()
    return {
        "prompt_tokens": used.prompt,
        "completion_tokens": used.completion,
        "total_tokens": used.prompt + used.completion,
        "prompt_tokens_details": {"cached_tokens": used.cached},
    }


class StreamBuffer:
    """Turns text that may change into text that only grows; each method returns the text to send.

    The agent goes on with its next step, or another worker begins a reply again. Text that was sent
    stays; new text continues it, or is sent as a paragraph of its own, without the paragraphs that
    it has in common with what was sent. White space is sent once something follows it."""

    def __init__(self) -> None:
        self._part = ""  # the part of the running reply that was sent
        self._sent: list[str] = []
        self._held = ""
        self._closed = False

    def update(self, text: str) -> str:
        """Set the running reply to `text`."""
        if self._part.startswith(text):
            return ""
        grown = text.startswith(self._part) and not self._closed
        known = len(self._part) if grown else _common_paragraphs(self._part, text)
        self._part, self._closed = text, False
        return self._advance(text[known:], new_paragraph=not grown)

    def insert(self, text: str) -> str:
        """Insert a complete text, outside of the reply."""
        self._closed = True
        return self._advance(text, new_paragraph=True)

    def finish(self, text: str, whole: str) -> str:
        """End the reply as `text`; `whole` is all that the turn has said. White space at its end does
        not count."""
        sent = "".join(self._sent)
        if whole.startswith(sent):
            return whole[len(sent) :]
        part = self._part.rstrip()
        if text.strip() == part.strip():
            return ""
        if part and not self._closed and text.startswith(part):
            self._held = ""
            return self._advance(text[len(part) :], new_paragraph=False)
        return self._advance(text[_common_paragraphs(self._part, text) :], new_paragraph=True)

    def _advance(self, text: str, *, new_paragraph: bool) -> str:
        before = PARAGRAPH if new_paragraph else self._held
        held = f"{before if self._sent else ''}{text}"
        more = held.rstrip()
        self._held = held[len(more) :] if not new_paragraph or more else self._held
        if more:
            self._sent.append(more)
        return more


def _common_paragraphs(one: str, other: str) -> int:
    """Return the length of the whole paragraphs with which both texts begin."""
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    at = other.rfind(PARAGRAPH, 0, same)
    return at + len(PARAGRAPH) if at >= 0 else 0


class CompletionResponse(Response):
    """The answer of a completion that was begun; closes it at the end, then calls `ended`."""

    def __init__(self, completion: Completion, alive_s: float, clock: Clock, ended: Callable[[], None]) -> None:
        super().__init__()
        self._ended = ended
        self._completion = completion
        self._alive_s = alive_s
        self._clock = clock
        begun, asked = completion.begun, completion.request
        name, created = f"chatcmpl-{begun.ticket}", begun.at_ms // 1000
        self._encoder = CompletionEncoder(name, created, asked.model, asked.with_usage)
        self._extra_headers = {"X-Request-Id": begun.ticket}
        if asked.ignored:
            self._extra_headers["Shoal-Ignored"] = ignored_header(asked.ignored)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._clock.monotonic()
        serving = asyncio.create_task(self._serve(scope, receive, send))
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            gone = not serving.done()
            # Both tasks end before the completion is closed: serving uses it.
            try:
                await cancel_all([serving, leaving])
                await self._completion.close()
            finally:
                self._ended()
            seconds = round(self._clock.monotonic() - began, 3)
            log.info("request ended", request=self._completion.begun.ticket, client_gone=gone, seconds=seconds)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A failed answer that is known from the start is an error response, for a stream too.
        known = self._completion.answer
        if self._completion.request.stream and not (known and known.failed):
            async with aclosing(self._events()) as events:
                await StreamingResponse(events, headers=_STREAM | self._extra_headers).stream_response(send)
            return
        try:
            answer = await self._wait_for_answer()
            body = self._encoder.encode_completion(answer.text, answer.finish, answer.usage)
            response = Response(body, 200, {"Cache-Control": "no-store"}, "application/json")
        except Exception as exc:
            response = error_response(_api_error(exc))
        response.headers.update(self._extra_headers)
        await response(scope, receive, send)

    async def _wait_for_answer(self) -> StoredAnswer:
        """Wait for the answer. Raises ApiError."""
        async with aclosing(self._completion.changes()) as changes:
            async for _ in changes:
                pass
        answer = self._completion.answer
        assert answer is not None
        if answer.failed is not None:
            raise turn_error(answer.failed)
        return answer

    async def _events(self) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    yield piece
        except Exception as exc:
            yield event(encode_error(_api_error(exc)))

    async def _pieces(self) -> AsyncGenerator[bytes]:
        completion, encoder, buffer, sent = self._completion, self._encoder, StreamBuffer(), 0
        sent_at = self._clock.monotonic()
        yield encoder.encode_first()
        async with aclosing(completion.changes()) as changes:
            async for _ in changes:
                if (reader := completion.reader) is None:
                    continue
                asides = completion.asides(reader)
                more = "".join([*map(buffer.insert, asides[sent:]), buffer.update(reader.text)])
                sent = max(sent, len(asides))
                if more:
                    yield encoder.encode_text(more)
                elif self._clock.monotonic() - sent_at >= self._alive_s:
                    yield KEEP_ALIVE
                else:
                    continue
                sent_at = self._clock.monotonic()
        answer, reader = await self._wait_for_answer(), completion.reader
        end = reader and reader.end  # without the asides, which were sent
        rest = end.content if end else answer.text
        if more := buffer.finish(rest, answer.text):
            yield encoder.encode_text(more)
        yield encoder.encode_last(answer.finish, answer.usage)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _api_error(exc: Exception) -> ApiError:
    """Return the API's error for `exc`; raises `exc` itself if it is a bug."""
    if (known := as_api_error(exc)) is None:
        raise exc
    return known
