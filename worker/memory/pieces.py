"""Conversations as text for a model that keeps memory: which entries, how many, in which form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from shared.errors import BadRecord
from shared.messages.transcript import UserEntry, decode_transcript
from worker.agent.tools.text import shorten
from worker.memory.lines import Entry, middle_out, render_line

LINE_LEAST_CHARS: Final = 200
_USER: Final = b"\xa1t\xa4user"  # a user's record after its first byte, as its tag comes first


class ConversationPiece(msgspec.Struct, frozen=True):
    """The oldest `take` entries of a conversation as text. `last_ms` is the newest's time, or 0."""

    take: int
    text: str
    last_ms: int


def read_entries(records: Sequence[bytes]) -> list[Entry]:
    """Decode stored records, one entry for each."""
    entries: list[Entry] = []
    for record in records:
        try:
            entries.append(decode_transcript(record))
        except BadRecord:
            entries.append(None)
    return entries


def cut_point(entries: Sequence[Entry], total: int, keep: int) -> int:
    """Return how many of the oldest `entries` to take, so that about `keep` of `total` stay and the
    rest begins with a message. A message stays together with those that joined its turn, its tool
    calls, their results and its answer. `entries` may be fewer than `total`. Returns 0 for none."""
    target = total - keep
    if target <= 0:
        return 0
    borders = [at for at in range(1, len(entries)) if _begins(entries, at)]
    if keep == 0 and len(entries) == total:
        borders.append(total)
    if len(entries) < total and not borders:
        return len(entries)  # a turn that is longer than what may be read at once
    return min(borders, key=lambda at: (abs(at - target), at), default=0)


def next_piece(entries: Sequence[Entry], chars: int, timezone: str) -> ConversationPiece:
    """Return as many of the oldest messages, each with its whole turn, as fit into `chars`
    characters of text, but at least one turn; if it alone is longer, the middle of its text is left
    out, and the text says so. Raises ValueError if there are no entries."""
    if not entries:
        raise ValueError("there are no entries to make a piece of; ask only when some are left")
    named = len({entry.sender_id for entry in entries if isinstance(entry, UserEntry)}) > 1
    texts: list[str] = []
    take = size = 0
    for turn in _turns(entries):
        lines = [render_line(entry, timezone, named) for entry in turn]
        text = "\n".join(lines)
        if len(text) > chars:
            each = max(LINE_LEAST_CHARS, chars // len(lines))
            text = middle_out("\n".join(shorten(line, each) for line in lines), chars)
        if texts and size + len(text) > chars:
            break
        texts.append(text)
        take += len(turn)
        size += len(text) + 1
    last_ms = max((entry.at for entry in entries[:take] if entry is not None), default=0)
    return ConversationPiece(take, "\n".join(texts), last_ms)


def unread_piece(records: Sequence[bytes], total: int, keep: int, chars: int) -> ConversationPiece | None:
    """Return the oldest messages, each with its whole turn, of about `chars` characters, undecoded:
    for records that kill every worker that reads them. None if nothing can be taken."""
    if not records or total <= keep:
        return None
    is_user = [record[1:].startswith(_USER) for record in records]
    # Messages that one turn answers stand together; every turn ends with an answer.
    borders = [at for at in range(1, len(is_user)) if is_user[at] and not is_user[at - 1]]
    if keep == 0 if len(records) == total else not borders:
        borders.append(len(records))
    if not borders:
        return None
    sizes = list(accumulate(map(len, records)))
    fitting = [at for at in borders if at <= total - keep and sizes[at - 1] <= chars]
    take = fitting[-1] if fitting else borders[0]
    each = max(LINE_LEAST_CHARS, chars // take)
    text = "\n".join(_printable_part(record, each) for record in records[:take])
    return ConversationPiece(take, middle_out(text, chars), 0)


def _printable_part(record: bytes, chars: int) -> str:
    if len(record) > chars:
        record = record[: chars // 2] + b" ... " + record[-(chars // 2) :]
    return "".join(c if c.isprintable() else " " for c in record.decode("utf-8", "replace"))


def _turns(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    start = 0
    for at in range(1, len(entries)):
        if _begins(entries, at):
            yield entries[start:at]
            start = at
    yield entries[start:]


def _begins(entries: Sequence[Entry], at: int) -> bool:
    """Return whether a turn begins here: at a message that did not join the one before it."""
    before = entries[at - 1]
    entry = entries[at]
    if not isinstance(entry, UserEntry):
        return False
    return not (isinstance(before, UserEntry) and before.turn == entry.turn)
