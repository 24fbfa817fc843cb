"""Forgetting: the memory of a session, its mark, or everything about it; and the end of ephemeral
sessions, which belong to one request over HTTP."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterable
from typing import Final

from shared.clock import SYSTEM_CLOCK
from shared.errors import Refused
from shared.ids import split_session
from shared.messages.inbound import InboundMessage
from shared.messages.live import TurnEvent, encode_live
from shared.messages.outbound import OutboundMessage
from shared.messages.sources import Sources, merge_sources
from shared.store import keys
from shared.store.access.audit import CONSOLE, Audit
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient, pairs
from shared.store.jobs.jobs import JOB, QUEUE, RESULT, RETRY, forget_media
from shared.store.schedules.agenda import Agenda, AgendaEntry, score_ms
from shared.store.sessions.memory import soul_scope
from shared.store.sessions.session import Change, InboxChanged, Sessions, SessionState
from shared.store.sessions.workspace_marks import folder_scope
from shared.store.turns.dead_letters import DeadLetters
from shared.store.turns.inbox import TURNS, Inbox

OPERATOR: Final = "operator"
TRIES: Final = 10
SCAN_COUNT: Final = 2000
LETTERS: Final = 500
UNDO_MS: Final = 10_000
UNDO_MARGIN_MS: Final = 5_000
"""A person has UNDO_MS to undo the deletion of a chat; the margin is for the way of their click."""

FORGOTTEN_NOTICE: Final = (
    "Whoever runs this service has deleted what I remembered here and ended this conversation. "
    "The messages that you see above I do not read any more."
)

TRUSTED_NOTICE: Final = "Whoever runs this service trusts what I have read here so far."

_CONVERSATION: Final = (keys.session, keys.inbox, keys.ledger, keys.history, keys.archive)
_EPHEMERAL: Final = (*_CONVERSATION, keys.outbox, keys.schedules)
OWN_KEYS: Final = (
    *_EPHEMERAL,
    keys.transcript,
    keys.pages,
    keys.out,
    keys.delivered_text,
    keys.album_parts,
    keys.responses,
)
"""Keys that belong to one session alone, apart from those of its memory and its days."""


async def forget(client: RedisClient, session: str) -> None:
    """Do what `/forget` does in the chat, in an operator's name and also for a shared memory, and
    notify the chat. Raises Refused when messages keep coming faster than that, RedisAway."""
    await _command(client, session, "forget", FORGOTTEN_NOTICE)
    await forget_media(client, session)


async def trust(client: RedisClient, session: str) -> Sources:
    """Do what `/trust` does in the chat, in an operator's name and also for a shared memory, notify
    the chat, and return the sources that marked it. Raises Refused and RedisAway like `forget`."""
    state = await _command(client, session, "trust_all", TRUSTED_NOTICE)
    trusted = merge_sources(state.sources, state.file_sources, state.memory_sources, state.folder_sources)
    await Audit(client).record("approval", "trusted", actor=CONSOLE, session=session, about=f"{len(trusted)} sources")
    return trusted


async def _command(client: RedisClient, session: str, change: Change, notice: str) -> SessionState:
    """Make the change of a chat command in an operator's name; return the state before it."""
    channel, chat_id = split_session(session)
    command = InboundMessage(
        channel=channel,
        chat_id=chat_id,
        sender_id=OPERATOR,
        id=f"{change}-{secrets.token_hex(8)}",
        content=f"/{change}",
        timestamp=SYSTEM_CLOCK.now_ms(),
    )
    sessions = Sessions(client)
    for _ in range(TRIES):
        scope = (await sessions.state(session)).scope
        state = await sessions.state(session, scope=scope)
        ends = change == "forget"
        also = (folder_scope(state.folder) if state.folder_sources else "", "")
        answer = OutboundMessage(
            content=notice,
            turn=state.counter if ends else 0,
            in_reply_to=(command.id, *(filter(None, state.waiting) if ends else ())),
            kind="command",
            at=command.timestamp,
        )
        with contextlib.suppress(InboxChanged):
            await sessions.answer_command(command, answer, state, change=change, earlier=also)
            return state
    fast = f"session {session!r} changes faster than this can be done; try again"
    raise Refused("busy", fast, 1)


async def erase(client: RedisClient, session: str) -> int:
    """Delete everything about a session: memory, conversation, waiting messages, the log, the files
    that were sent, dead letters, what was spent, and the ids of its messages, so that one that is
    delivered again counts as new. Return how many keys and records were deleted. The session ends
    at once; the rest follows, and may be repeated when it was interrupted. Raises RedisAway."""
    scope = f"chat:{session}"
    turn = 0
    with contextlib.suppress(Refused):  # a key of it is broken; erasing mends it
        state = await Sessions(client).state(session)
        scope = state.scope
        turn = state.turn
    # First the session itself, atomically: from here on nothing can be written for it.
    gone = await _erase_session(client, session, OWN_KEYS, scope, turn)
    gone += await _erase_jobs(client, session)
    await forget_media(client, session)
    gone += await _erase_days(client, session)
    gone += await _erase_letters(client, session)
    gone += await _erase_from_lists(client, session)
    return gone + await _erase_seen(client, session)


def written_since(written_ms: int, due_ms: int) -> bool:
    """Tell whether a person wrote to a chat after they deleted it; `due_ms` is when it is
    erased."""
    return written_ms > due_ms - UNDO_MS - UNDO_MARGIN_MS


async def erase_deleted_chat(client: RedisClient, due: AgendaEntry) -> bool:
    """Erase a chat whose deletion is due, apart from what nobody finds without walking through all
    keys, and which expires: what was spent, and ids of messages. Return False when its person has
    written to it since. Raises RedisAway."""
    session = due.member
    channel, chat_id = split_session(session)
    listed = keys.chats(channel, chat_id.rpartition("/")[0])
    written = await client.command("ZSCORE", listed, chat_id)
    if written is not None and written_since(score_ms(written), due.at_ms):
        return False
    await _erase_session(client, session, _EPHEMERAL, f"chat:{session}", 0)
    await forget_media(client, session)
    await _drop_letters(client, session)
    await client.command("ZREM", listed, chat_id)
    return True


async def _drop_letters(client: RedisClient, session: str) -> None:
    start = "-"
    members = (f"turn:{session}".encode(), f"out:{session}".encode())
    while page := await client.command("XRANGE", keys.DEAD, start, "+", "COUNT", LETTERS):
        found = [id for id, fields in page if dict(pairs(fields)).get(b"member") in members]
        if found:
            await client.command("XDEL", keys.DEAD, *found)
        start = f"({page[-1][0].decode()}"


class EphemeralSessions:
    """Ends ephemeral sessions. Their data in Redis is deleted at once; a worker that reads
    `agenda` deletes their files. Every method raises RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self.agenda = Agenda(client, keys.EPHEMERAL)

    async def end(self, session: str, turn: int = 0) -> None:
        """Delete a session. A running turn is told to stop and can write nothing more; those who
        wait for `turn` learn at once that it is over."""
        # Due in any case: if this process dies now, a worker deletes the rest.
        await self._client.command("ZADD", keys.EPHEMERAL, 0, session)
        await self.erase(session, turn)

    async def erase(self, session: str, turn: int = 0) -> None:
        """Delete a session that was read from the agenda."""
        await _erase_session(self._client, session, _EPHEMERAL, f"chat:{session}", turn)


async def _erase_session(client: RedisClient, session: str, own: Iterable[keys.Keys], scope: str, turn: int) -> int:
    scopes = dict.fromkeys((f"chat:{session}", scope, soul_scope(session)))
    memory = (kind(one) for one in scopes for kind in (keys.memory, keys.memlog))
    gone: int = await client.run(
        "sessions/erase",
        session=session,
        queue=TURNS,
        member=keys.turn(session),
        scope=scope,
        control=keys.CONTROL,
        turn=turn,
        event=encode_live(TurnEvent(turn, "stopped")),
        own=pack([*(kind(session) for kind in own), *memory]),
    )
    return gone


async def _erase_jobs(client: RedisClient, session: str) -> int:
    """Delete jobs, named `what:session` or `what:scope`. A running one loses its lease."""
    gone = 0
    queue = keys.queue(QUEUE)
    async for flat in client.scan("ZSCAN", queue, match=f"*:{_glob(session)}", count=SCAN_COUNT):
        for member in flat[::2]:
            id = member.decode()
            if id.partition(":")[2] not in (session, f"chat:{session}"):
                continue
            gone += await client.command("ZREM", queue, id)
            # Whoever runs it notices at its next renewal.
            await client.command("HDEL", keys.leases(QUEUE), id)
            gone += await client.command("DEL", *(f"{client.arq}{kind}{id}" for kind in (JOB, RESULT, RETRY)))
            await client.command("DEL", keys.crashed(id))
    return gone


async def _erase_days(client: RedisClient, session: str) -> int:
    gone = 0
    prefix = f"{keys.PREFIX}spent:{session}:"
    async for key in _scan(client, f"{_glob(prefix)}*"):
        if key.removeprefix(prefix).isdigit():
            gone += await client.command("DEL", key)
    return gone


async def _erase_letters(client: RedisClient, session: str) -> int:
    letters = DeadLetters(client, Inbox(client))
    gone = 0
    async for letter in letters.all():
        if letter.session == session:
            gone += await letters.drop(letter)
    return gone


async def _erase_from_lists(client: RedisClient, session: str) -> int:
    """Remove the chat from every list of chats."""
    channel, chat_id = split_session(session)
    gone = 0
    async for key in _scan(client, f"{_glob(keys.chats(channel, ''))}*"):
        with contextlib.suppress(Refused):  # a broken list has no chats
            gone += await client.command("ZREM", key, chat_id)
    return gone


async def _erase_seen(client: RedisClient, session: str) -> int:
    channel, chat = split_session(session)
    # A thread's messages are known by the chat that it is a thread of.
    prefixes = {f"{chat_id}/" for chat_id in (chat, chat.partition("#")[0])}
    gone = 0
    async for key in _scan(client, f"{_glob(keys.seen(channel))}*"):
        for prefix in prefixes:
            async for flat in client.scan("HSCAN", key, match=f"{_glob(prefix)}*", count=SCAN_COUNT):
                # `a/b/7` is message 7 of chat `a/b`, not of chat `a`.
                ids = [id for id in flat[::2] if b"/" not in id.removeprefix(prefix.encode())]
                if ids:
                    gone += await client.command("HDEL", key, *ids)
    return gone


async def _scan(client: RedisClient, pattern: str) -> AsyncIterator[str]:
    async for page in client.scan("SCAN", match=pattern, count=SCAN_COUNT):
        for key in page:
            yield key.decode()


def _glob(text: str) -> str:
    """Escape a text as a pattern that matches only itself."""
    return "".join(f"\\{sign}" if sign in "*?[]^\\" else sign for sign in text)
