"""Delivery of chats to one platform: which gateway delivers which chat, and how far each one is. A
chat is delivered by one gateway at a time, under a lease, in order. A delivered line leaves the
outbox. The protocol is explored in `proof/model/delivery*.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from shared.backoff import RECONNECT_CAP_S
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import RedisAway
from shared.ids import log_id, nonce, session_id
from shared.log import logger
from shared.metrics import DEAD_LETTERS
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.delivery.outbox import (
    Cleared,
    DeliveryState,
    LeasedChat,
    PendingLine,
    RateKey,
    ResendGuard,
    Wait,
    parse_state,
    rate_args,
)
from shared.store.schedules.schedules import PAUSED_DAYS
from shared.store.turns.inbox import DAY_MS
from shared.store.turns.queue import leases_of_owner, note_clock_fell

__all__ = ["Cleared", "DeliveryQueue", "DeliveryState", "LeasedChat", "PendingLine", "RateKey", "ResendGuard", "Wait"]

READ_CHANNELS: Final = frozenset({"web", "api", "cli", "system"})
"""Channels whose log people read themselves; others are delivered. `lib/core.lua` has them, too."""

ENTRIES: Final = 4  # lines handed to a gateway at once, the oldest that wait
OUTBOX_CAP: Final = 100
"""Lines of one chat that may wait (as in `lib/core.lua`); over it the second oldest is given up."""

DROPPED_AT_ONCE: Final = 25
"""Lines of a closed chat given up in one call. All at once would block the server for too long."""

KEEP_MS: Final = 365 * DAY_MS
DELIVERED_TEXT_MS: Final = 600_000
LOOK_S: Final = 1.0
"""Longest wait of a gateway before it looks by itself: a pub/sub message may be lost."""

REASON_CHARS: Final = 300

AT_A_START, AFTER_OUTAGE = 1, 2
"""Reasons for grace, in which late owners keep their chats; `delivery/acquire.lua` has both."""

log = logger("deliveries")


class DeliveryQueue:
    """The chats of one channel, as one process sees them. Every method raises RedisAway. Call the
    platform only while the lease is safely held: `acquire`, `renew`, `begin_post` and `finish_post`
    hold it for `lease_s` from when the call was *made*. Every call may be repeated when its reply
    was lost."""

    def __init__(
        self,
        client: RedisClient,
        channel: str,
        *,
        lease_s: float,
        resend_guard: ResendGuard = "nothing",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.channel = session_id(channel, "-").partition(":")[0]
        self.lease_s = lease_s
        self.owner = nonce()
        self._lease_ms = int(lease_s * 1000)
        self._client = client
        self._resend_guard: ResendGuard = resend_guard
        self._clock = clock
        self._queue, self._leases = keys.outqueue(self.channel), keys.outleases(self.channel)
        self._waits, self._pause = keys.outwaits(self.channel), keys.outpause(self.channel)
        self._held: dict[str, str] = {}
        self._was_unavailable = False
        self._grace = AT_A_START
        self._grace_until = clock.monotonic() + lease_s / 2

    @property
    def news(self) -> str:
        """The pub/sub channel that announces chats that are due."""
        return keys.live(self.channel)

    async def acquire(self, many: int) -> tuple[list[LeasedChat], float]:
        """Lease up to `many` chats that are due. Return them, and the seconds until another may be
        due (at most `LOOK_S`). After a start, and after Redis was unavailable, chats of a late
        gateway are left to it for another half lease. After an outage that time counts from its
        end, because the outage may have lasted longer than any lease. Leases that we hold without
        knowing, because a reply was lost, are released first. A chat whose keys are broken is
        logged and tried again after a minute."""
        # Before anything is leased: leases of ours that a lost reply left would block these chats.
        if self._was_unavailable:
            await self._release_unknown()
        grace = self._grace if self._clock.monotonic() < self._grace_until else 0
        next_ms, *rows = await self._run(
            "delivery/acquire",
            [self._queue, self._leases, self._waits, self._pause, keys.outtoken(self.channel)],
            [self.owner, self._lease_ms, many, grace, ENTRIES, KEEP_MS],
        )
        found = []
        for session, token, *rest in rows:
            name = session.decode()
            if name == "clock":
                note_clock_fell(self.channel, int(rest[0]))
                continue
            if not token:
                # Text of the server's error; it may contain the value of a key, so it is cut.
                error = rest[0].decode(errors="replace")[:200]
                log.error("chat broken", session=log_id(name), channel=self.channel, error=error)
                continue
            lost, full, *row = rest
            if full != b"0":
                DEAD_LETTERS.labels("outbox_full").inc(int(full))
            # What we hold knowingly; `_release_unknown` releases the rest.
            self._held[name] = key = token.decode()
            state = parse_state(row)
            found.append(LeasedChat(session=name, token=key, owner_lost=lost == b"1", **state))
        return found, LOOK_S if next_ms < 0 else min(LOOK_S, next_ms / 1000)

    async def renew(self, held: Sequence[LeasedChat]) -> set[str]:
        """Renew the leases; return the sessions of those that are lost."""
        if not held:
            return set()
        # Tokens go along: a lease that we lost and somebody else holds must not be renewed.
        pairs = [part for one in held for part in (one.session, one.token)]
        args: list[Value] = [self.owner, self._lease_ms, *pairs]
        answers = await self._run("turns/renew", [self._queue, self._leases], args)
        lost = [one for one, answer in zip(held, answers, strict=True) if answer < 0]
        for one in lost:
            self._forget_lease(one)
        return {one.session for one in lost}

    async def read_chat(self, held: LeasedChat) -> DeliveryState | None:
        """Read the current state of a chat; None = the lease is lost."""
        chat = [kind(held.session) for kind in (keys.out, keys.outbox, keys.inbox)]
        args = *self._fence(held), ENTRIES
        row = await self._run("delivery/read_chat", [self._leases, *chat], args)
        return None if row == -1 else DeliveryState(**parse_state(row))

    async def begin_post(
        self, held: LeasedChat, seq: int, part: int, rates: Sequence[RateKey] = ()
    ) -> Cleared | Wait | None:
        """Record that post `part` (from 0) of line `seq` is about to be sent, and charge the
        rates; None = the lease is lost. With the guard `look-up`, ask the platform about an
        `unclear` post before: a post that it does not have is clear."""
        post = seq, part, self._resend_guard, KEEP_MS
        code, value = await self._run(
            "delivery/sending",
            [*self._keys(held)[:4], self._pause, *self._rate_keys(rates)],
            [*self._fence(held), self._lease_ms, *post, *rate_args(rates)],
        )
        match code:
            case 1:
                return Cleared(value == 1)
            case 2:
                return Wait(value / 1000)
            case _:
                return None

    async def finish_post(
        self, held: LeasedChat, seq: int, part: int, *, last: bool, id: str = "", retry_for_s: float = 0.0
    ) -> bool:
        """Record that the platform has post `part` of line `seq` as `id`; with `last` the line is
        delivered. A line with nothing to show ends this way, without an id. False = lease lost."""
        names = [*self._keys(held), keys.delivered_text(held.session)]
        post = seq, part, int(last), id, KEEP_MS, DELIVERED_TEXT_MS
        args = *self._fence(held), self._lease_ms, *post
        return bool(await self._run("delivery/sent", names, args, retry_for_s=retry_for_s) == 1)

    async def requeue(
        self, held: LeasedChat, delay_s: float, *, unclear: bool, counts: bool = True, retry_for_s: float = 0.0
    ) -> None:
        """Give the chat back; it is due for any gateway after `delay_s`. `unclear`: a post may
        have arrived. With `counts` it adds to `tries`; a drain does not."""
        delay_ms, names = max(0, round(delay_s * 1000)), self._keys(held)[:3]
        args = *self._fence(held), delay_ms, int(unclear), int(counts), KEEP_MS
        await self._run("delivery/requeue", names, args, retry_for_s=retry_for_s)
        self._forget_lease(held)

    async def give_up_line(
        self,
        held: LeasedChat,
        seq: int,
        reason: str,
        *,
        drop_all: bool = False,
        too_late: bool = False,
        retry_for_s: float = 0.0,
    ) -> bool:
        """Turn line `seq` into a dead letter, with `reason` for operators. With `drop_all` the
        chat is closed: the lines that waited at `begin_post` are given up, too (at most
        `DROPPED_AT_ONCE`), and its schedules are paused. False = the lease is lost."""
        code = "chat_closed" if drop_all else "too_late" if too_late else "undeliverable"
        letter = seq, code, reason[:REASON_CHARS], int(drop_all), DROPPED_AT_ONCE
        args = *self._fence(held), self._lease_ms, *letter, PAUSED_DAYS * DAY_MS, KEEP_MS
        names = self._keys(held)
        many = await self._run("delivery/refused", names, args, retry_for_s=retry_for_s)
        if many > 0:
            DEAD_LETTERS.labels(code).inc(many)
        return bool(many >= 0)

    async def save_streamed_message(self, held: LeasedChat, turn: int, id: str) -> bool:
        """Store the id of the message into which `turn` is streamed, until it becomes a post of
        the reply (`finish_post` with the same id) or the chat is quiet. It replaces
        `pending_stream`. False = the lease is lost."""
        names = [self._leases, keys.out(held.session)]
        args = *self._fence(held), turn, id, KEEP_MS
        return bool(await self._run("delivery/stream_message", names, args) == 1)

    async def reserve_call(
        self,
        held: LeasedChat,
        rates: Sequence[RateKey] = (),
        *,
        pending_stream: tuple[int, str] | None = None,
        shown: tuple[int, int] | None = None,
    ) -> float:
        """Charge the rates for a call that is not a post of a line, such as an edit. Return 0
        when it may be made, else the seconds to wait; `lease_s` when the lease is lost.
        `pending_stream` names the turn and the key of the call that creates its streamed
        message; both are stored until the message's id is known. `shown` is that turn, and how
        many characters of its text the call shows."""
        stream = "{} {}".format(*pending_stream) if pending_stream else ""
        chars = "{} {}".format(*shown) if shown else ""
        wait = await self._run(
            "delivery/edit",
            [self._leases, self._pause, keys.out(held.session), *self._rate_keys(rates)],
            [*self._fence(held), stream, KEEP_MS, chars, *rate_args(rates)],
        )
        return self.lease_s if wait < 0 else wait / 1000

    async def release_quiet(self, held: LeasedChat, *, though_running: bool = False) -> bool:
        """Release a chat that is quiet: nothing to deliver, and no turn under way. With
        `though_running` only the first matters; the next line makes the chat due again. False =
        something came, the chat is still ours. True also when the lease is lost."""
        names = [*self._keys(held), keys.inbox(held.session)]
        args = *self._fence(held), int(though_running)
        if await self._run("delivery/leave", names, args) == 0:
            return False
        self._forget_lease(held)
        return True

    async def pause(self, seconds: float) -> None:
        """Stop all replicas for `seconds`: `acquire` leases nothing, `begin_post` returns Wait."""
        await self._run("delivery/pause", [self._pause], [max(1, round(seconds * 1000))])

    async def save_notes(self, session: str, notes: Mapping[str, str]) -> None:
        """Replace the notes that the platform's code keeps about a chat."""
        record = msgspec.msgpack.encode(dict(notes)) if notes else b""
        await self._run("delivery/save_note", [keys.out(session)], [record, KEEP_MS])

    async def _release_unknown(self) -> None:
        """Release the leases with our nonce that this process does not know of, and start a
        grace period so that other gateways, which reconnect too, can renew theirs first."""
        # Cleared first: a call that fails below sets it again.
        self._was_unavailable = False
        try:
            for session, token in await leases_of_owner(self._client, self._leases, self.owner):
                if self._held.get(session) != token:
                    unknown = LeasedChat(session=session, token=token, pending=())
                    await self.requeue(unknown, 0, unclear=False, counts=False)
        except RedisAway:
            self._was_unavailable = True
            raise
        # An owner that reconnects tries only once in RECONNECT_CAP_S.
        grace_s = max(self.lease_s / 2, 2 * RECONNECT_CAP_S)
        self._grace, self._grace_until = AFTER_OUTAGE, self._clock.monotonic() + grace_s

    def _forget_lease(self, held: LeasedChat) -> None:
        # A newer lease on the same chat stays.
        if self._held.get(held.session) == held.token:
            del self._held[held.session]

    def _keys(self, held: LeasedChat) -> list[str]:
        """Return the keys that most of the scripts begin with."""
        chat = keys.out(held.session), keys.outbox(held.session)
        return [self._queue, self._leases, *chat, self._waits]

    def _fence(self, held: LeasedChat) -> tuple[str, str]:
        return held.session, f"{self.owner}:{held.token}"

    def _rate_keys(self, rates: Sequence[RateKey]) -> list[str]:
        return [keys.outrate(self.channel, rate.name) for rate in rates]

    async def _run(self, name: str, names: Sequence[str], args: Sequence[Value], *, retry_for_s: float = 0.0) -> Any:
        try:
            return await self._client.run(name, names, args, retry_for_s=retry_for_s)
        except RedisAway:
            self._was_unavailable = True
            raise
