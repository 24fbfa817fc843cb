"""A chat that is being delivered, as the store describes it, and the guarantees of a platform."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from shared.store.client.redis_client import Value
from shared.store.delivery.outbox import NumberedLine, read_line

ResendGuard = Literal["key", "look-up", "nothing"]
"""Means to resolve a send with an unknown result: a key by which the platform recognises a
repeated post, a way to ask for it, or nothing."""

_decode_notes: Callable[[bytes], dict[str, str]] = msgspec.msgpack.Decoder(dict[str, str]).decode


class RateKey(msgspec.Struct, frozen=True):
    """A rate of calls that all replicas share: `per_s` a second and `burst` at once. A call with
    a `reserve` leaves that many to others. `name` is unique within the channel, such as `bot` or
    `chat:<session>`."""

    name: str
    per_s: float
    burst: int
    reserve: int = 0


class PendingLine(NumberedLine, frozen=True):
    """A line that waits for delivery, and its age."""

    age_s: float = 0.0


class DeliveryState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a chat's delivery. `pending` are the oldest waiting lines; the platform has `part`
    posts of the first. `unclear`: another lease was about to send the next post, and may have.
    `streamed_message` is a turn and the message it is streamed into; `pending_stream` the turn and
    key of one that was about to be sent. `running` is the turn that runs or comes next."""

    pending: tuple[PendingLine, ...]
    part: int = 0
    unclear: bool = False
    streamed_message: tuple[int, str] | None = None
    pending_stream: tuple[int, str] | None = None
    closed: bool = False
    notes: Mapping[str, str] = {}
    running: int | None = None
    background: bool = False  # true when no person waits for the answer of this turn
    tries: int = 0  # number of times the first line was put off since something of it arrived


class LeasedChat(DeliveryState, frozen=True, kw_only=True):
    """A chat that this process may deliver, as it was when leased. `owner_lost`: its last owner is
    late or dead."""

    session: str
    token: str
    owner_lost: bool = False


class Cleared(msgspec.Struct, frozen=True):
    """The platform may be called now. `unclear`: the same post may already exist."""

    unclear: bool


class Wait(msgspec.Struct, frozen=True):
    """The platform may not be called for `seconds`. Only the lease was renewed."""

    seconds: float


def parse_state(row: list[Any]) -> dict[str, Any]:
    """Parse the state that the scripts return into the fields of DeliveryState."""
    entries, part, unclear, streamed, closed, notes, tries, running, background, pending = row
    lines = (PendingLine(int(seq), read_line(line), int(age) / 1000) for seq, age, line in entries)
    return {
        "pending": tuple(lines),
        "part": part,
        "unclear": unclear == 1,
        "streamed_message": _parse_turn_value(streamed),
        "pending_stream": _parse_turn_value(pending),
        "closed": closed == 1,
        "notes": _decode_notes(notes) if notes else {},
        "tries": int(tries),
        "running": int(running) if running else None,
        "background": background == 1,
    }


def _parse_turn_value(field: bytes) -> tuple[int, str] | None:
    # `<turn> <value>`: the value may contain spaces.
    turn, _, what = field.decode().partition(" ")
    return (int(turn), what) if turn else None


def rate_args(rates: Sequence[RateKey]) -> list[Value]:
    """Return the script arguments of rates; for each: us between two calls, calls at once, calls
    reserved for others."""
    args: list[Value] = []
    for rate in rates:
        args += math.ceil(1_000_000 / rate.per_s), max(1, rate.burst), rate.reserve
    return args
