"""Makes a line for each endpoint that a notice is for. Any gateway may do it, several at once: the
script that adds the lines drops the notice in the same step, so each line is added once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from gateway.webhooks.events import HookEvent, response_event, turn_event
from shared.backoff import Backoff
from shared.clock import SYSTEM_CLOCK, Clock
from shared.crash_points import crash_point
from shared.errors import RedisAway, Refused, ReplyError
from shared.ids import API, log_id, split_session
from shared.log import logger
from shared.messages.codec import encode
from shared.messages.outbound import OutboundMessage
from shared.metrics import WEBHOOKS
from shared.settings.sections.webhooks import OutgoingWebhook
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.notices import AT_ONCE, MOST, Notice, Notices, endpoint_session
from shared.store.delivery.outbox import Outbox
from shared.store.responses.responses import Responses
from shared.tasks import event_within

OPEN_EVERY_S: Final = 60.0  # how often the stream is looked for: a server may have lost it
POLL_S: Final = 1.0  # news of a notice may be lost
LINES: Final = 20  # of a log that are read together
REPEAT_S: Final = 60.0
"""Time between two lines of this process's log about the same trouble with the stream."""

log = logger("webhooks")


class NoticeFanOut:
    """Turns notices into lines of endpoints, while `run` runs. `news` is set when one came."""

    def __init__(
        self, client: RedisClient, endpoints: Mapping[str, OutgoingWebhook], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.news = asyncio.Event()
        self._notices = Notices(client)
        self._outbox = Outbox(client)
        self._responses = Responses(client)
        self._endpoints = endpoints
        self._clock = clock
        self._refused_at = self._long_at = -math.inf

    async def run(self, draining: asyncio.Event) -> None:
        """Hand notices on until the process drains. Endpoints that were closed are open again."""
        backoff = Backoff()
        open_at = self._clock.monotonic()
        reopened = False
        while not draining.is_set():
            self.news.clear()
            try:
                if not reopened:
                    await self._notices.reopen([endpoint_session(name) for name in self._endpoints])
                    reopened = True
                if self._clock.monotonic() >= open_at:
                    await self._notices.open()
                    open_at = self._clock.monotonic() + OPEN_EVERY_S
                many = await self.run_once()
                backoff.reset()
            except RedisAway as exc:
                if isinstance(exc, ReplyError):
                    # A right is missing, or the stream is broken: neither ends by itself.
                    self._log_refused(exc)
                await backoff.sleep()
                continue
            except Exception:
                # A key that somebody filled with something else: deliveries go on.
                log.exception("notices not read")
                await backoff.sleep()
                continue
            if not many:
                await event_within(self.news, POLL_S)

    async def run_once(self) -> int:
        """Hand the oldest notices on; return how many there were. Raises RedisAway."""
        notices = await self._notices.oldest()
        if not notices:
            return 0
        if len(notices) == AT_ONCE:
            await self._check_length()
        batch = [(notice.id, await self._lines_of(notice)) for notice in notices]
        crash_point("before_fan_out")
        done = await self._notices.hand_over(batch)
        crash_point("after_fan_out")
        if done.closed:
            WEBHOOKS.labels("out", "closed").inc(done.closed)
        if done.broken:
            log.error("endpoint broken", lines=done.broken)
        return len(notices)

    async def _lines_of(self, notice: Notice) -> list[tuple[str, bytes]]:
        if not notice.session:
            return []
        events = [event] if (event := turn_event(notice)) is not None else []
        events += await self._readable_response_events(notice)
        return [
            (endpoint_session(name), _line(event, name))
            for event in events
            for name, endpoint in self._endpoints.items()
            if event.type in endpoint.events
            and any(fnmatchcase(notice.session, pattern) for pattern in endpoint.sessions)
        ]

    async def _readable_response_events(self, notice: Notice) -> list[HookEvent]:
        """Return the events of responses; none where a key of their chat is broken, which must not
        stop the notices of all others."""
        try:
            if split_session(notice.session)[0] == API:
                return await self._response_events(notice)
        except (Refused, ValueError) as exc:
            if isinstance(exc, Refused) and exc.code != "broken":
                raise
            log.error("responses not read", session=log_id(notice.session), turn=notice.turn, why=type(exc).__name__)
        return []

    async def _response_events(self, notice: Notice) -> list[HookEvent]:
        """Return the events of stored responses that ended with the notice's line."""
        word, _, id = notice.what.partition(" ")
        if word == "kept":
            return await self._kept_events(notice.session, id)
        lines = await self._lines_of_turn(notice)
        if not lines or lines[0].seq != notice.seq:
            return []
        end = lines[0].line
        earlier = lines[1:]
        # A line names the messages that it answers, and their ids are those of the responses.
        starts = await self._responses.starts(notice.session, end.in_reply_to)
        # The ids of what continues a turn are named nowhere.
        asked = next((one.seq for one in earlier if one.line.calls is not None and one.line.turn == end.turn), None)
        if asked is not None:
            starts += await self._responses.continuing(notice.session, end.turn, since=asked)
        # A turn that asked for functions ended its responses there, and names them again.
        events = [
            response_event(start.id, end)
            for start in starts
            if start.after < notice.seq
            and start.ends_with(end)
            and not any(one.seq > start.after and start.ends_with(one.line) for one in earlier)
        ]
        return [event for event in events if event is not None]

    async def _lines_of_turn(self, notice: Notice) -> list[_LogMessage]:
        """Return the notice's line and the messages before it, newest first, back to the answer of
        an earlier turn. They are empty when that line is gone."""
        found: list[_LogMessage] = []
        before = notice.seq + 1
        while before > 1:
            page = await self._outbox.read_before(notice.session, seq=before, limit=LINES)
            if not page or (before > notice.seq and page[-1].seq != notice.seq):
                break
            for one in reversed(page):
                if not isinstance(one.line, OutboundMessage):
                    continue
                if one.line.in_reply_to and 0 < one.line.turn < notice.turn:
                    return found
                found.append(_LogMessage(one.seq, one.line))
            before = page[0].seq
        return found

    async def _kept_events(self, session: str, id: str) -> list[HookEvent]:
        """Return the event of a response that was stored late, by the first line that ends it."""
        for start in await self._responses.starts(session, [id]):
            after = start.after
            while page := await self._outbox.read_after(session, after=after, limit=LINES):
                for one in page:
                    if isinstance(one.line, OutboundMessage) and start.ends_with(one.line):
                        event = response_event(id, one.line)
                        return [event] if event is not None else []
                after = page[-1].seq
        return []

    async def _check_length(self) -> None:
        """Log that many notices wait: beyond their limit the oldest are lost."""
        now = self._clock.monotonic()
        if now < self._long_at + REPEAT_S:
            return
        waiting = await self._notices.count()
        if waiting > MOST * 9 // 10:
            self._long_at = now
            log.error("notices near their limit", waiting=waiting, limit=MOST)

    def _log_refused(self, exc: ReplyError) -> None:
        now = self._clock.monotonic()
        if now >= self._refused_at + REPEAT_S:
            self._refused_at = now
            log.error("notices refused", error=str(exc)[:200], fix="load this release's deploy/redis/users.acl")


class _LogMessage(NamedTuple):
    """A message of a chat's log, and its number."""

    seq: int
    line: OutboundMessage


def _line(event: HookEvent, endpoint: str) -> bytes:
    return encode(OutboundMessage(content=event.body(endpoint).decode(), turn=0, kind="notice", at=event.at_ms))
