"""A Model for endpoints of OpenAI's chat protocol, at a fiftieth of LiteLLM's CPU time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import aiohttp
import msgspec

from shared.errors import ModelError
from shared.network.http_client import open_session
from shared.settings import ModelSettings
from shared.version import VERSION
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta, ToolSpec
from worker.llm.clients.faults import kind_of_refusal, model_error, retry_after_s
from worker.llm.clients.omissions import OMISSIONS, Omissions
from worker.llm.clients.prefixes import Prefixes
from worker.llm.clients.reasons import read_reason
from worker.llm.clients.replies import is_framed, read_event_stream, read_whole_answer
from worker.llm.clients.usage import counted
from worker.llm.clients.wire import RequestWriter
from worker.llm.policies.timeouts import CallTimeouts
from worker.llm.policies.traced import trace_header
from worker.llm.provider_spec import Prefix
from worker.llm.routes import Route, choose

IDLE_S: Final = 30.0  # seconds for which an unused connection is kept


class Connections:
    """HTTP connections, opened on demand and reused."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=None)  # CallTimeouts limits
            self._session = open_session(limit=0, keepalive_s=IDLE_S, timeout=timeout)
            self._loop = loop
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


CONNECTIONS: Final = Connections()  # one pool a process, whichever models use it


async def read_body(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """Return the whole body. Raises ValueError if it is over the limit."""
    pieces: list[bytes] = []
    size_bytes = 0
    while piece := await response.content.readany():
        size_bytes += len(piece)
        if size_bytes > limit_bytes:
            raise ValueError("the body is too big")
        pieces.append(piece)
    return b"".join(pieces)


Wait = Callable[[Awaitable[Any]], Awaitable[Any]]

ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024
ERROR_LIMIT_BYTES: Final = 64 * 1024


class DirectModel:
    """One model of one endpoint. Makes one call; RetryingModel repeats it. Checks certificates;
    goes through the proxy of `[network]`, follows no redirect and keeps no cookies."""

    def __init__(self, settings: ModelSettings, *, route: Route | None = None) -> None:
        route = route or choose(msgspec.structs.replace(settings, client="direct"))
        self.name = settings.name
        self._settings = settings
        self._base = route.api_base
        self._prefixes = Prefixes(settings.name, route.prefix)
        self._writer = RequestWriter(route, settings.name)
        self._omissions = Omissions(settings.name, settings.omit.get(settings.name, ()))
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",  # a packed stream would arrive in lumps
            "User-Agent": f"shoal/{VERSION}",
            **{name: value.reveal() for name, value in settings.headers.items()},
        }
        if settings.api_key is not None:
            self._headers["Authorization"] = f"Bearer {settings.api_key.reveal()}"

    async def preload(self) -> None:
        """Do nothing: the first call has no slow part."""

    async def close(self) -> None:
        """Close the connections of this process to all such endpoints."""
        await CONNECTIONS.close()

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        with CallTimeouts(self._settings) as timeouts:
            # Nothing of a whole answer is shown on the way: one limit for all of it is enough.
            wait = timeouts.wait_all if on_delta is None else timeouts.wait_next
            prefix = self._prefixes.of(request)
            try:
                response = await self._accepted(request, wait, prefix, stream=on_delta is not None)
            except ModelError as exc:
                if not self._prefixes.refused(prefix, exc):
                    raise
                response = await self._accepted(request, wait, None, stream=on_delta is not None)
            try:
                reply = await self._read_answer(response, timeouts, wait, on_delta, request.tools)
                return counted(reply, request, self.name)
            finally:
                # A complete answer has already returned its connection to the pool. Half an answer
                # must not: the rest of it would be read as the answer to the next request.
                response.close()

    async def _accepted(
        self, request: ModelRequest, wait: Wait, prefix: Prefix | None, *, stream: bool
    ) -> aiohttp.ClientResponse:
        """Return the response to a request, asked again without a part that the model does not take.
        Raises ModelError for any other refusal."""
        base = self._base if prefix is None or prefix.api_base is None else prefix.api_base
        with self._faults():
            body = self._writer.body(request, stream=stream, prefix=prefix)
        for _ in range(1 + len(OMISSIONS)):
            sent = self._omissions.applied(body)
            with self._faults():
                response: aiohttp.ClientResponse = await wait(self._post(base, self._writer.encode(sent)))
            if response.status == 200:
                return response
            try:
                text = await self._refusal_text(response, wait)
            finally:
                response.close()
            if not self._omissions.learn(response.status, text, sent):
                break
        raise self._refusal(response, text)

    async def _post(self, base: str | None, body: bytes) -> aiohttp.ClientResponse:
        session = CONNECTIONS.session()
        headers = self._headers | trace_header(self._settings)
        return await session.post(f"{base}/chat/completions", data=body, headers=headers, allow_redirects=False)

    async def _read_answer(
        self,
        response: aiohttp.ClientResponse,
        timeouts: CallTimeouts,
        wait: Wait,
        on_delta: OnDelta | None,
        tools: Sequence[ToolSpec],
    ) -> LLMResponse:
        async def next_piece() -> bytes:
            with self._faults():  # not around `on_delta`: its exceptions are the caller's own
                piece: bytes = await wait(response.content.readany())
                return piece

        if _is_stream(response, asked=on_delta is not None):
            framed = is_framed(response.headers)
            return await read_event_stream(next_piece, self.name, timeouts, on_delta, tools, framed=framed)
        with self._faults():
            data = await wait(read_body(response, ANSWER_LIMIT_BYTES))
        return await read_whole_answer(data, self.name, on_delta, tools)

    async def _refusal_text(self, response: aiohttp.ClientResponse, wait: Wait) -> str:
        body = b""
        with contextlib.suppress(aiohttp.ClientError, OSError, ValueError):
            body = await wait(read_body(response, ERROR_LIMIT_BYTES))
        return body.decode("utf-8", "replace")

    def _refusal(self, response: aiohttp.ClientResponse, text: str) -> ModelError:
        status = response.status
        wait_s = retry_after_s(response.headers)
        reason = read_reason(text)
        return model_error(self.name, kind_of_refusal(status, text), status, retry_after_s=wait_s, reason=reason)

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn every fault of a call into a ModelError that quotes nothing sent or received."""
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


def _is_stream(response: aiohttp.ClientResponse, *, asked: bool) -> bool:
    """Return whether the answer is a stream. Some never do, some always, some give no type."""
    kind = response.content_type
    return kind == "text/event-stream" or (asked and "json" not in kind and "html" not in kind)
