"""The webhooks of all channels of a gateway: one HTTP server, `/hooks/<channel>`.

A call is answered with 200 only after its message is durable. Until then it is answered with 503
and Retry-After, so that the platform calls again: Redis is unavailable, the fleet is overloaded,
the gateway is closing, or the channel is not open.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from gateway.platform.protocol import HookAnswer, HookRequest
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.process.listening import Server, address_of, listener
from shared.settings.sections.gateways import HooksSettings

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
        self.under_way = 0  # calls that are being answered

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

    async def run(self) -> None:
        """Listen until the gateway drains. Raises SettingsError when the address is taken."""
        if not self._handlers:
            return
        self._socket = listener(self._settings.host, self._settings.port, section="hooks")
        server = Server(self._serve, interface="asgi3", http="httptools", ws="none")
        serving = asyncio.create_task(server.serve(sockets=[self._socket]), name="hooks")
        log.info("hooks listening", address=self.address, channels=sorted(self._handlers))
        try:
            await self._draining.wait()
        finally:
            server.should_exit = True
            await serving
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
        if handler is None or self._draining.is_set() or self.under_way >= self._settings.calls:
            return _retry_later(AGAIN_S)
        self.under_way += 1
        try:
            async with asyncio.timeout(self._settings.answer_s):
                body = await self._body(request)
                if body is None:
                    return _text_response(413, f"more than {self._settings.body_kb} kB")
                answer = await handler(
                    HookRequest(
                        method=request.method,
                        path=path,
                        query=dict(request.query_params),
                        headers={name.lower(): value for name, value in request.headers.items()},
                        body=body,
                    )
                )
                return Response(answer.body, answer.status, media_type=answer.media_type)
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
        finally:
            self.under_way -= 1

    async def _body(self, request: Request) -> bytes | None:
        """Return the body; None if it is over the limit."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._settings.body_kb * 1024:
                return None
        return bytes(body)


def _text_response(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{text}\n", status, headers)


def _retry_later(after_s: float) -> Response:
    return _text_response(503, "please tell it again", {"Retry-After": str(max(1, round(after_s)))})
