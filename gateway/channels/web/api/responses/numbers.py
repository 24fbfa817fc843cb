"""Numbers of the events of a stream: places in its text, so that any gateway can go on after each
of them. No I/O.

A number is `length * SCALE + low`. `length` counts the characters of the first item, and `low` is
a checksum of them at the end of a delta, so that a gateway can tell whether the text that a client
has is how its own begins. Events that are no delta of the first item have a `low` below DELTA: in
the order of this list, with length 0 before the text, and one more than its length after it."""

from __future__ import annotations

from typing import Final
from zlib import crc32

from gateway.channels.web.api.errors import ApiError, bad_parameter
from shared.messages.outbound import StoredAnswer

SCALE: Final = 8192
"""Keeps numbers of 262,000 characters within 31 bits: some clients read no longer ones."""

LONGEST: Final = 1024 * 1024
"""Most characters of a text that a stream shows; lines of a chat are shorter."""

DELTA: Final = 512

# Before the text.
CREATED: Final = 0
IN_PROGRESS: Final = 1
BEGIN: Final = 2  # the first of two events that begin an item

# After the text of the first item.
END: Final = 0  # the first of three events that end an item
END_ABANDONED: Final = 3  # the same, of an item that is not the answer
BEGIN_OTHER: Final = 6
DELTA_OTHER: Final = 8
END_OTHER: Final = 9
ERROR: Final = 11  # a response that fails has no other item
CALLS: Final = 16  # the first of four events of the first call; at most 64 follow one another
LAST: Final = DELTA - 2


def delta_number(length: int, checksum: int) -> int:
    """Return the number of the delta after which the text has this length and `crc32`."""
    return length * SCALE + DELTA + checksum % (SCALE - DELTA)


def begins_with(text: str, number: int) -> bool:
    """Tell whether a client that has this delta, and all before it, has the beginning of `text`."""
    length = number // SCALE
    return length <= len(text) and delta_number(length, crc32(text[:length].encode())) == number


def parse_after(raw: str) -> int:
    """Parse `starting_after`. Raises ApiError."""
    if not (raw.isascii() and raw.isdecimal() and len(raw) <= 18):
        raise bad_parameter("starting_after", "'starting_after' must be the sequence_number of an event")
    return int(raw)


def check_after(after: int, answer: StoredAnswer | None, *, in_one_piece: bool = False) -> None:
    """Raise ApiError unless an event of the response can have this number. `answer` is None while
    it runs. `in_one_piece`: its text has one delta, and none is ever taken back."""
    length, low = divmod(after, SCALE)
    known = len(answer.text) if answer is not None and answer.failed is None else None
    if length == 0:
        possible = low <= BEGIN + 1
    elif low >= DELTA and in_one_piece:
        possible = known == length and answer is not None and begins_with(answer.text, after)
    elif low >= DELTA:
        # A text that was taken back may have been longer than the answer.
        possible = length <= LONGEST
    elif low < END_ABANDONED:
        possible = length - 1 == known
    else:
        calls = 0 if answer is None else len(answer.calls)
        possible = answer is not None and (low <= ERROR or low == LAST or CALLS <= low < CALLS + 4 * calls)
    if not possible:
        raise _beyond()


def _beyond() -> ApiError:
    message = "this response has no such event; ask without 'starting_after' for all of them"
    return bad_parameter("starting_after", message)
