"""One request from its message to its answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Final

import msgspec

from gateway.channel import MessageSink
from gateway.channels.web.api.answers import DROPPED, session_busy, stored_answer
from gateway.channels.web.api.errors import RETRY_S, ApiError, draining_error
from gateway.channels.web.api.files import store_files
from gateway.channels.web.api.follower_hub import FollowerHub
from gateway.channels.web.api.limits import ApiLimits
from gateway.channels.web.api.request import CompletionRequest
from gateway.channels.web.api.turn_follower import TurnFollower
from gateway.channels.web.http.auth import Login, Principals
from shared.clock import SYSTEM_CLOCK, Clock
from shared.ephemeral import API, ephemeral_chat
from shared.errors import BadInput, RedisAway, Refused
from shared.ids import log_id, session_id
from shared.log import logger
from shared.media.store import MediaStore
from shared.messages.answer import StoredAnswer, decode_answer
from shared.messages.codec import encode
from shared.messages.inbound import PRESET, InboundMessage
from shared.metrics import MESSAGES_ACCEPTED, MESSAGES_DUPLICATE, MESSAGES_REFUSED
from shared.store.sessions.ephemeral import EphemeralSessions
from shared.store.sessions.requests import ApiRequest, Requests
from shared.store.turns.inbox import Accepted

SILENCE_S: Final = 2.0
"""After so long without news the log is read."""

TICK_S: Final = 1.0
LEAVE_S: Final = 5.0

log = logger("api")


class ApiServices(msgspec.Struct, frozen=True, kw_only=True):
    """What every exchange needs. `closing` is set when this gateway goes away."""

    sink: MessageSink
    principals: Principals
    watch: FollowerHub
    requests: Requests
    throw_aways: EphemeralSessions
    media: MediaStore
    closing: asyncio.Event
    limits: ApiLimits = ApiLimits()
    clock: Clock = SYSTEM_CLOCK


class Completion:
    """Asks once, however often it is begun with one key. Call `begin`, then `changes` to its end,
    and `close` in any case."""

    def __init__(self, services: ApiServices, login: Login, ask: CompletionRequest, key: str | None) -> None:
        self.request: Final = ask
        self.answer: StoredAnswer | None = None
        """How it ended, once that is known."""

        self.begun: ApiRequest
        """Once it is begun."""

        self.follower: TurnFollower | None = None
        """What is known so far; None when the answer was there already."""

        self._services = services
        self._login = login
        self._key = key
        self._counted = False
        self._stored = False
        self._declined = ""
        self._unavailable_since: float | None = None

    @property
    def again(self) -> bool:
        """Whether the same request may be sent again: with a key it is the same message, and
        without a session nothing is left of this one."""
        return self._key is not None or self.request.name is None

    async def begin(self, traceparent: str | None = None) -> None:
        """Make the message durable, in the trace of its request, or find the answer that there is.
        Raises ApiError, BadInput, Refused, RedisAway, KeyReused."""
        services, name, principal = self._services, self.request.name, self._login.principal
        session = None if name is None else session_id(API, f"{principal}/{name}")
        asked = await services.requests.begin(principal, key=self._key, session=session, asked=self.request.hash)
        self.begun = asked
        if asked.answer is not None:
            self.answer = decode_answer(asked.answer)
            return
        self.follower = TurnFollower(asked.ticket, asked.after, services.clock.monotonic())
        try:
            accepted = await self._ingest(asked, self.follower, traceparent)
        except (ApiError, BadInput) as exc:
            if isinstance(exc, BadInput) or exc.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                await services.requests.release(asked)  # it will never be taken: the key is free for what is
            raise
        except RedisAway:
            raise self._unavailable() from None
        log.debug("message accepted", session=log_id(asked.session), turn=accepted.turn, duplicate=accepted.duplicate)
        if accepted.rejected:
            await services.requests.release(asked)
            raise session_busy()
        (MESSAGES_DUPLICATE if accepted.duplicate else MESSAGES_ACCEPTED).labels(API).inc()
        self._counted = accepted.duplicate
        self.follower.number = accepted.turn
        self.follower.stale = self.follower.stale or accepted.duplicate or accepted.turn == 0

    async def _ingest(self, asked: ApiRequest, waiting: TurnFollower, traceparent: str | None) -> Accepted:
        services, name, principal, spoken = (
            self._services,
            self.request.name,
            self._login.principal,
            self.request.prompt,
        )
        files = await store_files(services.media, asked.session, spoken.files, limit=services.limits.files)
        message = InboundMessage(
            channel=API,
            chat_id=ephemeral_chat(principal, asked.ticket) if name is None else f"{principal}/{name}",
            sender_id=principal,
            id=asked.ticket,
            content=spoken.text,
            timestamp=services.clock.now_ms(),
            media=files,
            metadata={PRESET: self.request.preset} if self.request.preset else {},
            history=spoken.history,
            traceparent=traceparent,
        )
        await services.watch.follow(asked.session, waiting)
        try:
            return await services.sink.ingest(message, retry_for_s=services.limits.retry_s)
        except (BadInput, Refused) as exc:
            MESSAGES_REFUSED.labels(API, exc.code).inc()
            raise

    async def changes(self) -> AsyncGenerator[None]:
        """Comes back whenever something may be new, at the latest after a second, until there is an
        answer. Raises ApiError when none can be waited for."""
        services, waiting = self._services, self.follower
        give_up_at = services.clock.monotonic() + services.limits.wait_s
        while self.answer is None:
            assert waiting is not None
            self._check(give_up_at)
            waiting.changed.clear()
            try:
                await self._check_answer(waiting)
                self._unavailable_since = None
            except RedisAway:
                waiting.stale = True
                self._check_unavailable()
            yield
            if self.answer is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await waiting.changed.wait()

    async def close(self) -> None:
        """Let go of everything. A session of this request alone ends with it, unless somebody can
        still ask for the answer; a turn that runs there is stopped."""
        if self.follower is None:
            return
        services, session = self._services, self.begun.session
        with contextlib.suppress(RedisAway, Refused, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await services.watch.unfollow(session, self.follower)
                if self.request.name is None and (self._stored or self._key is None):
                    await services.throw_aways.end(session)

    async def _check_answer(self, waiting: TurnFollower) -> None:
        services, asked = self._services, self.begun
        if not self._counted:
            await services.requests.mark_accepted(asked, ephemeral=self.request.name is None)
            self._counted = True
        silent = services.clock.monotonic() - waiting.last_event_at >= SILENCE_S
        if waiting.end is None and (waiting.stale or silent):
            await services.watch.read_log(asked.session, waiting)
        if waiting.question is not None and self.request.name is None:
            await self._decline_approval(waiting.question.id)
        if waiting.end is not None:
            await self._store_answer(waiting)
        elif waiting.lost:
            stored = await services.requests.read_answer(asked)  # another gateway told it, and ended the session
            self.answer = decode_answer(stored) if stored else DROPPED

    async def _store_answer(self, waiting: TurnFollower) -> None:
        assert waiting.end is not None
        said = [aside.text for aside in waiting.asides if not aside.is_question]
        try:
            answer = stored_answer(waiting.end, said, self.begun.ticket)
        except ApiError:
            await self._services.requests.release(self.begun)
            raise
        with contextlib.suppress(RedisAway, Refused):  # whoever asks again finds the line in the log
            self._stored = await self._services.requests.store_answer(self.begun, encode(answer))
        self.answer = answer

    async def _decline_approval(self, question: str) -> None:
        """Nobody can be asked: the answer is no."""
        if self._declined != question:
            session, sender = self.begun.session, self._login.principal
            await self._services.sink.approve(session, question, yes=False, sender=sender)
            self._declined = question

    def _check(self, give_up_at: float) -> None:
        services = self._services
        if not services.principals.is_current(self._login):
            raise ApiError(401, "the token is not valid any more", code="invalid_api_key")
        if services.closing.is_set():
            raise draining_error(again=self.again)
        if services.clock.monotonic() >= give_up_at:
            waited = f"there was no answer within {services.limits.wait_s:g} s"
            raise ApiError(504, waited, code="timeout", again=self._key is not None)

    def _check_unavailable(self) -> None:
        now = self._services.clock.monotonic()
        if self._unavailable_since is None:
            self._unavailable_since = now
        if now - self._unavailable_since >= self._services.limits.away_s:
            raise self._unavailable()

    def _unavailable(self) -> ApiError:
        message = "the store of all messages is away; please try again"
        return ApiError(503, message, code="unavailable", retry_after_s=RETRY_S, again=self.again)
