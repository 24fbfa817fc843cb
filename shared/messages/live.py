"""Live events of a running turn, by pub/sub. They may be lost; the chat's log is the truth."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

TurnState = Literal["started", "done", "stopped", "failed"]


class TurnEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="turn"):
    """A turn began or ended. The first is written by `acquire.lua`."""

    turn: int
    state: TurnState
    attempt: int = 1


class Takeover(msgspec.Struct, frozen=True):
    """A worker died while it wrote a reply, and another one went on `after_ms` later: from the last
    text of the first to the next of the second, by the clocks of both. Workers by their names."""

    lost: str
    by: str
    after_ms: int


class DeltaEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="delta"):
    """More text of the running reply. `seq` counts from 0 within (turn, attempt). `full` means that
    `text` is everything so far and replaces what is shown: sent first, at times, and when shown
    text is withdrawn. `step` is the length of the turn's ledger when this text began. What is
    recorded says when it was sent (`at`, in ms); a full text also who wrote it (`worker`), and who
    died."""

    turn: int
    attempt: int
    seq: int
    text: str
    full: bool = False
    step: int = 0
    at: int = 0
    worker: str = ""
    takeovers: tuple[Takeover, ...] = ()


class ProgressEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="progress"):
    """A line about the agent's current action, such as `calculate("2+2")`; as a `note` it says in
    words why nothing happens: `the model is overloaded; trying again in 12 s`."""

    turn: int
    text: str
    note: bool = False


class JoinedEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="joined"):
    """Waiting messages, named by their numbers, joined a running turn. Written by `take.lua`."""

    turn: int
    messages: tuple[int, ...]


LiveEvent = TurnEvent | DeltaEvent | ProgressEvent | JoinedEvent

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], LiveEvent] = msgspec.json.Decoder(LiveEvent).decode


def encode_live(event: LiveEvent) -> bytes:
    """Encode an event as JSON, so that a gateway can pass it to a page nearly unchanged."""
    return _encode(event)


def decode_deltas(records: Iterable[bytes]) -> Iterator[DeltaEvent]:
    """Yield the deltas of a recorded text. What is none, in a broken record, is passed over."""
    for record in records:
        with contextlib.suppress(msgspec.DecodeError, ValueError):
            if isinstance(event := _decode(record), DeltaEvent):
                yield event


def decode_live(data: bytes) -> LiveEvent:
    """Decode an event. Raises msgspec.DecodeError for anything else."""
    return _decode(data)
