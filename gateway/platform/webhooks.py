"""The webhooks of all channels of a gateway: one HTTP server, `/hooks/<channel>`.

A call is answered with 200 only after its message is durable. Until then it is answered with 503
and Retry-After, so that the platform calls again: Redis is unavailable, the fleet is overloaded,
the gateway is closing, or the channel is not open.

Places are for calls that a platform has found to be signed; a body that does not come whole at once
has a pool and a time of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from gateway.platform.protocol import HookAnswer, HookRequest, Inlet, InletVerdict, PlatformMessage
from gateway.platform.webhook_bodies import BodyLate, BodyReader
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.messages.inbound import InboundMessage
from shared.process.listening import Server, address_of, listener
from shared.settings.sections.gateways import HooksSettings
from shared.tasks import completed

PREFIX: Final = "/hooks/"
METHODS: Final = ("GET", "POST")
AGAIN_S: Final = 1  # default Retry-After of a 503, in seconds
HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

WebhookHandler = Callable[[HookRequest], Awaitable[HookAnswer]]

log = logger("hooks")


class WebhookServer:
    """The HTTP server and each channel's handler. It listens while `run` runs, if it has any."""

    def __init__(self, settings: HooksSettings, draining: asyncio.Event) -> None:
        self._settings = settings
        self._draining = draining
        self._handlers: dict[str, WebhookHandler | None] = {}
        self._socket: socket.socket | None = None
        self._bodies = BodyReader(settings)
        self.under_way = 0  # calls whose messages are being made durable

    @property
    def address(self) -> str:
        """`host:port` while it listens; else ''."""
        return address_of(self._socket) if self._socket else ""

    def expect(self, channel: str) -> None:
        """Reserve the path of a channel; until `set_handler` its calls are answered with 503."""
        self._handlers.setdefault(channel, None)

    def set_handler(self, channel: str, handler: WebhookHandler | None) -> None:
        """Set the handler of a channel's calls; None answers them with 503."""
        self._handlers[channel] = handler

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Hold one of the places of calls under way. Raises Refused when all are in use."""
        if self.under_way >= self._settings.calls:
            raise Refused("overloaded", "too many calls are under way", AGAIN_S)
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    async def run(self) -> None:
        """Listen until the gateway drains. Raises SettingsError when the address is taken."""
        if not self._handlers:
            return
        self._socket = listener(self._settings.host, self._settings.port, section="hooks")
        server = Server(self._serve, name="hooks", interface="asgi3", ws="none")
        serving = asyncio.create_task(server.serve(sockets=[self._socket]), name="hooks")
        log.info("hooks listening", address=self.address, channels=sorted(self._handlers))
        try:
            await self._draining.wait()
        finally:
            server.stop()
            try:
                await completed(serving)
            finally:
                self._socket.close()
                self._socket = None

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return  # no answer reached the platform, so it calls again
        response.headers.update(HEADERS)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = request.url.path
        name = path.removeprefix(PREFIX).partition("/")[0]
        if not path.startswith(PREFIX) or name not in self._handlers:
            return _text_response(404, "there is no such webhook")
        if request.method not in METHODS:
            return _text_response(405, "only GET and POST", {"Allow": ", ".join(METHODS)})
        handler = self._handlers[name]
        if handler is None or self._draining.is_set():
            return _retry_later(AGAIN_S)
        try:
            body = await self._bodies.read_body(request)
            if body is None:
                return _text_response(413, f"more than {self._settings.body_kb} kB")
            headers = {name.lower(): value for name, value in request.headers.items()}
            asked = HookRequest(
                method=request.method, path=path, query=dict(request.query_params), headers=headers, body=body
            )
            async with asyncio.timeout(self._settings.answer_s):
                answer = await handler(asked)
            if answer.status < HTTPStatus.BAD_REQUEST and (place := request.scope["state"].get("place")):
                place.become_known()  # its signature was right
            return Response(answer.body, answer.status, media_type=answer.media_type)
        except BodyLate:
            return _text_response(408, "the body did not come in time", {"Connection": "close"})
        except (RedisAway, TimeoutError) as exc:
            log.warning("webhook put off", channel=name, error=type(exc).__name__)
            return _retry_later(AGAIN_S)
        except Refused as refused:
            return _retry_later(refused.retry_after_s)
        except ClientDisconnect:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _text_response(400, "this cannot be read")
        except Exception:
            log.exception("webhook failed", channel=name)
            return _text_response(500, "something went wrong")


class PlacedInlet:
    """An inlet that holds a place of the webhooks while it works. A platform calls it when it has
    looked at a signature, so that calls of strangers never hold one."""

    def __init__(self, inlet: Inlet, hooks: WebhookServer) -> None:
        self._inlet = inlet
        self._hooks = hooks

    async def take(self, event: PlatformMessage) -> InletVerdict:
        with self._hooks.place():
            return await self._inlet.take(event)

    async def on_delete(self, deleted: InboundMessage) -> None:
        with self._hooks.place():
            await self._inlet.on_delete(deleted)


def _text_response(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{text}\n", status, headers)


def _retry_later(after_s: float) -> Response:
    return _text_response(503, "please send it again", {"Retry-After": str(max(1, round(after_s)))})
