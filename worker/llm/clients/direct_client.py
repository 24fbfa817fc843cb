"""Every endpoint that speaks OpenAI's chat protocol, as a Model, for a fiftieth of LiteLLM's CPU
time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from shared.errors import ModelError
from shared.settings import ModelSettings
from shared.version import VERSION
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta
from worker.llm.clients.answers import parse_completion, parse_only_reply
from worker.llm.clients.assembly import ReplyAssembler
from worker.llm.clients.faults import kind_of_refusal, model_error, retry_after_s
from worker.llm.clients.sse import EventReader
from worker.llm.clients.wire import RequestWriter
from worker.llm.policies.patience import CallTimeouts
from worker.llm.policies.traced import trace_header
from worker.llm.providers import Route, choose

T = TypeVar("T")
Wait = Callable[[Awaitable[T]], Awaitable[T]]

ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024
ERROR_LIMIT_BYTES: Final = 64 * 1024
IDLE_S: Final = 30.0
"""How long an unused connection is kept."""
_END_S: Final = 0.1  # for the last bytes of a stream: with them unread its connection cannot be used again
_DONE: Final = b"[DONE]"


class Connections:
    """HTTP connections, opened when they are needed and used again."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def session(self) -> aiohttp.ClientSession:
        """The session of the running loop."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # Patience counts
                trust_env=False,
            )
            self._loop = loop
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


_CONNECTIONS: Final = Connections()  # one pool a process, whichever models use it


class DirectModel:
    """One model of one endpoint. Makes one call; RetryingModel repeats it.

    No proxy of the environment is used, no redirect followed, no cookie kept; certificates are
    checked.
    """

    def __init__(
        self,
        settings: ModelSettings,
        *,
        route: Route | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        route = route or choose(msgspec.structs.replace(settings, client="direct"))
        self.name = settings.name
        self._settings = settings
        self._url = f"{route.api_base}/chat/completions"
        self._writer = RequestWriter(route)
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",  # a packed stream would arrive in lumps
            "User-Agent": f"shoal/{VERSION}",
            **(headers or {}),
        }
        if settings.api_key is not None:
            self._headers["Authorization"] = f"Bearer {settings.api_key.reveal()}"

    async def preload(self) -> None:
        """There is nothing to wait for."""

    async def close(self) -> None:
        """Close the connections of this process to all such endpoints."""
        await _CONNECTIONS.close()

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        with self._faults():
            body = self._writer.write(request, stream=on_delta is not None)
        with CallTimeouts(self._settings) as patience:
            if on_delta is None:  # nobody is told anything on the way: one limit for all of it
                return await patience.wait_all(self._send(body, None, None))
            return await self._send(body, patience, on_delta)

    async def _send(self, body: bytes, patience: CallTimeouts | None, on_delta: OnDelta | None) -> LLMResponse:
        """One request and its answer; with patience each wait for bytes has its limit."""
        wait: Wait[Any] = _await_unlimited if patience is None else patience.wait_next
        with self._faults():
            response: aiohttp.ClientResponse = await wait(self._post(body))
        try:
            if response.status != 200:
                raise await self._refusal(response, wait)
            if _is_stream(response, asked=on_delta is not None):
                return await self._stream(response, patience, on_delta)
            with self._faults():
                answer = parse_completion(await wait(_read_body(response, ANSWER_LIMIT_BYTES)), self.name)
            reply = parse_only_reply(answer, self.name)
            if on_delta is not None and reply.content:
                await on_delta(reply.content)
            return reply
        finally:
            response.close()  # a whole answer has already handed its connection back; half of one must not

    async def _post(self, body: bytes) -> aiohttp.ClientResponse:
        session = _CONNECTIONS.session()
        headers = self._headers | trace_header(self._settings)
        return await session.post(self._url, data=body, headers=headers, allow_redirects=False)

    async def _stream(
        self, response: aiohttp.ClientResponse, patience: CallTimeouts | None, on_delta: OnDelta | None
    ) -> LLMResponse:
        wait: Wait[bytes] = _await_unlimited if patience is None else patience.wait_next
        reply, events = ReplyAssembler(), EventReader()
        while True:
            with self._faults():
                piece = await wait(response.content.readany())
                found = events.feed(piece) if piece else events.end()
            for data in found:
                if data == _DONE:
                    await _drain(response)
                    return reply.whole(ended=True)
                heard, text = reply.add(parse_completion(data, self.name))
                if heard and patience is not None:
                    patience.on_token()
                if text and on_delta is not None:
                    await on_delta(text)  # outside of _faults: what the caller raises is the caller's
            if not piece:
                return reply.whole()

    async def _refusal(self, response: aiohttp.ClientResponse, wait: Wait[bytes]) -> ModelError:
        body = b""
        with contextlib.suppress(aiohttp.ClientError, OSError, ValueError):
            body = await wait(_read_body(response, ERROR_LIMIT_BYTES))
        kind = kind_of_refusal(response.status, body.decode("utf-8", "replace"))
        return model_error(self.name, kind, response.status, retry_after_s=retry_after_s(response.headers))

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Turns what goes wrong on the way into a ModelError without anything that was sent or
        received."""
        try:
            yield
        except ModelError:
            raise
        except (aiohttp.InvalidURL, msgspec.MsgspecError, TypeError, UnicodeError) as exc:
            raise model_error(self.name, "bad_request", type(exc).__name__) from None
        except (aiohttp.ClientError, OSError) as exc:
            raise model_error(self.name, "connection", type(exc).__name__) from None
        except ValueError:
            raise model_error(self.name, "bad_reply", "an answer over the size limit") from None


async def _await_unlimited(answer: Awaitable[T]) -> T:
    """Without a limit of its own."""
    return await answer


def _is_stream(response: aiohttp.ClientResponse, *, asked: bool) -> bool:
    """Whether the answer is a stream: some never stream, some always do, some do not say what they
    send."""
    kind = response.content_type
    return kind == "text/event-stream" or (asked and "json" not in kind and "html" not in kind)


async def _read_body(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """The whole body. Raises ValueError when it is over the limit."""
    pieces: list[bytes] = []
    size_bytes = 0
    while piece := await response.content.readany():
        size_bytes += len(piece)
        if size_bytes > limit_bytes:
            raise ValueError("the body is too big")
        pieces.append(piece)
    return b"".join(pieces)


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read what comes behind the last event, so that the connection can be used again."""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_END_S):
            while await response.content.readany():
                pass
