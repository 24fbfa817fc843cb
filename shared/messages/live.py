"""Live events of a running turn, by pub/sub. They may be lost; the chat's log is the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

TurnState = Literal["started", "done", "stopped", "failed"]


class TurnEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="turn"):
    """A turn began or ended. The first is written by `acquire.lua`."""

    turn: int
    state: TurnState
    attempt: int = 1


class DeltaEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="delta"):
    """More text of the running reply. `seq` counts from 0 within (turn, attempt). `full` means that
    `text` is everything so far and replaces what is shown: sent first, at times, and when shown
    text is withdrawn."""

    turn: int
    attempt: int
    seq: int
    text: str
    full: bool = False


class ProgressEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="progress"):
    """A line about the agent's current action, such as `calculate("2+2")`."""

    turn: int
    text: str


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


def decode_live(data: bytes) -> LiveEvent:
    """Decode an event. Raises msgspec.DecodeError for anything else."""
    return _decode(data)
