"""Endpoints of webhooks as a chat platform, each of them a chat: delivery does the rest. A post is one
webhook, signed anew with each try; its id and its bytes stay."""

from __future__ import annotations

import asyncio
import email.utils
import math
from collections.abc import AsyncIterator, Mapping
from typing import Final

import msgspec

from gateway.platform.protocol import (
    Abilities,
    ChatClosed,
    HookAnswer,
    HookRequest,
    Inlet,
    MaybeSent,
    NotAccepted,
    NotDelivered,
    Piece,
    Post,
    PostRefused,
    PostTarget,
    RemoteFile,
    RunMode,
    Throttled,
)
from gateway.webhooks.signatures import sign
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import SettingsError, ToolFailed
from shared.guards.addresses import WebPolicy, parse_target
from shared.guards.fetch import HostNotFound, LookUp, system_look_up
from shared.guards.post import NoAnswer, PostAnswer, post_once
from shared.metrics import WEBHOOKS
from shared.settings.sections.webhooks import HOOK, OutgoingWebhook, signing_key

TOTAL_S: Final = 20.0
GIVE_UP_S: Final = 3 * 86_400.0
LONGEST_WAIT_S: Final = 3600.0
REFUSALS: Final = 5
"""An answer that refuses, such as 404 or a redirect, becomes a dead letter when it came this often:
a program that is being replaced answers so, too. So does a name with a private address, which may be
a mistake of a name server."""

_OUTCOMES: Final[dict[type[NotDelivered], str]] = {
    Throttled: "throttled",
    PostRefused: "refused",
    ChatClosed: "closed",
    NotAccepted: "put_off",
    MaybeSent: "unclear",
}


class _EventId(msgspec.Struct, frozen=True):
    id: str


_read_id: Final = msgspec.json.Decoder(_EventId).decode


class Endpoints:
    """The endpoints by name. Raises SettingsError for a URL that may not be called."""

    name = HOOK
    run_mode: RunMode = "webhook"
    abilities = Abilities(run_modes=("webhook",), resend_guard="key", late_after_s=math.inf, give_up_after_s=GIVE_UP_S)

    def __init__(
        self, endpoints: Mapping[str, OutgoingWebhook], *, look_up: LookUp | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._endpoints = endpoints
        self._policies = {name: _policy_of(name, endpoint) for name, endpoint in endpoints.items()}
        self._look_up = look_up or system_look_up()
        self._clock = clock
        # Of each endpoint the webhook that is refused, and how often: they are sent one after the other.
        self._refusals: dict[str, tuple[str, int]] = {}

    async def send(self, post: Post) -> str:
        """Call an endpoint once, and return the id of the webhook. Raises NotDelivered."""
        outcome = "unclear"
        try:
            id = await self._send(post)
            outcome = "sent"
            return id
        except NotDelivered as exc:
            outcome = _OUTCOMES[type(exc)]
            raise
        finally:
            WEBHOOKS.labels("out", outcome).inc()

    async def _send(self, post: Post) -> str:
        name = post.target.chat_id
        body = post.text.encode()
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            # Perhaps one that other gateways know already.
            raise NotAccepted("this gateway has no endpoint of this name in its settings")
        at_s = self._clock.now_ms() // 1000
        try:
            id = _read_id(body).id
        except msgspec.DecodeError as exc:
            raise PostRefused("the line is no webhook") from exc
        secrets = (endpoint.secret, endpoint.old_secret) if endpoint.old_secret else (endpoint.secret,)
        headers = {
            "Content-Type": "application/json",
            "webhook-id": id,
            "webhook-timestamp": str(at_s),
            "webhook-signature": " ".join(sign(signing_key(one.reveal()), id, at_s, body) for one in secrets),
        }
        answer = await self._post(post, endpoint.url, headers, body)
        if 200 <= answer.status < 300:
            self._refusals.pop(name, None)
            return id
        raise self._failure(post, answer)

    async def _post(self, post: Post, url: str, headers: Mapping[str, str], body: bytes) -> PostAnswer:
        policy = self._policies[post.target.chat_id]
        try:
            return await post_once(url, policy, headers, body, look_up=self._look_up, total_s=TOTAL_S)
        except HostNotFound as exc:
            raise NotAccepted("the host was not found") from exc
        except ToolFailed as exc:
            raise self._refusal(post, "the address is not a public one; see allow_private") from exc
        except ConnectionError as exc:
            raise NotAccepted("no connection") from exc
        except NoAnswer as exc:
            raise MaybeSent("no answer") from exc

    def _failure(self, post: Post, answer: PostAnswer) -> NotDelivered:
        status = answer.status
        why = f"it answered {status}"
        if status == 410:
            return ChatClosed(f"{why}: nothing is sent there until a gateway starts")
        wait_s = _wait_of(answer.retry_after, self._clock.now_ms() / 1000)
        if status in (408, 425, 429) or status >= 500:
            if wait_s:
                return Throttled(wait_s)
            return NotAccepted(why) if status == 429 else MaybeSent(why)
        return self._refusal(post, why)

    def _refusal(self, post: Post, why: str) -> NotDelivered:
        """Count a refusal of a webhook; return the failure that follows from how many there were."""
        name = post.target.chat_id
        key, many = self._refusals.get(name, ("", 0))
        many = many + 1 if key == post.key else 1
        if many < REFUSALS:
            self._refusals[name] = (post.key, many)
            return NotAccepted(why)
        self._refusals.pop(name, None)
        return PostRefused(why)

    def render(self, markdown: str) -> list[Piece]:
        return [Piece(markdown, markdown)]

    async def open(self) -> None:
        """Nothing is connected before a webhook is sent."""

    async def close(self) -> None:
        """Nothing is left open."""

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Return at once: an endpoint says nothing by itself."""

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        return HookAnswer(404)

    async def edit(self, id: str, post: Post) -> None:
        raise PostRefused("a webhook cannot be changed")

    async def find(self, post: Post) -> str | None:
        return None

    async def typing(self, target: PostTarget) -> None:
        """Do nothing: see `abilities`."""

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        raise NotAccepted("an endpoint has no files")
        yield b""


def _policy_of(name: str, endpoint: OutgoingWebhook) -> WebPolicy:
    key = f"webhooks.out.{name}.url"
    policy = WebPolicy.for_origin(endpoint.url, key=key, private=endpoint.allow_private)
    try:
        parse_target(endpoint.url, policy)
    except ToolFailed as exc:
        raise SettingsError(f"{key}: {exc}; allow_private = true permits a private one") from None
    return policy


def _wait_of(header: str, now_s: float) -> float:
    """Return the seconds of a Retry-After, which may be a date; 0 for none that can be read."""
    header = header.strip()
    if header.isascii() and header.isdigit():
        return min(float(header[:9]), LONGEST_WAIT_S)
    try:
        at_s = email.utils.parsedate_to_datetime(header).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(0.0, at_s - now_s), LONGEST_WAIT_S)
