"""An answer that may take minutes, over HTTP: whole or as a stream, and given up when its client is
gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.channels.web.api.completion import Completion
from gateway.channels.web.api.errors import ApiError, as_api_error, encode_error, error_response, turn_error
from gateway.channels.web.api.stream_buffer import StreamBuffer
from gateway.channels.web.api.wire import KEEP_ALIVE, CompletionEncoder, event
from shared.clock import Clock
from shared.log import logger
from shared.messages.answer import StoredAnswer
from shared.tasks import cancel_all

_STREAM = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
}

log = logger("api")


class CompletionResponse(Response):
    """The answer of an exchange that was begun; closes it, and then calls `ended`."""

    def __init__(self, exchange: Completion, *, alive_s: float, clock: Clock, ended: Callable[[], None]) -> None:
        super().__init__()
        self._ended = ended
        self._exchange = exchange
        self._alive_s = alive_s
        self._clock = clock
        asked, ask = exchange.begun, exchange.request
        self._frame = CompletionEncoder(f"chatcmpl-{asked.ticket}", asked.at_ms // 1000, ask.model, ask.with_usage)
        self._about = {"X-Request-Id": asked.ticket}

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
            try:
                await cancel_all([serving, leaving])
                await self._exchange.close()
            finally:
                self._ended()
            seconds = round(self._clock.monotonic() - began, 3)
            log.info("request ended", request=self._exchange.begun.ticket, client_gone=gone, seconds=seconds)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A stream that has an error for its answer from the start says so as any other request
        # does.
        if self._exchange.request.stream and not (self._exchange.answer and self._exchange.answer.failed):
            await self._send_stream(send)
            return
        try:
            answer = await self._answer()
            body = self._frame.encode_completion(answer.text, answer.finish, answer.usage)
            response = Response(body, 200, {"Cache-Control": "no-store"}, "application/json")
        except Exception as exc:
            response = error_response(_api_error(exc))
        response.headers.update(self._about)
        await response(scope, receive, send)

    async def _answer(self) -> StoredAnswer:
        """Waits for it. Raises ApiError."""
        async with aclosing(self._exchange.changes()) as changes:
            async for _ in changes:
                pass
        answer = self._exchange.answer
        assert answer is not None
        if answer.failed is not None:
            raise turn_error(answer.failed)
        return answer

    async def _send_stream(self, send: Send) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in {**_STREAM, **self._about}.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Exception as exc:
            error = event(encode_error(_api_error(exc)))
            await send({"type": "http.response.body", "body": error, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pieces(self) -> AsyncGenerator[bytes]:
        exchange, frame, tape, told = self._exchange, self._frame, StreamBuffer(), 0
        sent_at = self._clock.monotonic()
        yield frame.encode_first()
        async with aclosing(exchange.changes()) as changes:
            async for _ in changes:
                if (waiting := exchange.follower) is None:
                    continue
                asides = [
                    one.text for one in waiting.asides if exchange.request.name is not None or not one.is_question
                ]
                more = "".join([*map(tape.insert, asides[told:]), tape.update(waiting.text)])
                told = max(told, len(asides))
                if more:
                    yield frame.encode_text(more)
                elif self._clock.monotonic() - sent_at >= self._alive_s:
                    yield KEEP_ALIVE
                else:
                    continue
                sent_at = self._clock.monotonic()
        answer = await self._answer()
        rest = answer.text
        if exchange.follower is not None and exchange.follower.end is not None:
            rest = exchange.follower.end.content  # what was said beside it has been sent
        if more := tape.finish(rest):
            yield frame.encode_text(more)
        yield frame.encode_last(answer.finish, answer.usage)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _api_error(exc: Exception) -> ApiError:
    """Raises whatever is no error of the API: a bug."""
    if (known := as_api_error(exc)) is None:
        raise exc
    return known
