"""Replies in OpenAI's protocol, whole or streamed, for every client that reads the bytes itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from shared.errors import ModelError
from worker.agent.model.model import LLMResponse, OnDelta, ToolSpec
from worker.llm.clients.answer.assembler import ReplyAssembler
from worker.llm.clients.answer.decoder import AnswerDecoder
from worker.llm.clients.answer.events import EventReader
from worker.llm.clients.answer.plain import read_completion
from worker.llm.policies.timeouts import CallTimeouts

NextPiece = Callable[[], Awaitable[bytes]]
Tools = Sequence[ToolSpec]

# For what follows the reason why an answer ended: token counts, and the mark of the end
LAST_S: Final = 5.0
DRAIN_S: Final = 0.1  # for the last bytes of a stream: unread, its connection cannot be reused


async def read_whole_answer(data: bytes, model: str, on_delta: OnDelta | None, tools: Tools = ()) -> LLMResponse:
    """Return the reply of an answer that was not streamed; its text goes to `on_delta` in one
    piece. Raises ModelError, and what `on_delta` raises."""
    decoder = AnswerDecoder(model)
    assembler = ReplyAssembler(decoder, tools)
    for completion in decoder.read_data(data):
        assembler.add(completion)
    reply = _whole(assembler, decoder)
    if on_delta is not None and reply.content:
        await on_delta(reply.content)
    return reply


async def read_event_stream(
    next_piece: NextPiece,
    model: str,
    timeouts: CallTimeouts,
    on_delta: OnDelta | None,
    tools: Tools = (),
    *,
    framed: bool = True,
) -> LLMResponse:
    """Read a streamed reply to its end, and pass its text on. `next_piece` returns `b""` at the end
    of the body, whose length was known if it is `framed`. Raises ModelError, and what `next_piece`
    and `on_delta` raise."""
    decoder = AnswerDecoder(model)
    events = EventReader()
    shown = False
    reply = ReplyAssembler(decoder, tools)
    while not decoder.ended:
        piece = await (_last_piece(next_piece) if reply.ending else next_piece())
        try:
            found = events.feed(piece) if piece else events.end()
        except ValueError:
            decoder.fail("bad_reply", "an event over the size limit")
        for data in found:
            for completion in decoder.read_data(data):
                carries, text = reply.add(completion)
                if carries:  # not so a keep-alive of the provider, which must not extend the time limit
                    timeouts.on_token()
                if text and on_delta is not None:
                    shown = True
                    await on_delta(text)
            if decoder.ended:
                break
        if not piece:
            break
    if events.strays and not reply.answered:
        decoder.note("events")
    whole = reply.whole(ended=decoder.ended, framed=framed)
    if whole.content and not shown and on_delta is not None:
        await on_delta(whole.content)
    # With what follows the last event read, the connection can be used again.
    with contextlib.suppress(TimeoutError, ModelError):
        async with asyncio.timeout(DRAIN_S):
            while await next_piece():
                pass
    return whole


async def _last_piece(next_piece: NextPiece) -> bytes:
    """Return what follows the end of an answer; `b""` if nothing does. Some servers never close
    their connection, or break it: the answer has come all the same."""
    with contextlib.suppress(TimeoutError, ModelError):
        async with asyncio.timeout(LAST_S):
            return await next_piece()
    return b""


def is_framed(headers: Mapping[str, str]) -> bool:
    """Return whether the headers of an answer, in any case, say how the end of its body is known.
    Else it ends with the connection, which may also break."""
    return "content-length" in headers or "transfer-encoding" in headers


def parse_whole_reply(answer: Any, model: str, tools: Tools = ()) -> LLMResponse:
    """Return the reply of an answer that was not streamed, from plain values. Raises ModelError if
    it has none."""
    decoder = AnswerDecoder(model)
    assembler = ReplyAssembler(decoder, tools)
    assembler.add(read_completion(answer))
    return _whole(assembler, decoder)


def _whole(assembler: ReplyAssembler, decoder: AnswerDecoder) -> LLMResponse:
    if not assembler.answered:
        decoder.note("choices")
        decoder.fail("bad_reply", "an answer without a message")
    return assembler.whole(ended=True)
