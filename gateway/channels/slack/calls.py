"""Calls of Slack's Web API by slack-sdk: one try each, every error as one that Shoal knows."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout, ConnectionTimeoutError
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from gateway.channels.slack.refusals import refusal
from gateway.platform.protocol import MaybeSent, NotAccepted, NotDelivered, Throttled

FILES: Final = "https://files.slack.com/"
CONNECT_S: Final = 5.0


class Calls:
    """The way to Slack of one bot. `sdk` has its methods; `http` is for what is no method. Made in
    a running loop."""

    def __init__(self, token: str, base: str, *, timeout_s: float) -> None:
        self.token, self.timeout_s = token, timeout_s
        self.connect_s = min(CONNECT_S, timeout_s)
        self.http = ClientSession(timeout=ClientTimeout(total=timeout_s, sock_connect=self.connect_s))
        self.sdk = AsyncWebClient(token, base, session=self.http, retry_handlers=[], logger=_silent())
        self.origin = "{0.scheme}://{0.netloc}/".format(urlsplit(base))

    @property
    def proxy(self) -> str | None:
        """The proxy that the SDK goes through."""
        return self.sdk.proxy

    async def close(self) -> None:
        await self.http.close()

    def may_have_token(self, url: str) -> bool:
        """Whether this is Slack's own. The host ends at the slash, so there is nothing to be
        misread."""
        return url.startswith((FILES, self.origin))

    async def shown(self, call: Awaitable[Any]) -> Any:
        """A call that people may see something of. Raises NotDelivered, ChannelBroken."""
        try:
            told = await call
        except SlackApiError as exc:
            raise _refusal(exc) from exc
        except (ClientConnectorError, ConnectionTimeoutError) as exc:
            raise NotAccepted("no connection") from exc
        except (ClientError, TimeoutError) as exc:
            raise MaybeSent("no answer") from exc
        except Exception as exc:  # the SDK breaks over answers that are not Slack's
            raise MaybeSent(f"{type(exc).__name__} over an answer") from exc
        if not isinstance(told.data, dict):
            raise MaybeSent("an answer that is not Slack's")
        return told

    async def unseen(self, call: Awaitable[Any]) -> Any:
        """A call that nobody sees anything of, whatever became of it."""
        try:
            return await self.shown(call)
        except MaybeSent as exc:
            raise NotAccepted(exc.reason) from exc

    async def sure(self, call: Awaitable[Any]) -> Any:
        """A call about the bot itself: it works, or is made again, or a person must mend
        something."""
        try:
            return await self.shown(call)
        except Throttled:
            raise
        except NotDelivered as exc:
            raise NotAccepted(exc.reason) from exc


def _silent() -> logging.Logger:
    """What the SDK says holds the texts of messages."""
    quiet = logging.getLogger("slack_sdk")
    quiet.setLevel(logging.CRITICAL)
    return quiet


def _refusal(exc: SlackApiError) -> Exception:
    """The SDK has its own answer there or that of aiohttp, with a body of any form."""
    answer = exc.response
    data = getattr(answer, "data", None)
    body = data if isinstance(data, dict) else {}
    return refusal(
        body.get("error"),
        status=int(getattr(answer, "status_code", 0) or getattr(answer, "status", 0)),
        retry_after=answer.headers.get("Retry-After"),
        needed=body.get("needed"),
    )
