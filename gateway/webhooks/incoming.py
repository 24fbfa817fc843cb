"""Webhooks of programs, `/hooks/in/<name>`: each verified call becomes a message, once.

A call is answered with 202 only when its message is durable. Whatever it brings counts as text of
strangers, though its sender is known: an alert quotes logs, an issue is anybody's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from gateway.platform.protocol import HookAnswer, HookRequest
from gateway.process.traces import receive_span, record_accepted
from gateway.webhooks.prompt import fill_prompt
from gateway.webhooks.signatures import verified_id
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway, Refused, TooBig
from shared.ids import WEB, split_session
from shared.messages.inbound import STRANGER, InboundMessage
from shared.messages.outbound import UserLine
from shared.messages.sources import source_label
from shared.metrics import WEBHOOKS
from shared.process.token_bucket import TokenBucket
from shared.settings.sections.webhooks import IncomingWebhook
from shared.store.turns.inbox import Inbox

BODY_BYTES: Final = 64 * 1024
FULL: Final = "rate"  # code of the refusal of one call too many


class IncomingWebhooks:
    """Answers the calls of these webhooks. Messages go to `inbox`, past the commands and the `busy`
    setting of their chat: a program does not choose either. `place` is held while one is made
    durable. Raises Refused when there is none."""

    def __init__(
        self,
        hooks: Mapping[str, IncomingWebhook],
        inbox: Inbox,
        place: Callable[[], AbstractContextManager[None]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._hooks = hooks
        self._inbox = inbox
        self._place = place
        self._clock = clock
        now = clock.monotonic()
        self._buckets = {name: TokenBucket(one.per_minute, one.per_minute / 60, now) for name, one in hooks.items()}

    async def answer(self, request: HookRequest) -> HookAnswer:
        """Answer a call. Raises RedisAway, Refused, and msgspec.DecodeError for a body that is no
        JSON, which the server of webhooks answers."""
        name = request.path.partition("/in/")[2]
        hook = self._hooks.get(name)
        if hook is None:
            return _answered(404, "there is no such webhook")
        outcome = "refused"
        try:
            answer, outcome = await self._answer(name, hook, request)
            return answer
        except RedisAway:
            outcome = "away"
            raise
        finally:
            WEBHOOKS.labels("in", outcome).inc()

    async def _answer(self, name: str, hook: IncomingWebhook, request: HookRequest) -> tuple[HookAnswer, str]:
        if request.method != "POST":
            return _answered(405, "only POST"), "refused"
        if len(request.body) > BODY_BYTES:
            return _answered(413, f"more than {BODY_BYTES // 1024} kB"), "refused"
        secrets = (hook.secret, hook.old_secret) if hook.old_secret else (hook.secret,)
        now_ms = self._clock.now_ms()
        id = verified_id(hook.verify, secrets, request.headers, request.body, now_s=now_ms / 1000)
        if id is None:
            return _answered(401, "the signature does not match"), "unsigned"
        # After the signature: calls of strangers use nothing up.
        if (wait_s := self._buckets[name].try_acquire(self._clock.monotonic())) > 0:
            raise Refused(FULL, "too many calls", wait_s)
        text = fill_prompt(hook.prompt, msgspec.json.decode(request.body))
        message = _message(name, hook, id, text, now_ms)
        try:
            with self._place():
                duplicate = await self._ingest(message)
        except TooBig:
            return _answered(413, "the prompt with these values is too long"), "refused"
        return _answered(202, "accepted"), "duplicate" if duplicate else "accepted"

    async def _ingest(self, message: InboundMessage) -> bool:
        """Make a message durable; return whether it was before."""
        on_page = message.channel == WEB
        line = UserLine(id=message.id, text=message.content, at=message.timestamp) if on_page else None
        person = message.chat_id.partition("/")[0] if on_page else None
        with receive_span(message) as (message, traced):
            accepted = await self._inbox.ingest(message, log_line=line, principal=person, internal=True)
            return record_accepted(traced, accepted).duplicate


def _message(name: str, hook: IncomingWebhook, id: str, text: str, now_ms: int) -> InboundMessage:
    channel, chat_id = split_session(hook.chat)
    # A sender chooses its ids; those of one webhook never meet those of another, or a platform's.
    own_id = hashlib.sha256(f"{name}\0{id}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
    metadata = {"sender_name": f"webhook {name}", STRANGER: "1", "outside": "1"}
    return InboundMessage(
        channel=channel,
        chat_id=chat_id,
        sender_id=f"webhook-{name}",
        id=f"webhook-{own_id}",
        content=text,
        timestamp=now_ms,
        metadata=metadata,
        sources=(source_label(f"webhook {name}"),),
    )


def _answered(status: int, text: str) -> HookAnswer:
    return HookAnswer(status, f"{text}\n".encode())
