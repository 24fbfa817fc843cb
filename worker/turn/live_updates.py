"""Live text of a running turn, by pub/sub: deltas in small bundles."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.messages.live import DeltaEvent, ProgressEvent, Takeover
from shared.metrics import CHARACTERS_KEPT, FIRST_TOKEN_SECONDS, TURNS_CONTINUED
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import publish, publish_text
from shared.store.turns.queue import Claim
from shared.tasks import cancel_all
from worker.turn.conversation import NOBODY, ShownBy

BUNDLE_S: Final = 0.04
FULL_EVERY_S: Final = 1.5  # between two whole texts, for readers that joined late or missed a piece
UNWATCHED_PAUSE_S: Final = 1.0  # without any event, after one that had no subscriber

TELL_AFTER_S: Final = 0.3  # of a pause that a person notices
CONTINUES: Final = "Continuing on another worker"
BROKEN: Final = "The model's connection broke; continuing"

NAME_CHARS: Final = 12  # of a worker's nonce, as in `shoal top`
RECORD_CHARS: Final = 64 * 1024  # text beyond it is shown, but not recorded


def count_continued(reason: str, chars: int) -> None:
    """Count an answer that goes on with `chars` characters of text that was there already."""
    TURNS_CONTINUED.labels(reason).inc()
    CHARACTERS_KEPT.labels(reason).inc(chars)


class LiveUpdates:
    """The TurnProgress of one attempt at a turn. Text is bundled for 40 ms; the next full text
    repairs a lost bundle. `visible` is the text of the running reply so far. Nothing is sent while
    `suspended()` is true, because another worker may own the turn. Text is left out once
    `reply_sent()` is true: the message tool has answered, the text at the end is not sent.

    What screens show is recorded: they keep the `standing` characters of an earlier attempt or
    round until there is more text than that. `steps()` is the length of the ledger. `shown_by` is
    the worker whose text stands there; if it died, `takeovers` names it once this one has gone
    on."""

    def __init__(
        self,
        client: RedisClient,
        claim: Claim,
        *,
        standing: int = 0,
        shown_by: ShownBy = NOBODY,
        steps: Callable[[], int] = lambda: 0,
        suspended: Callable[[], bool] = lambda: False,
        reply_sent: Callable[[], bool] = lambda: False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.visible = ""
        self.takeovers = shown_by.takeovers
        self._shown_by = shown_by
        self._worker = claim.owner[:NAME_CHARS]
        self._client = client
        assert claim.turn is not None
        self._died = claim.owner_lost or claim.turn.crashes > 0
        self._session = claim.session
        self._fence = claim.fence
        self._turn = claim.turn.n
        self._attempt = claim.turn.attempt
        self._standing = standing
        self._steps = steps
        self._step = 0
        self._recorded = self._watched = False
        self._suspended = suspended
        self._reply_sent = reply_sent
        self._clock = clock
        self._seq = self._sent = 0
        self._full_at = self._quiet_until = 0.0
        self._made_at: float | None = clock.monotonic()
        self._dirty: asyncio.Event | None = None
        self._open = False
        self._pump: asyncio.Task[None] | None = None
        self._teller: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LiveUpdates:
        self._open = True
        if self._goes_on:
            self._teller = asyncio.create_task(self._tell_takeover())
        return self

    @property
    def _goes_on(self) -> bool:
        return self._standing > 0 and self._shown_by.worker not in ("", self._worker)

    async def _tell_takeover(self) -> None:
        """Say why the text stands still, unless it has gone on by then."""
        await asyncio.sleep(TELL_AFTER_S)
        if self._made_at is not None:
            await self.add_activity(CONTINUES, note=True)

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        await cancel_all([task for task in (self._pump, self._teller) if task is not None])

    async def add_text(self, delta: str) -> None:
        if self._reply_sent():
            return
        if not self.visible:
            self._step = self._steps()  # the reply's own step is written after its last delta
        if self._made_at is not None and len(self.visible) + len(delta) > self._standing:
            FIRST_TOKEN_SECONDS.observe(self._clock.monotonic() - self._made_at)
            self._made_at = None
            self._note_takeover()
        self.visible += delta
        self._send_soon()

    def _note_takeover(self) -> None:
        before = self._shown_by
        if self._died and before.worker not in ("", self._worker):
            after_ms = max(0, self._clock.now_ms() - before.at_ms)
            self.takeovers += (Takeover(before.worker, self._worker, after_ms),)

    async def reset_text(self) -> None:
        if self.visible and len(self.visible) != self._sent:
            await self.send_once()  # the last words before a tool may be younger than a bundle
        if self.visible:
            self.visible = ""
            self._full_at = 0.0
            self._send_soon()

    def _send_soon(self) -> None:
        if self._dirty is None:  # made on demand: many turns stream nothing before their end
            self._dirty = asyncio.Event()
        self._dirty.set()
        if self._open and self._pump is None:
            self._pump = asyncio.create_task(self._keep_sending(self._dirty))

    async def add_activity(self, text: str, *, note: bool = False) -> None:
        with contextlib.suppress(RedisAway):
            if not self._suspended():
                await publish(self._client, self._session, ProgressEvent(self._turn, text, note))

    async def note_broken(self, chars: int) -> None:
        count_continued("stream", chars)
        await self.add_activity(BROKEN, note=True)

    async def send_once(self) -> None:
        """Send the text that has not been sent yet, unless the chat had no subscriber just now."""
        now = self._clock.monotonic()
        if now < self._quiet_until or self._suspended():
            return
        length = len(self.visible)
        recorded = self._standing < length <= RECORD_CHARS
        # A record begins with a whole text.
        full = now - self._full_at >= FULL_EVERY_S or (recorded and not self._recorded)
        new = self.visible[self._sent :]
        if full:
            self._full_at = now
        self._sent = length
        receivers = -1
        delta = DeltaEvent(
            self._turn,
            self._attempt,
            self._seq,
            self.visible if full else new,
            full,
            self._step,
            at=self._clock.now_ms() if recorded else 0,
            worker=self._worker if recorded and full else "",
            takeovers=self.takeovers if full else (),
        )
        self._seq += 1
        with contextlib.suppress(RedisAway):
            # What nobody watches is whole for whoever comes, and recorded by what is new.
            grows = full and self._recorded and not self._watched
            entry = replace(delta, text=new, full=False, worker="", takeovers=()) if grows else None
            receivers = await publish_text(
                self._client, self._session, self._fence, delta, recorded=recorded, entry=entry
            )
        self._recorded = recorded and receivers >= 0
        self._watched = receivers > 0
        if self._recorded:
            self._standing = length
        if not self._watched:
            self._quiet_until = now + UNWATCHED_PAUSE_S
            self._full_at = 0.0

    async def _keep_sending(self, dirty: asyncio.Event) -> None:
        while True:
            await dirty.wait()
            dirty.clear()
            await self.send_once()
            await asyncio.sleep(BUNDLE_S)
