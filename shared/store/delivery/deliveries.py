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
from shared.ids import SessionName, log_id, nonce
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
    encode_rates,
    parse_state,
)
from shared.store.schedules.schedules import PAUSED_DAYS
from shared.store.turns.inbox import DAY_MS
from shared.store.turns.queue import leases_of_owner, note_clock_fell

__all__ = ["Cleared", "DeliveryQueue", "DeliveryState", "LeasedChat", "PendingLine", "RateKey", "ResendGuard", "Wait"]

READ_CHANNELS: Final = frozenset({"web", "api", "cli", "system"})
"""Channels whose log people read themselves; others are delivered. `lib/lines.lua` has them,
too."""

ENTRIES: Final = 4  # lines handed to a gateway at once, the oldest that wait
OUTBOX_CAP: Final = 100
"""Lines of one chat that may wait (as in `lib/lines.lua`); over it the second oldest is given
up."""

DROPPED_AT_ONCE: Final = 25
"""Lines of a closed chat given up in one call. All at once would block the server for too long."""

KEEP_MS: Final = 365 * DAY_MS
DELIVERED_TEXT_MS: Final = 600_000
LOOK_S: Final = 1.0
"""Longest wait of a gateway before it looks by itself: a pub/sub message may be lost."""

REASON_CHARS: Final = 300

AT_A_START = 1
AFTER_OUTAGE = 2
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
        self.channel = SessionName(channel, "-").channel_key
        self.lease_s = lease_s
        self.owner = nonce()
        self._lease_ms = int(lease_s * 1000)
        self._client = client
        self._resend_guard: ResendGuard = resend_guard
        self._clock = clock
        self._leases = keys.outleases(self.channel)
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
            owner=self.owner,
            lease_ms=self._lease_ms,
            many=many,
            grace=grace,
            lines=ENTRIES,
            keep_token_ms=KEEP_MS,
        )
        found = []
        for session, token, *rest in rows:
            try:
                if session == b"clock":
                    note_clock_fell(self.channel, int(rest[0]))
                    continue
                if token:
                    found.append(self._leased(session.decode(), token.decode(), rest))
                    continue
                # Text of the server's error; it may contain the value of a key, so it is cut.
                error = rest[0].decode(errors="replace")[:200]
            except (ValueError, TypeError, msgspec.DecodeError) as exc:
                # Fields that hold something else. One such chat must not stop the others; its lease
                # lapses.
                error = type(exc).__name__
            log_name = log_id(session.decode(errors="replace"))
            log.error("chat broken", session=log_name, channel=self.channel, error=error)
        return found, LOOK_S if next_ms < 0 else min(LOOK_S, next_ms / 1000)

    def _leased(self, session: str, token: str, row: Sequence[Any]) -> LeasedChat:
        lost, full, *state = row
        leased = LeasedChat(session=session, token=token, owner_lost=lost == b"1", **parse_state(state))
        if full != b"0":
            DEAD_LETTERS.labels("outbox_full").inc(int(full))
        # What we hold knowingly; `_release_unknown` releases the rest.
        self._held[session] = token
        return leased

    async def renew(self, held: Sequence[LeasedChat]) -> set[str]:
        """Renew the leases; return the sessions of those that are lost."""
        if not held:
            return set()
        # Tokens go along: a lease that we lost and somebody else holds must not be renewed.
        held_pairs = [part for one in held for part in (one.session, one.token)]
        answers = await self._run(
            "turns/renew",
            due=keys.outqueue(self.channel),
            leases=self._leases,
            owner=self.owner,
            lease_ms=self._lease_ms,
            held=msgspec.json.encode(held_pairs),
        )
        lost = [one for one, answer in zip(held, answers, strict=True) if answer < 0]
        for one in lost:
            self._forget_lease(one)
        return {one.session for one in lost}

    async def read_chat(self, held: LeasedChat) -> DeliveryState | None:
        """Read the current state of a chat; None = the lease is lost."""
        row = await self._run("delivery/read_chat", held, lines=ENTRIES)
        return None if row == b"lost" else DeliveryState(**parse_state(row))

    async def begin_post(
        self, held: LeasedChat, seq: int, part: int, rates: Sequence[RateKey] = ()
    ) -> Cleared | Wait | None:
        """Record that post `part` (from 0) of line `seq` is about to be sent, and charge the
        rates; None = the lease is lost. With the guard `look-up`, ask the platform about an
        `unclear` post before: a post that it does not have is clear."""
        code, *value = await self._run(
            "delivery/sending",
            held,
            lease_ms=self._lease_ms,
            line=seq,
            post=part,
            resend_guard=self._resend_guard,
            keep_ms=KEEP_MS,
            rates=encode_rates(rates),
        )
        match code:
            case b"go":
                return Cleared(value == [1])
            case b"wait":
                return Wait(value[0] / 1000)
            case _:
                return None

    async def finish_post(
        self, held: LeasedChat, seq: int, part: int, *, last: bool, id: str = "", retry_for_s: float = 0.0
    ) -> bool:
        """Record that the platform has post `part` of line `seq` as `id`; with `last` the line is
        delivered. A line with nothing to show ends this way, without an id. False = lease lost."""
        noted = await self._run(
            "delivery/sent",
            held,
            lease_ms=self._lease_ms,
            line=seq,
            post=part,
            is_last=int(last),
            id=id,
            keep_ms=KEEP_MS,
            keep_text_ms=DELIVERED_TEXT_MS,
            retry_for_s=retry_for_s,
        )
        return bool(noted == b"noted")

    async def requeue(
        self, held: LeasedChat, delay_s: float, *, unclear: bool, counts: bool = True, retry_for_s: float = 0.0
    ) -> None:
        """Give the chat back; it is due for any gateway after `delay_s`. `unclear`: a post may
        have arrived. With `counts` it adds to `tries`; a drain does not."""
        await self._run(
            "delivery/requeue",
            held,
            delay_ms=max(0, round(delay_s * 1000)),
            unclear=int(unclear),
            counts=int(counts),
            keep_ms=KEEP_MS,
            retry_for_s=retry_for_s,
        )
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
        many = await self._run(
            "delivery/refused",
            held,
            lease_ms=self._lease_ms,
            line=seq,
            reason=code,
            why=reason[:REASON_CHARS],
            closed=int(drop_all),
            most_lines=DROPPED_AT_ONCE,
            rest_ms=PAUSED_DAYS * DAY_MS,
            keep_ms=KEEP_MS,
            retry_for_s=retry_for_s,
        )
        if many == b"lost":
            return False
        if many:
            DEAD_LETTERS.labels(code).inc(many)
        return True

    async def save_streamed_message(self, held: LeasedChat, turn: int, id: str) -> bool:
        """Store the id of the message into which `turn` is streamed, until it becomes a post of
        the reply (`finish_post` with the same id) or the chat is quiet. It replaces
        `pending_stream`. False = the lease is lost."""
        noted = await self._run("delivery/stream_message", held, turn=turn, id=id, keep_ms=KEEP_MS)
        return bool(noted == b"noted")

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
            held,
            pending_stream=stream,
            keep_ms=KEEP_MS,
            shown=chars,
            rates=encode_rates(rates),
        )
        return self.lease_s if wait == b"lost" else wait / 1000

    async def release_quiet(self, held: LeasedChat, *, though_running: bool = False) -> bool:
        """Release a chat that is quiet: nothing to deliver, and no turn under way. With
        `though_running` only the first matters; the next line makes the chat due again. False =
        something came, the chat is still ours. True also when the lease is lost."""
        if await self._run("delivery/leave", held, though_running=int(though_running)) == b"busy":
            return False
        self._forget_lease(held)
        return True

    async def pause(self, seconds: float) -> None:
        """Stop all replicas for `seconds`: `acquire` leases nothing, `begin_post` returns Wait."""
        await self._run("delivery/pause", pause_ms=max(1, round(seconds * 1000)))

    async def save_notes(self, session: str, notes: Mapping[str, str]) -> None:
        """Replace the notes that the platform's code keeps about a chat."""
        record = msgspec.msgpack.encode(dict(notes)) if notes else b""
        await self._run("delivery/save_note", session=session, notes=record, keep_ms=KEEP_MS)

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

    async def _run(
        self,
        name: str,
        held: LeasedChat | None = None,
        /,
        *,
        session: str | None = None,
        retry_for_s: float = 0.0,
        **values: Value,
    ) -> Any:
        if held is not None:
            session = held.session
            values["lease"] = f"{self.owner}:{held.token}"
        whose = keys.Whose(session=session, channel=self.channel)
        try:
            return await self._client.run_with(name, values, whose, retry_for_s=retry_for_s)
        except RedisAway:
            self._was_unavailable = True
            raise
