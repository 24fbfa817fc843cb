"""One request from its message to its answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.channels.web.api import errors
from gateway.channels.web.api.answer import DROPPED, is_sent, read_answer, text_sent
from gateway.channels.web.api.errors import ApiError
from gateway.channels.web.api.files import store_files
from gateway.channels.web.api.request import HISTORY_LIMIT_BYTES, CompletionRequest
from gateway.channels.web.http.auth import Login, Principals
from gateway.ingress.ingest import Ingress
from shared.chatlog.follower import ChatFollower
from shared.chatlog.turn_reader import TurnReader
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import BadInput, RedisAway, Refused
from shared.ids import API, log_id, session_id, split_session
from shared.log import logger
from shared.media.store import MediaStore
from shared.messages.codec import encode
from shared.messages.inbound import OWN_HISTORY, PRESET, InboundMessage
from shared.messages.outbound import OutboundMessage, StoredAnswer, decode_answer
from shared.messages.sources import merge_sources
from shared.metrics import CLIENT_CALLS, MESSAGES_ACCEPTED, MESSAGES_DUPLICATE, MESSAGES_REFUSED
from shared.settings import ApiSettings
from shared.settings.sections.gateways import OWNER
from shared.store.responses.forks import Forks
from shared.store.responses.responses import Responses, StoredResponse
from shared.store.sessions.erase import EphemeralSessions
from shared.store.sessions.requests import ApiRequest, Requests
from shared.store.turns.approvals import ApprovalAnswer
from shared.store.turns.inbox import Accepted
from shared.store.turns.known_messages import SeenMessages
from shared.store.turns.turn_writes import LEDGER_CAP_BYTES
from shared.tasks import event_within

TICK_S: Final = 1.0
CLOSE_S: Final = 5.0

log = logger("api")


class ApiLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the API; times in s. While Redis is unavailable, a message is retried for `retry_s`
    and its answer waited for `away_s`; `wait_s` is for an answer in all. A stream sends a sign of
    life after `alive_s` without text. A body has `body_bytes` and `body_s`, a message `files`.
    A principal has at most `at_once_each` requests open at this gateway, all together `at_once`;
    `burst` and `per_s` are above what a person may send: they only keep refusals cheap."""

    retry_s: float = 5.0
    away_s: float = 10.0
    wait_s: float = 1800.0
    alive_s: float = 15.0
    body_bytes: int = 16 * 1024 * 1024
    body_s: float = 60.0
    files: int = 4
    at_once: int = 1000
    at_once_each: int = 200
    burst: int = 200
    per_s: float = 20.0


class ApiServices(msgspec.Struct, frozen=True, kw_only=True):
    """Services that every completion uses. `closing` is set when this gateway shuts down."""

    sink: Ingress
    principals: Principals
    follower: ChatFollower
    requests: Requests
    responses: Responses
    forks: Forks
    seen: SeenMessages
    sessions: EphemeralSessions
    media: MediaStore
    closing: asyncio.Event
    allowed_origins: tuple[str, ...] = ()
    api: ApiSettings = ApiSettings()
    limits: ApiLimits = ApiLimits()
    clock: Clock = SYSTEM_CLOCK


class Completion:
    """A message and the wait for its answer. It is sent once, however often a request with the same
    key begins it. Call `begin` (or `resume`), iterate `changes` to its end, and call `close` in any case."""

    def __init__(self, services: ApiServices, login: Login, request: CompletionRequest, key: str | None) -> None:
        self.request = request
        self.answer: StoredAnswer | None = None  # the answer, once it is known
        self.begun: ApiRequest  # the stored request; set by `begin`
        self.reader: TurnReader | None = None
        """The turn as far as it is known; None when the answer was stored before."""

        self._services = services
        self._login = login
        self._key = key
        self._counted = False
        self._stored = False
        self._declined = ""
        self.resumed = False  # True where a response is followed that exists
        self.continues = bool(request.prompt.outputs)  # True where it goes on with a turn that waited

    @property
    def again(self) -> bool:
        """True if the same request may be sent again: it has a key, or leaves nothing behind."""
        return self._key is not None or self.request.ephemeral

    async def begin(self, traceparent: str | None = None) -> None:
        """Make the message durable, or load the answer. Raises what `as_api_error` knows."""
        services = self._services
        name = self.request.name
        principal = self._login.principal
        session = self.request.session or (None if name is None else session_id(API, f"{principal}/{name}"))
        requests = services.requests
        asked = self.request.hash
        stored = self.request.stored
        ticket = self.request.ticket
        begun = await requests.begin(
            principal, key=self._key, session=session, asked=asked, stored=stored, ticket=ticket
        )
        self.begun = begun
        known = begun.answer if begun.new or not stored else await self._read_answer()
        if known is not None:
            self.answer = decode_answer(known)
            return
        if self.request.prompt.outputs:
            await self._submit(begun)
            return
        try:
            accepted = await self._accept(traceparent)
        except (ApiError, BadInput) as exc:
            if isinstance(exc, BadInput) or exc.status < 500:
                # This message will never be accepted: the key is free for a corrected one.
                await services.requests.release(begun)
            raise
        except RedisAway:
            raise errors.store_unavailable(again=self.again) from None
        begun = self.begun
        reader = self.reader
        assert reader is not None
        turn = accepted.turn
        duplicate = accepted.duplicate
        log.debug("message accepted", session=log_id(begun.session), turn=turn, duplicate=duplicate)
        if accepted.rejected:
            await services.requests.release(begun)
            raise errors.session_busy()
        (MESSAGES_DUPLICATE if duplicate else MESSAGES_ACCEPTED).labels(API).inc()
        if stored:
            await self._keep(turn)
        await self._note_metadata()
        self._counted = duplicate
        reader.number = turn
        if duplicate or turn == 0:
            # A duplicate, or a command, may have its answer in the log already.
            reader.stale = True
            await services.follower.follow(begun.session, reader)

    async def _submit(self, begun: ApiRequest) -> None:
        """Hand the results of functions to the turn that waits for them, and follow it."""
        services = self._services
        request = self.request
        try:
            submitted = await services.sink.client_calls.submit(
                begun.session,
                dict(request.prompt.outputs),
                request=begun.ticket,
                cap_bytes=LEDGER_CAP_BYTES,
                principal=self._login.principal,
                background=request.background,
                retry_for_s=services.limits.retry_s,
            )
        except RedisAway:
            raise errors.store_unavailable(again=self.again) from None
        outcome = submitted.outcome
        turn = submitted.turn
        log.info("client calls answered", session=log_id(begun.session), turn=turn, outcome=outcome)
        if not submitted.accepted:
            CLIENT_CALLS.labels("refused").inc(len(request.prompt.outputs))
            await services.requests.release(begun)
            raise errors.not_submitted(outcome, submitted.ids)
        if outcome == "done":
            CLIENT_CALLS.labels("answered").inc(len(request.prompt.outputs))
        if request.stored:
            await self._keep(turn, continues=True)
        await self._note_metadata()
        self._counted = True
        reader = self.reader = TurnReader(begun.ticket, begun.after, turn)
        reader.stale = True
        await services.follower.follow(begun.session, reader)
        await services.requests.mark_accepted(begun, ephemeral=False)

    async def resume(self, found: StoredResponse, answer: StoredAnswer | None) -> None:
        """Follow a response that exists, in place of `begin`. `answer` is None while it runs."""
        self.resumed = self._counted = True
        self.continues = found.continues
        self.begun = ApiRequest(
            key="", session=found.session, ticket=found.id, at_ms=found.at_ms, after=found.after, new=False
        )
        if answer is not None:
            self.answer = answer
            return
        reader = self.reader = TurnReader(found.id, found.after, found.turn if found.continues else None)
        reader.number = found.turn
        reader.stale = True
        await self._services.follower.follow(found.session, reader)

    async def _keep(self, turn: int, *, continues: bool = False) -> None:
        request = self.request
        principal = self._login.principal
        responses = self._services.responses
        shown = request.shown
        input = request.input
        await responses.keep(principal, self.begun, turn, shown=shown, input=input, continues=continues)

    async def _note_metadata(self) -> None:
        # The message is accepted: it is answered whatever becomes of notes about its session.
        if self.request.metadata and self.request.name is not None:
            try:
                await self._services.requests.describe(self.begun, self.request.metadata)
            except (BadInput, RedisAway, Refused) as exc:
                log.warning("metadata not kept", why=type(exc).__name__, session=log_id(self.begun.session))

    async def _accept(self, traceparent: str | None) -> Accepted:
        """Hand the message to its session, or to a fork of it."""
        try:
            return await self._ingest(traceparent)
        except Refused as exc:
            # Never true again once it is false, so a repetition of this request comes here, too.
            if exc.code != "moved":
                raise
        await self._fork()
        return await self._ingest(traceparent)

    async def _fork(self) -> None:
        """Go on in a session of its own, with the conversation up to the response that the request
        continues."""
        services = self._services
        request = self.request
        turn = request.follows
        assert turn is not None
        assert self.reader is not None
        services.follower.unfollow(self.begun.session, self.reader)
        system = "" if request.options is None else request.options.system
        left_bytes = HISTORY_LIMIT_BYTES - len(system.encode())
        fork = await services.forks.read_fork(self.begun.session, turn, limit_bytes=left_bytes)
        if fork is None or not fork.entries:
            code = "running" if fork is None else "moved"
            MESSAGES_REFUSED.labels(API, code).inc()
            raise errors.cannot_continue(code)
        log.info("response forked", session=log_id(self.begun.session), entries=len(fork.entries))
        sources = merge_sources(request.prompt.sources, fork.sources)
        prompt = replace(request.prompt, history=fork.entries, sources=sources)
        self.request = replace(request, session="", follows=None, name=None, prompt=prompt, forked=True)
        self.begun = await services.requests.fork(self._login.principal, self.begun)

    async def _ingest(self, traceparent: str | None) -> Accepted:
        services = self._services
        request = self.request
        principal = self._login.principal
        begun = self.begun
        reader = self.reader = TurnReader(begun.ticket, begun.after)
        limit = services.limits.files
        files = request.prompt.files
        message = InboundMessage(
            channel=API,
            chat_id=split_session(begun.session)[1],
            sender_id=principal,
            id=begun.ticket,
            content=request.prompt.text,
            timestamp=services.clock.now_ms(),
            media=await store_files(services.media, begun.session, files, limit),
            metadata=_message_metadata(request),
            history=request.prompt.history,
            sources=request.prompt.sources,
            options=request.options,
            traceparent=traceparent,
        )
        # Before the message exists, so that none of its events is missed.
        await services.follower.follow(begun.session, reader)
        try:
            # Named sessions are listed, and so counted. An ephemeral one ends with its answer.
            owner = None if request.name is None else principal
            return await services.sink.ingest(
                message,
                principal=owner,
                follows=request.follows,
                background=principal if request.background else "",
                retry_for_s=services.limits.retry_s,
            )
        except (BadInput, Refused) as exc:
            if exc.code == "moved":
                raise
            MESSAGES_REFUSED.labels(API, exc.code).inc()
            waiting = await services.sink.client_calls.waiting(begun.session) if exc.code == "running" else ()
            if waiting:
                raise errors.not_submitted("missing", waiting) from None
            if exc.code == "running":
                raise errors.cannot_continue(exc.code) from None
            raise

    def asides(self, reader: TurnReader) -> list[str]:
        """Return the texts of the turn outside its reply, to be shown while it runs."""
        # Without a name requests to run a tool are declined, so they are not shown.
        named = self.request.name is not None
        if self.request.formed:
            return []
        return [
            text_sent(line) if line.approval is None else line.content
            for line in reader.lines
            if is_sent(line) or (named and line.approval is not None and line.approval.state == "open")
        ]

    async def mark_accepted(self) -> None:
        """Record once that the message is durable. Raises RedisAway."""
        if not self._counted:
            await self._services.requests.mark_accepted(self.begun, ephemeral=self.request.ephemeral)
            self._counted = True

    async def changes(self) -> AsyncGenerator[None]:
        """Yield whenever the reader may have changed, at least every second, until the answer is
        known. Raises ApiError when it cannot be waited for any longer."""
        services = self._services
        reader = self.reader
        give_up_at = services.clock.monotonic() + services.limits.wait_s
        away_since = None
        while self.answer is None:
            assert reader is not None
            self._check_may_wait(give_up_at)
            # Cleared before the check: an event that comes during it wakes the wait below.
            reader.changed.clear()
            try:
                await self._check_answer(reader)
            except RedisAway:
                reader.away = reader.stale = True
            now = services.clock.monotonic()
            away_since = (away_since or now) if reader.away else None
            if away_since is not None and now - away_since >= services.limits.away_s:
                raise errors.store_unavailable(again=self.again)
            yield
            if self.answer is None:
                await event_within(reader.changed, TICK_S)

    async def stop(self) -> None:
        """Take the message back, or stop the turn that answers it."""
        if self.answer is None and (reader := self.reader) is not None:
            await stop_message(self._services.sink, self.begun.session, self.begun.ticket, reader.turn)

    async def close(self) -> None:
        """Stop following. An ephemeral session ends with its request, and with it a turn that runs
        there, unless a request with the same key can still come for the answer."""
        if self.reader is None:
            return
        services = self._services
        session = self.begun.session
        services.follower.unfollow(session, self.reader)
        if self.request.ephemeral and (self._stored or self._key is None):
            with contextlib.suppress(RedisAway, Refused, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await services.sessions.end(session)

    async def _check_answer(self, reader: TurnReader) -> None:
        services = self._services
        begun = self.begun
        await self.mark_accepted()
        if reader.failed:
            raise RuntimeError("the log of a chat could not be followed")
        asked = reader.question
        if asked is not None and self.request.name is None and asked.id != self._declined:
            # Without a name no person can be asked.
            no = ApprovalAnswer(yes=False, sender=self._login.principal, where="api")
            await services.sink.approve(begun.session, asked.id, no)
            self._declined = asked.id
        if reader.end is not None:
            await self._store_answer(reader, reader.end)
        elif reader.lost:
            # Another gateway may have stored the answer and ended the session.
            stored = await self._read_answer()
            self.answer = decode_answer(stored) if stored else DROPPED

    async def _store_answer(self, reader: TurnReader, end: OutboundMessage) -> None:
        owner = self._login.principal == OWNER
        ticket = self.begun.ticket
        try:
            answer = read_answer(reader, end, ticket, formed=self.request.formed, owner=owner)
        except ApiError:
            await self._services.requests.release(self.begun)
            raise
        # Not stored: a second request with this key finds the line in the log.
        with contextlib.suppress(RedisAway, Refused):
            if self.request.stored:
                self._stored = await self._services.responses.store_answer(ticket, encode(answer))
            else:
                self._stored = await self._services.requests.store_answer(self.begun, encode(answer))
        self.answer = answer

    async def _read_answer(self) -> bytes | None:
        """Read the stored answer, perhaps of another gateway. A response has it, not its key."""
        if self.request.stored:
            return await self._services.responses.read_answer(self.begun.ticket)
        return await self._services.requests.read_answer(self.begun)

    def _check_may_wait(self, give_up_at: float) -> None:
        services = self._services
        if not services.principals.is_current(self._login):
            raise ApiError(401, "the token is not valid any more", code="invalid_api_key")
        if services.closing.is_set():
            raise errors.draining_error(again=self.again)
        if services.clock.monotonic() >= give_up_at:
            waited = f"there was no answer within {services.limits.wait_s:g} s"
            raise ApiError(504, waited, code="timeout", again=self._key is not None)


def _message_metadata(request: CompletionRequest) -> dict[str, str]:
    preset = {PRESET: request.preset} if request.preset else {}
    return preset | {OWN_HISTORY: "1"} if request.forked else preset


async def stop_message(sink: Ingress, session: str, ticket: str, turn: int) -> None:
    """Withdraw a message that waits, since it gets no turn then; stop a turn that answers it."""
    if await sink.withdraw(API, split_session(session)[1], ticket) == "answering":
        await sink.stop(session, turn)
