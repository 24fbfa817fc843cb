"""The routes of the API: authentication, rates, and bodies of requests."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from gateway.channels.web.api.agui.fold import RunFold
from gateway.channels.web.api.agui.request import AguiRequest, join_messages, parse_run
from gateway.channels.web.api.aisdk.fold import ChatFold
from gateway.channels.web.api.aisdk.request import parse_chat_request
from gateway.channels.web.api.completion import ApiServices, Completion
from gateway.channels.web.api.conversations.conversations import ConversationRouter, HandleBody
from gateway.channels.web.api.encoder import AnswerEncoder, CompletionEncoder, encode_model, encode_models
from gateway.channels.web.api.errors import ApiError, as_api_error, bad_parameter, draining_error, error_response
from gateway.channels.web.api.request import (
    MODEL,
    SESSION_HEADER,
    CompletionRequest,
    no_model,
    parse_request,
    session_name,
)
from gateway.channels.web.api.response import CompletionResponse
from gateway.channels.web.api.responses.fold import ResponseFold
from gateway.channels.web.api.responses.request import parse_response_request
from gateway.channels.web.api.responses.stored import StoredResponses
from gateway.channels.web.http.app import AGUI_PATH, MCP_PATH
from gateway.channels.web.http.auth import Login, origin_allowed
from gateway.channels.web.http.rates import PrincipalRates
from gateway.channels.web.http.responses import content_length, read_rest
from gateway.channels.web.mcp.call import McpCall
from shared.ids import API
from shared.log import logger
from shared.store.sessions.requests import KeyReused
from shared.tasks import event_within

KEY_HEADER: Final = "Idempotency-Key"
FINISH_S: Final = 5.0
LEAVE_S: Final = 3.0

SMALL_BYTES: Final = 256 * 1024
BIG_AT_ONCE: Final = 8
REST_S: Final = 2.0

EDITED: Final = (
    "this message was answered before with another text, and what was said stays in the conversation; "
    "send the new text as a new message"
)

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")

Handle = Callable[[Request, Login], Awaitable[Response]]
Parse = Callable[[bytes, str | None], CompletionRequest]
Locate = Callable[[Login, CompletionRequest], Awaitable[CompletionRequest]]
MakeMcpResponse = Callable[[bytes, McpCall, Callable[[], None]], Response]
MakeEncoder = Callable[[Completion], AnswerEncoder]

log = logger("api")


class ApiRouter:
    """The routes below /v1 and /aisdk. `presets` are the models in addition to the default one. `mcp` makes the
    responses of /mcp; without it there is no such route."""

    def __init__(self, services: ApiServices, presets: Iterable[str] = (), mcp: MakeMcpResponse | None = None) -> None:
        self._services = services
        self._mcp = mcp
        # Front ends preselect the first model of the list.
        self._models = {MODEL: ""} | {name: name for name in presets if name != MODEL}
        self._limits = limits = services.limits
        self._stored = StoredResponses(services)
        self._conversations = ConversationRouter(services)
        self._big = asyncio.Semaphore(BIG_AT_ONCE)  # bodies that are not known to be small
        self._open = Counter[str]()
        self._rates = PrincipalRates(burst=limits.burst, per_s=limits.per_s, clock=services.clock)
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def requests(self) -> int:
        """Number of requests that are open."""
        return self._open.total()

    def routes(self) -> list[BaseRoute]:
        """Return all routes."""
        stored = self._stored
        return [
            Route("/v1/chat/completions", self._guarded(self._complete), methods=["POST"]),
            Route("/v1/responses", self._guarded(self._respond), methods=["POST"]),
            WebSocketRoute("/v1/responses", _refuse_socket),
            Route("/v1/responses/{id}", self._guarded(self._rated(self._show)), methods=["GET"]),
            Route("/v1/responses/{id}", self._guarded(self._rated(stored.delete)), methods=["DELETE"]),
            Route("/v1/responses/{id}/cancel", self._guarded(self._rated(stored.cancel)), methods=["POST"]),
            Route("/v1/responses/{id}/input_items", self._guarded(self._rated(stored.list_input)), methods=["GET"]),
            *self._conversations.routes(lambda handle: self._guarded(self._rated(handle)), self._with_body),
            Route("/v1/models", self._guarded(self._models_of), methods=["GET"]),
            Route("/v1/models/{model:path}", self._guarded(self._models_of), methods=["GET"]),
            *([Route(AGUI_PATH, self._guarded(self._run), methods=["POST"])] if self._services.api.agui else []),
            *([Route(MCP_PATH, self._guarded(partial(self._call, self._mcp)), methods=["POST"])] if self._mcp else []),
            *(self._chat_routes() if self._services.api.aisdk else []),
        ]

    def _chat_routes(self) -> list[BaseRoute]:
        return [
            Route("/aisdk/chat", self._guarded(self._chat), methods=["POST"]),
            Route("/aisdk/chat/{id}/stream", self._guarded(self._rated(self._resume_chat)), methods=["GET"]),
            Route("/aisdk/chat/{id}/stop", self._guarded(self._rated(self._stop_chat)), methods=["POST"]),
        ]

    def _guarded(self, handle: Handle) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            login = None
            try:
                login = self._login(request)
                return await handle(request, login)
            except Exception as exc:
                error = as_api_error(exc)
                if error is None:
                    raise
                if login is not None:  # wrong tokens are counted, see LoginBrake
                    log.info("request refused", status=error.status, code=error.code)
                return error_response(error, request.url.path)

        return guarded

    def _login(self, request: Request) -> Login:
        if not origin_allowed(request.headers, self._services.allowed_origins):
            message = "pages of this origin may not ask here; web.allowed_origins names those that may"
            raise ApiError(403, message, code="origin_not_allowed")
        login = self._services.principals.bearer(request)
        if login is None:
            raise ApiError(401, "a valid token is needed: Authorization: Bearer …", code="invalid_api_key")
        return login

    async def _models_of(self, request: Request, login: Login) -> Response:
        model = request.path_params.get("model")
        if model is not None and model not in self._models:
            raise no_model(model)
        body = encode_models(self._models) if model is None else encode_model(model)
        return Response(body, 200, {"Cache-Control": "no-store"}, "application/json")

    async def _complete(self, request: Request, login: Login) -> Response:
        parse = partial(parse_request, models=self._models, api=self._services.api)
        return await self._answer(request, login, parse, None, CompletionEncoder.of)

    async def _respond(self, request: Request, login: Login) -> Response:
        parse = partial(parse_response_request, models=self._models, api=self._services.api)
        return await self._answer(request, login, parse, self._stored.locate, ResponseFold.of)

    async def _run(self, request: Request, login: Login) -> Response:
        return await self._answer(request, login, parse_run, self._find_new, RunFold.of)

    async def _find_new(self, login: Login, asked: CompletionRequest) -> AguiRequest:
        """Return a run with all messages that are new: those that its session does not know."""
        assert isinstance(asked, AguiRequest)
        chat = f"{login.principal}/{asked.thread}"
        seen = self._services.seen
        return join_messages(asked, [await seen.knows_id(API, chat, one.ticket) for one in asked.earlier])

    async def _answer(
        self, request: Request, login: Login, parse: Parse, locate: Locate | None, encoder: MakeEncoder
    ) -> Response:
        self._check_rate(login)
        key = _idempotency_key(request)
        body = await self._read_body(request)
        header = request.headers.get(SESSION_HEADER)
        asked = parse(body, header) if len(body) <= SMALL_BYTES else await asyncio.to_thread(parse, body, header)
        if locate is not None:
            asked = await locate(login, asked)
        completion = Completion(self._services, login, asked, asked.key or key)
        begin = partial(completion.begin, request.headers.get("traceparent"))
        return await self._serve(login, completion, begin, encoder)

    async def _chat(self, request: Request, login: Login) -> Response:
        parse = partial(parse_chat_request, models=self._models, api=self._services.api)
        try:
            return await self._answer(request, login, parse, None, ChatFold.of)
        except KeyReused:
            raise ApiError(409, EDITED, code="message_edited") from None

    async def _resume_chat(self, request: Request, login: Login) -> Response:
        if (found := await self._stored.find_running(login, _chat_name(request))) is None:
            return Response(status_code=204, headers={"Cache-Control": "no-store"})
        completion = Completion(self._services, login, found.request(), None)
        return await self._serve(login, completion, partial(completion.resume, found.response, None), ChatFold.of)

    async def _stop_chat(self, request: Request, login: Login) -> Response:
        await self._stored.stop_running(login, _chat_name(request))
        return Response(status_code=204)

    async def _call(self, respond: MakeMcpResponse, request: Request, login: Login) -> Response:
        self._check_rate(login)
        body = await self._read_body(request)
        call = McpCall(self._services, login, request.headers.get("traceparent"))
        self._open_request(login.principal)
        return respond(body, call, partial(self._close_request, login.principal))

    async def _show(self, request: Request, login: Login) -> Response:
        if (found := await self._stored.find_stream(request, login)) is None:
            return await self._stored.show(request, login)
        completion = Completion(self._services, login, found.request(), None)
        resume = partial(completion.resume, found.response, found.answer)
        return await self._serve(login, completion, resume, partial(ResponseFold.of, after=found.after))

    async def _serve(
        self, login: Login, completion: Completion, begin: Callable[[], Awaitable[None]], encoder: MakeEncoder
    ) -> Response:
        self._open_request(login.principal)
        try:
            await begin()
        except BaseException:
            try:
                await completion.close()
            finally:
                self._close_request(login.principal)
            raise
        ended = partial(self._close_request, login.principal)
        limits = self._limits
        return CompletionResponse(completion, encoder(completion), limits.alive_s, self._services.clock, ended)

    def _with_body(self, handle: HandleBody) -> Callable[[Request], Awaitable[Response]]:
        async def with_body(request: Request, login: Login) -> Response:
            key = _idempotency_key(request)
            return await handle(request, login, await self._read_body(request), key)

        return self._guarded(self._rated(with_body))

    def _rated(self, handle: Handle) -> Handle:
        async def rated(request: Request, login: Login) -> Response:
            self._check_rate(login)
            return await handle(request, login)

        return rated

    def _check_rate(self, login: Login) -> None:
        if (wait_s := self._rates.try_acquire(login.principal)) > 0:
            raise ApiError(429, "too many requests; please slow down", code="rate_limited", retry_after_s=wait_s)

    async def _read_body(self, request: Request) -> bytes:
        """Read a body. Raises ApiError: 413, 415, 408, and 400 for a client that disconnected."""
        headers = request.headers
        limits = self._limits
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = headers.get("content-encoding", "identity").lower()
        if kind != "application/json" or encoding != "identity":
            needed = "send JSON, with Content-Type: application/json and no Content-Encoding"
            raise ApiError(415, needed)
        size = content_length(request)
        size = limits.body_bytes if size is None else size
        try:
            async with asyncio.timeout(limits.body_s):
                if size <= SMALL_BYTES:
                    return await request.body()
                async with self._big:
                    return await self._read_big(request, size)
        except TimeoutError:
            raise ApiError(408, f"the body did not come within {limits.body_s:g} s") from None
        except ClientDisconnect:
            raise ApiError(400, "the body did not come whole") from None

    async def _read_big(self, request: Request, size: int) -> bytes:
        data = bytearray()
        pieces = request.stream()
        limit_bytes = self._limits.body_bytes
        if size <= limit_bytes:
            async for piece in pieces:
                data += piece
                if len(data) > limit_bytes:
                    break
            else:
                return bytes(data)
        await read_rest(pieces, limit_bytes, REST_S)
        raise ApiError(413, f"the body has more than {limit_bytes:,} bytes", code="too_big")

    def _open_request(self, principal: str) -> None:
        if self._draining:
            raise draining_error()
        limits = self._limits
        if self._open[principal] >= limits.at_once_each or self.requests >= limits.at_once:
            message = f"too many requests are open; one token may have {limits.at_once_each}"
            raise ApiError(429, message, code="too_many_open", retry_after_s=1)
        self._open[principal] += 1
        self._empty.clear()

    async def close(self) -> None:
        """Refuse new requests. Open ones get FINISH_S seconds, then go to another gateway."""
        self._draining = True
        await event_within(self._empty, FINISH_S)
        self._services.closing.set()
        await self._services.follower.recheck()
        await event_within(self._empty, LEAVE_S)

    def _close_request(self, principal: str) -> None:
        self._open[principal] -= 1
        if not self._open[principal]:
            del self._open[principal]
        if not self._open:
            self._empty.set()


def _idempotency_key(request: Request) -> str | None:
    sent = request.headers.getlist(KEY_HEADER)
    if not sent:
        return None
    if len(sent) > 1 or not _KEY.fullmatch(sent[0]):
        message = f"{KEY_HEADER} is one word of 1 to 255 letters, digits and signs of ASCII, such as a UUID"
        raise bad_parameter(KEY_HEADER, message, code="bad_idempotency_key")
    return sent[0]


def _chat_name(request: Request) -> str:
    """Return the name of the session that a chat's address has."""
    return session_name(request.path_params["id"], "id") or ""


async def _refuse_socket(websocket: WebSocket) -> None:
    message = "there is no socket here: send 'stream': true with POST /v1/responses"
    await websocket.send_denial_response(error_response(ApiError(400, message, code="unsupported_transport")))
