"""Calls of Slack's Web API through slack-sdk: one try each, every failure mapped to an error of the
platform protocol (the list of each method is in docs.slack.dev/reference/methods)."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientTimeout
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from gateway.channels.http import NOT_CONNECTED
from gateway.platform.protocol import (
    ChannelBroken,
    ChatClosed,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    PostRefused,
    Throttled,
)
from shared.network.http_client import open_session
from shared.network.outgoing import Outgoing

FILES: Final = "https://files.slack.com/"
CONNECT_S: Final = 5.0
AGAIN_S: Final = 5.0  # wait used when Slack does not say how long
_THROTTLED: Final = frozenset({"ratelimited", "rate_limited", "rate_limit_exceeded"})
_BROKEN: Final = frozenset(
    """invalid_auth not_authed account_inactive token_revoked token_expired not_allowed_token_type
    no_permission access_denied org_login_required ekm_access_denied team_access_not_granted
    enterprise_is_restricted two_factor_setup_required forbidden_team deprecated_endpoint
    method_deprecated""".split()
)
_CLOSED: Final = frozenset(
    """channel_not_found not_in_channel is_archived user_not_found user_disabled users_not_found
    cannot_dm_bot messages_tab_disabled restricted_action restricted_action_read_only_channel
    restricted_action_thread_only_channel restricted_action_non_threadable_channel
    restricted_action_thread_locked thread_not_found cannot_reply_to_message
    posting_to_channel_denied posting_to_general_channel_denied posting_to_external_channel_denied
    cannot_post_to_shared_channel team_not_found""".split()
)
_MARKUP: Final = frozenset("invalid_blocks invalid_blocks_format invalid_attachments msg_blocks_too_long".split())
_OUT_OF_ORDER: Final = frozenset("team_added_to_org accesslimited".split())
_HALF_DONE: Final = frozenset("internal_error fatal_error request_timeout service_unavailable".split())
"""For these, Slack documents that part of the request may have been done, or says nothing of it."""

_WORD: Final = re.compile(r"[a-z0-9_:,.-]{1,80}")


class ScopeMissing(ChannelBroken):
    """The app was not granted a scope that this call needs."""


class SlackWebApi:
    """The connection of one bot: `sdk` has the methods, `http` plain requests. Needs a running
    loop."""

    def __init__(
        self,
        token: str,
        base: str,
        *,
        timeout_s: float,
        outgoing: Outgoing | None = None,
    ) -> None:
        self.token = token
        self.timeout_s = timeout_s
        self.connect_s = min(CONNECT_S, timeout_s)
        limits = ClientTimeout(total=timeout_s, sock_connect=self.connect_s)
        self.http = open_session(outgoing, timeout=limits)
        quiet = logging.getLogger("slack_sdk")
        quiet.setLevel(logging.CRITICAL)  # its log lines contain message texts
        self.sdk = AsyncWebClient(token, base, session=self.http, retry_handlers=[], logger=quiet)
        self.sdk.proxy = None  # it reads one from the environment; the session has ours
        self.origin = "{0.scheme}://{0.netloc}/".format(urlsplit(base))

    def may_have_token(self, url: str) -> bool:
        """Return whether a URL is Slack's own; the slash at the end keeps lookalike hosts out."""
        return url.startswith((FILES, self.origin))

    async def call_visible(self, call: Awaitable[Any]) -> Any:
        """Run a call with an effect that people may see. Raises NotDelivered, ChannelBroken."""
        try:
            reply = await call
        except SlackApiError as exc:
            raise _map_sdk_error(exc) from exc
        except NOT_CONNECTED as exc:
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


def _map_sdk_error(exc: SlackApiError) -> Exception:
    """Map an SDK error. Its response is either the SDK's or aiohttp's, with a body of any form."""
    answer = exc.response
    data = getattr(answer, "data", None)
    body = data if isinstance(data, dict) else {}
    status = int(getattr(answer, "status_code", 0) or getattr(answer, "status", 0))
    retry_after = answer.headers.get("Retry-After")
    return map_error(body.get("error"), status=status, retry_after=retry_after, needed=body.get("needed"))


def map_error(error: object, *, status: int, retry_after: str | None = None, needed: object = None) -> Exception:
    """Return the error for a failed call: `error` and `needed` come from its body, if any."""
    word = error if isinstance(error, str) and _WORD.fullmatch(error) else ""
    if status == 429 or word in _THROTTLED:
        return Throttled(_retry_after_s(retry_after))
    if word == "missing_scope":
        scope = needed if isinstance(needed, str) and _WORD.fullmatch(needed) else "that this needs"
        return ScopeMissing(
            f"Slack did not give the bot the scope {scope}: add it under OAuth & Permissions, install the app again"
        )
    if word in _BROKEN:
        return ChannelBroken(
            f"Slack says {word}: write the token that OAuth & Permissions shows into channels.slack.token"
        )
    if word in _CLOSED:
        return ChatClosed(word)
    if word in _MARKUP:
        return MarkupRefused(word)
    if word in _OUT_OF_ORDER:
        return NotAccepted(word)
    if word in _HALF_DONE or status >= 500 or (not word and status < 400):
        return MaybeSent(word or f"status {status}")
    if not word:
        return NotAccepted(f"status {status} without a word of Slack's; is channels.slack.api right?")
    return PostRefused(word)


def _retry_after_s(retry_after: str | None) -> float:
    try:
        return min(3600.0, max(0.1, float(retry_after or "")))
    except ValueError:
        return AGAIN_S
