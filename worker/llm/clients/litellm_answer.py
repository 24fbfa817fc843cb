"""A streamed answer in OpenAI's protocol that LiteLLM asked for, read from its bytes as the direct
client reads them.

By itself LiteLLM makes several objects of each event; that costs ten times as much as all of this.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Final, Protocol

from shared.errors import ModelError
from worker.agent.model.model import LLMResponse, OnDelta
from worker.llm.clients.answers import parse_completion, parse_only_reply
from worker.llm.clients.assembly import ReplyAssembler
from worker.llm.clients.faults import model_error
from worker.llm.clients.sse import EventReader
from worker.llm.policies.patience import CallTimeouts

_END_S: Final = 0.1  # for the last bytes of a stream: with them unread its connection cannot be used again
_DONE: Final = b"[DONE]"


class HTTPAnswer(Protocol):
    """An answer whose head has come, as httpx has it."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    def aiter_bytes(self) -> AsyncIterator[bytes]: ...

    async def aread(self) -> bytes: ...

    async def aclose(self) -> None: ...


class CompletionReader:
    """Reads one answer of `model`, which is only named in errors. Raises ModelError, and what
    `on_delta` raises."""

    def __init__(self, answer: HTTPAnswer, model: str, patience: CallTimeouts, on_delta: OnDelta) -> None:
        self._answer = answer
        self._model = model
        self._patience = patience
        self._on_delta = on_delta

    async def read_reply(self) -> LLMResponse:
        """The reply; its text has gone to `on_delta`, in one piece where the provider does not
        stream."""
        try:
            if "json" in self._answer.headers.get("content-type", ""):
                return await self._whole()
            return await self._events()
        finally:
            with contextlib.suppress(Exception):
                await self._answer.aclose()

    async def _whole(self) -> LLMResponse:
        reply = parse_only_reply(parse_completion(await self._bytes(self._answer.aread()), self._model), self._model)
        if reply.content:
            await self._on_delta(reply.content)
        return reply

    async def _events(self) -> LLMResponse:
        reply, events = ReplyAssembler(), EventReader()
        pieces = aiter(self._answer.aiter_bytes())
        while True:
            piece = await self._bytes(anext(pieces, b""))
            try:
                found = events.feed(piece) if piece else events.end()
            except ValueError:
                raise model_error(self._model, "bad_reply", "an event over the size limit") from None
            for data in found:
                if data == _DONE:
                    await _drain(pieces)
                    return reply.whole(ended=True)
                heard, text = reply.add(parse_completion(data, self._model))
                if heard:
                    self._patience.on_token()
                if text:
                    await self._on_delta(text)
            if not piece:
                return reply.whole()

    async def _bytes(self, coming: Awaitable[bytes]) -> bytes:
        try:
            return await self._patience.wait_next(coming)
        except ModelError:
            raise
        except Exception as exc:  # of whichever library carries the bytes
            raise model_error(self._model, "connection", type(exc).__name__) from None


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read what comes behind the last event, so that the connection can be used again."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_END_S):
            async for _ in pieces:
                pass
