"""Replies in OpenAI's protocol, whole or streamed, for every client that reads the bytes itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from shared.errors import ModelError
from worker.agent.model.model import LLMResponse, OnDelta
from worker.llm.clients.assembler import ReplyAssembler
from worker.llm.clients.completion import ChatCompletion, decode
from worker.llm.clients.events import EventReader
from worker.llm.clients.faults import kind_of_error, model_error
from worker.llm.policies.timeouts import CallTimeouts

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
