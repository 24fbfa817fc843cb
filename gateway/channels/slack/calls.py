"""Calls of Slack's Web API through slack-sdk: one try each, every failure mapped to an error of the
platform protocol."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout, ConnectionTimeoutError
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from gateway.channels.slack.refusals import map_error
from gateway.platform.protocol import MaybeSent, NotAccepted, NotDelivered, Throttled

FILES: Final = "https://files.slack.com/"
CONNECT_S: Final = 5.0


class SlackWebApi:
    """The connection of one bot. `sdk` has the API methods; `http` is for plain requests. Must be
    created inside a running loop."""

    def __init__(self, token: str, base: str, *, timeout_s: float) -> None:
        self.token, self.timeout_s = token, timeout_s
        self.connect_s = min(CONNECT_S, timeout_s)
        self.http = ClientSession(timeout=ClientTimeout(total=timeout_s, sock_connect=self.connect_s))
        self.sdk = AsyncWebClient(token, base, session=self.http, retry_handlers=[], logger=_silent_logger())
        self.origin = "{0.scheme}://{0.netloc}/".format(urlsplit(base))

    @property
    def proxy(self) -> str | None:
        """The proxy that the SDK uses."""
        return self.sdk.proxy

    async def close(self) -> None:
        await self.http.close()

    def may_have_token(self, url: str) -> bool:
        """Return whether a URL is Slack's own, so the token may be sent there. The prefixes end
        with a slash, so a lookalike host cannot match."""
        return url.startswith((FILES, self.origin))

    async def call_visible(self, call: Awaitable[Any]) -> Any:
        """Run a call with an effect that people may see. Raises NotDelivered, ChannelBroken."""
        try:
            reply = await call
        except SlackApiError as exc:
            raise _map_sdk_error(exc) from exc
        except (ClientConnectorError, ConnectionTimeoutError) as exc:
            raise NotAccepted("no connection") from exc
        except (ClientError, TimeoutError) as exc:
            raise MaybeSent("no answer") from exc
        except Exception as exc:  # the SDK breaks over answers that are not Slack's
            raise MaybeSent(f"{type(exc).__name__} over an answer") from exc
        if not isinstance(reply.data, dict):
            raise MaybeSent("an answer that is not Slack's")
        return reply

    async def call_invisible(self, call: Awaitable[Any]) -> Any:
        """Run a call without visible effects: an unclear outcome is then as good as a failure."""
        try:
            return await self.call_visible(call)
        except MaybeSent as exc:
            raise NotAccepted(exc.reason) from exc

    async def call_setup(self, call: Awaitable[Any]) -> Any:
        """Run a call about the bot itself: it succeeds, is retried, or raises ChannelBroken."""
        try:
            return await self.call_visible(call)
        except Throttled:
            raise
        except NotDelivered as exc:
            raise NotAccepted(exc.reason) from exc


def _silent_logger() -> logging.Logger:
    """Return a muted logger for the SDK, whose log lines contain message texts."""
    quiet = logging.getLogger("slack_sdk")
    quiet.setLevel(logging.CRITICAL)
    return quiet


def _map_sdk_error(exc: SlackApiError) -> Exception:
    """Map an SDK error. Its response is either the SDK's or aiohttp's, with a body of any form."""
    answer = exc.response
    data = getattr(answer, "data", None)
    body = data if isinstance(data, dict) else {}
    return map_error(
        body.get("error"),
        status=int(getattr(answer, "status_code", 0) or getattr(answer, "status", 0)),
        retry_after=answer.headers.get("Retry-After"),
        needed=body.get("needed"),
    )
