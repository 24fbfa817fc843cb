"""The API's addresses: who may ask, how much, and what."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.channels.web.api.body import SMALL_BYTES, BodyReader
from gateway.channels.web.api.completion import ApiServices, Completion
from gateway.channels.web.api.errors import ApiError, as_api_error, bad_parameter, draining_error, error_response
from gateway.channels.web.api.request import MODEL, SESSION_HEADER, CompletionRequest, no_model, parse_request
from gateway.channels.web.api.response import CompletionResponse
from gateway.channels.web.api.wire import ModelBody, ModelList
from gateway.channels.web.http.auth import Login, origin_allowed
from gateway.channels.web.socket.rate import TokenBucket
from shared.log import logger

KEY_HEADER: Final = "Idempotency-Key"
KNOWN_PRINCIPALS: Final = 1000
FINISH_S: Final = 5.0
LEAVE_S: Final = 3.0

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")

Handle = Callable[[Request, Login], Awaitable[Response]]

log = logger("api")


class ApiRouter:
    """Answers below /v1. `presets` are the models beside the usual one."""

    def __init__(
        self,
        services: ApiServices,
        presets: Iterable[str] = (),
        *,
        allowed_origins: tuple[str, ...] = (),
    ) -> None:
        self._services = services
        self._models = {**{name: name for name in presets}, MODEL: ""}
        self._allowed_origins = allowed_origins
        self._limits = limits = services.limits
        self._bodies = BodyReader(limit_bytes=limits.body_bytes, within_s=limits.body_s)
        self._open = Counter[str]()
        self._rates: dict[str, TokenBucket] = {}
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def requests(self) -> int:
        """How many are answered now."""
        return self._open.total()

    def routes(self) -> list[Route]:
        """Everything there is."""
        return [
            Route("/v1/chat/completions", self._guarded(self._complete), methods=["POST"]),
            Route("/v1/models", self._guarded(self._list_models), methods=["GET"]),
            Route("/v1/models/{model:path}", self._guarded(self._get_model), methods=["GET"]),
        ]

    def _guarded(self, handle: Handle) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                return await handle(request, self._login(request))
            except Exception as exc:
                error = as_api_error(exc)
                if error is None:
                    raise
                log.info("request refused", status=error.status, code=error.code)
                return error_response(error)

        return guarded

    def _login(self, request: Request) -> Login:
        headers = request.headers
        if not origin_allowed(headers.getlist("origin"), headers.get("host", ""), self._allowed_origins):
            message = "pages of this origin may not ask here; web.allowed_origins names those that may"
            raise ApiError(403, message, code="origin_not_allowed")
        login = self._services.principals.bearer(headers.get("authorization"))
        if login is None:
            raise ApiError(401, "a valid token is needed: Authorization: Bearer …", code="invalid_api_key")
        return login

    async def _list_models(self, request: Request, login: Login) -> Response:
        return _json_response(ModelList(data=tuple(ModelBody(id=name) for name in self._models)))

    async def _get_model(self, request: Request, login: Login) -> Response:
        model = request.path_params["model"]
        if model not in self._models:
            raise no_model(model)
        return _json_response(ModelBody(id=model))

    async def _complete(self, request: Request, login: Login) -> Response:
        self._check_rate(login.principal)
        key = _idempotency_key(request)
        ask = await self._read_request(request)
        self._open_request(login.principal)
        exchange = Completion(self._services, login, ask, key)
        try:
            await exchange.begin(request.headers.get("traceparent"))
        except BaseException:
            await exchange.close()
            self._close_request(login.principal)
            raise
        services = self._services
        return CompletionResponse(
            exchange,
            alive_s=self._limits.alive_s,
            clock=services.clock,
            ended=lambda: self._close_request(login.principal),
        )

    async def _read_request(self, request: Request) -> CompletionRequest:
        body, header = await self._bodies.read_body(request), request.headers.get(SESSION_HEADER)
        if len(body) <= SMALL_BYTES:
            return parse_request(body, header, self._models)
        return await asyncio.to_thread(parse_request, body, header, self._models)

    def _check_rate(self, principal: str) -> None:
        limits, now = self._limits, self._services.clock.monotonic()
        if len(self._rates) >= KNOWN_PRINCIPALS:
            self._rates.clear()
        bucket = self._rates.setdefault(principal, TokenBucket(burst=limits.burst, per_s=limits.per_s, now=now))
        if (wait_s := bucket.try_acquire(now)) > 0:
            raise ApiError(429, "too many requests; please slow down", code="rate_limited", retry_after_s=wait_s)

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
        """Take nothing more. What is under way has a moment; then it is told to ask another
        gateway."""
        self._draining = True
        await self._until_empty(FINISH_S)
        self._services.closing.set()
        self._services.watch.wake_all()
        await self._until_empty(LEAVE_S)

    async def _until_empty(self, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()

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


def _json_response(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), 200, {"Cache-Control": "no-store"}, "application/json")
