"""The newest turn of a chat, to be answered again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.messages.outbound import LogLine, OutboundMessage, UserLine
from shared.messages.transcript import UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import READ_CHANNELS
from shared.store.delivery.outbox import Outbox

LINES: Final = 200
"""Lines of the log in which the turn and its messages are looked for."""

ENTRIES: Final = 500
"""Entries of one turn that are read at most; a longer turn cannot be answered again."""

_ENDS: Final = ("reply", "stopped", "apology")


class LastTurn(msgspec.Struct, frozen=True):
    """The newest turn: its number, what its person wrote, with files, who that was ("" = somebody
    in the chat's log), its entries at the end of the conversation, and the length of that."""

    turn: int
    text: str
    media: tuple[str, ...]
    sender_id: str
    gone: int
    entries: int


async def read_last_turn(client: RedisClient, session: str) -> LastTurn | None:
    """Return the newest turn. None where there is none since `/new`, where a person did not begin
    it, or where it is in memory already. Raises RedisAway."""
    key = keys.history(session)
    length, records, done = await client.pipeline(
        [("LLEN", key), ("LRANGE", key, -ENTRIES, -1), ("HGET", keys.session(session), "done")]
    )
    known = [decode_transcript.or_none(record) for record in records]
    number = known[-1].turn if known and known[-1] else 0
    newest: list[UserEntry] = []
    gone = 0
    for entry in reversed(known):
        if entry is None or entry.turn != number:
            break
        gone += 1
        newest += [entry] if isinstance(entry, UserEntry) else []
    first = newest[-1] if newest else None
    if session.partition(":")[0] in READ_CHANNELS:
        lines = await Outbox(client).read_before(session, seq=None, limit=LINES)
        turn, asked = _turn_of_log([line.line for line in lines])
        # A turn that failed is not in the conversation; one that begins beyond it is in memory in
        # part.
        left = gone if turn == number else 0
        if not asked or turn < number or (left and first is None):
            return None
        texts = "\n\n".join(line.text for line in asked if line.text)
        files = tuple(ref for line in asked for ref in line.media)
        return LastTurn(turn, texts, files, "", left, length)
    # Messages that joined the turn count with it. Further ones failed, and are kept nowhere.
    if first is None or int(done or 0) > number + len(newest) - 1:
        return None
    texts = "\n\n".join(entry.content for entry in reversed(newest))
    return LastTurn(number, texts, (), first.sender_id, gone, length)


def _turn_of_log(lines: Sequence[LogLine]) -> tuple[int, list[UserLine]]:
    """Return the newest turn that the log shows, with its messages; 0 where it shows none."""
    own = {line.id: line for line in lines if isinstance(line, UserLine)}
    for line in reversed(lines):
        if not isinstance(line, OutboundMessage):
            continue
        if line.kind == "command" and line.turn:
            break  # `/new`, `/forget`: what was before is over
        if line.kind in _ENDS and line.turn:
            return line.turn, [own[id] for id in line.in_reply_to if id in own]
    return 0, []
