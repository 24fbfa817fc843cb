"""The HTTP response of an answer that may take minutes, as OpenAI's clients read it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.channels.web.api.answer import last_text
from gateway.channels.web.api.completion import Completion
from gateway.channels.web.api.encoder import AnswerEncoder
from gateway.channels.web.api.errors import ApiError, as_api_error, error_response, turn_error
from gateway.channels.web.api.parameters import ignored_header
from gateway.channels.web.api.stream_buffer import StreamBuffer
from gateway.channels.web.http.leaving import serve_until_left
from shared.clock import Clock
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.messages.outbound import StoredAnswer

log = logger("api")

_STREAM = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
}

KEEP_ALIVE: Final = b": keep-alive\n\n"


class CompletionResponse(Response):
    """The answer of a completion that was begun; closes it at the end, then calls `ended`."""

    def __init__(
        self,
        completion: Completion,
        encoder: AnswerEncoder,
        alive_s: float,
        clock: Clock,
        ended: Callable[[], None],
    ) -> None:
        super().__init__()
        self._ended = ended
        self._completion = completion
        self._alive_s = alive_s
        self._clock = clock
        self._encoder = encoder
        asked = completion.request
        self._extra_headers = {"X-Request-Id": completion.begun.ticket}
        if asked.ignored:
            self._extra_headers["Shoal-Ignored"] = ignored_header(asked.ignored)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._clock.monotonic()
        gone = False
        try:
            gone = await serve_until_left(self._serve(scope, receive, send), receive, self._completion.close)
        finally:
            self._ended()
            seconds = round(self._clock.monotonic() - began, 3)
            log.info("request ended", request=self._completion.begun.ticket, client_gone=gone, seconds=seconds)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A failed answer that is known from the start is an error response, for a stream too; but
        # not where the response was found, and is read.
        completion = self._completion
        known = self._completion.answer
        if completion.request.stream and (completion.resumed or not (known and known.failed)):
            async with aclosing(self._events()) as events:
                await StreamingResponse(events, headers=_STREAM | self._extra_headers).stream_response(send)
            return
        try:
            if self._completion.request.background:
                body = await self._encode_at_once()
            else:
                body = self._encoder.encode_answer(await self._wait_for_answer())
            response = Response(body, 200, {"Cache-Control": "no-store"}, "application/json")
        except Exception as exc:
            response = error_response(_api_error(exc))
        response.headers.update(self._extra_headers)
        await response(scope, receive, send)

    async def _encode_at_once(self) -> bytes:
        completion = self._completion
        if completion.answer is None:
            # The message is accepted whatever becomes of this note about it.
            with contextlib.suppress(RedisAway, Refused):
                await completion.mark_accepted()
        return self._encoder.encode_answer(completion.answer)

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
            over = self._completion.answer is not None
            yield self._encoder.encode_error(_api_error(exc), over=over)

    async def _pieces(self) -> AsyncGenerator[bytes]:
        completion = self._completion
        encoder = self._encoder
        buffer = StreamBuffer()
        sent = 0
        sent_at = self._clock.monotonic()
        if first := encoder.encode_first():
            yield first
        async with aclosing(completion.changes()) as changes:
            async for _ in changes:
                if (reader := completion.reader) is None:
                    continue
                asides = completion.asides(reader)
                more = "".join([*map(buffer.insert, asides[sent:]), buffer.update(reader.text)])
                sent = max(sent, len(asides))
                if more and (piece := encoder.encode_text(more)):
                    yield piece
                elif self._clock.monotonic() - sent_at >= self._alive_s:
                    yield KEEP_ALIVE
                else:
                    continue
                sent_at = self._clock.monotonic()
        answer = await self._wait_for_answer()
        reader = completion.reader
        end = reader and reader.end  # without the asides, which were sent
        rest = last_text(end) if end else answer.text
        if more := buffer.finish(rest, answer.text):
            yield encoder.encode_text(more)
        yield encoder.encode_last(answer)


def _api_error(exc: Exception) -> ApiError:
    """Return the API's error for `exc`; raises `exc` itself if it is a bug."""
    if (known := as_api_error(exc)) is None:
        raise exc
    return known
