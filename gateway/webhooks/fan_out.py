"""Makes a line for each endpoint that a notice is for. Any gateway may do it, several at once: the
script that adds the lines drops the notice in the same step, so each line is added once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

from gateway.webhooks.events import HookEvent, response_event, turn_event
from shared.backoff import Backoff
from shared.clock import SYSTEM_CLOCK, Clock
from shared.crash_points import crash_point
from shared.errors import RedisAway
from shared.ids import API, split_session
from shared.log import logger
from shared.messages.codec import encode
from shared.messages.outbound import OutboundMessage
from shared.metrics import WEBHOOKS
from shared.settings.sections.webhooks import OutgoingWebhook
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.notices import Notice, Notices, endpoint_session
from shared.store.delivery.outbox import Outbox
from shared.store.responses.responses import Responses, ResponseStart
from shared.tasks import event_within

OPEN_EVERY_S: Final = 60.0  # how often the stream is looked for: a server may have lost it
POLL_S: Final = 1.0  # news of a notice may be lost
LINES: Final = 200  # of a log that are read to find the end of a response

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
            except RedisAway:
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
        if split_session(notice.session)[0] == API:
            events += await self._response_events(notice)
        return [
            (endpoint_session(name), _line(event, name))
            for event in events
            for name, endpoint in self._endpoints.items()
            if event.type in endpoint.events
            and any(fnmatchcase(notice.session, pattern) for pattern in endpoint.sessions)
        ]

    async def _response_events(self, notice: Notice) -> list[HookEvent]:
        """Return the events of stored responses that ended with the notice's line."""
        events: list[HookEvent] = []
        for start in await self._responses.of_session(notice.session):
            # `kept <id>` has no line: it is about one response, whatever ended it.
            kept = notice.what == f"kept {start.id}"
            if not kept and start.after >= notice.seq:
                continue
            seq, line = await self._end_of(start, notice.session)
            if line is None or (seq != notice.seq and not kept):
                continue
            if (event := response_event(start.id, line)) is not None:
                events.append(event)
        return events

    async def _end_of(self, start: ResponseStart, session: str) -> tuple[int, OutboundMessage | None]:
        """Return the first line that ends a response, with its number; None if there is none yet."""
        for one in await self._outbox.read_after(session, after=start.after, limit=LINES):
            if isinstance(one.line, OutboundMessage) and start.ends_with(one.line):
                return one.seq, one.line
        return 0, None


def _line(event: HookEvent, endpoint: str) -> bytes:
    return encode(OutboundMessage(content=event.body(endpoint).decode(), turn=0, kind="notice", at=event.at_ms))
