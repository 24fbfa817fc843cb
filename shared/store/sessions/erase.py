"""Forgetting: the memory of a session, or everything about it; and the end of ephemeral sessions,
which belong to one request over HTTP."""

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
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.jobs.jobs import JOB_PREFIX, QUEUE, RESULT_PREFIX, forget_media
from shared.store.schedules.agenda import Agenda
from shared.store.sessions.session import InboxChanged, Sessions
from shared.store.turns.dead_letters import DeadLetters
from shared.store.turns.inbox import TURNS, Inbox

OPERATOR: Final = "operator"
TRIES: Final = 10
SCAN_COUNT: Final = 2000
JOB_PREFIXES: Final = (JOB_PREFIX, RESULT_PREFIX, "arq:retry:")
FORGOTTEN_NOTICE: Final = (
    "Whoever runs this service has deleted what I remembered here and ended this conversation. "
    "The messages that you see above I do not read any more."
)

_CONVERSATION: Final = (keys.session, keys.inbox, keys.ledger, keys.history, keys.archive)
_EPHEMERAL: Final = (*_CONVERSATION, keys.outbox, keys.schedules)
OWN_KEYS: Final = (*_EPHEMERAL, keys.out, keys.delivered_text)
"""Keys that belong to one session alone, apart from those of its memory and its days."""


async def forget(client: RedisClient, session: str) -> None:
    """Do what `/forget` does in the chat, in an operator's name and also for a shared memory, and
    notify the chat. Raises Refused when messages keep coming faster than that, RedisAway."""
    channel, chat_id = split_session(session)
    command = InboundMessage(
        channel=channel,
        chat_id=chat_id,
        sender_id=OPERATOR,
        id=f"forget-{secrets.token_hex(8)}",
        content="/forget",
        timestamp=SYSTEM_CLOCK.now_ms(),
    )
    sessions = Sessions(client)
    for _ in range(TRIES):
        state = await sessions.state(session)
        answer = OutboundMessage(
            content=FORGOTTEN_NOTICE,
            turn=state.counter,
            in_reply_to=(command.id, *filter(None, state.waiting)),
            kind="command",
            at=command.timestamp,
        )
        try:
            await sessions.answer_command(command, answer, state, change="forget")
        except InboxChanged:
            continue
        await forget_media(client, session)
        return
    fast = f"session {session!r} changes faster than it can be forgotten; try again"
    raise Refused("busy", fast, 1)


async def erase(client: RedisClient, session: str) -> int:
    """Delete everything about a session: memory, conversation, waiting messages, the log, the files
    that were sent, dead letters, what was spent, and the ids of its messages, so that one that is
    delivered again counts as new. Return how many keys and records were deleted. The session ends
    at once; the rest follows, and may be repeated when it was interrupted. Raises RedisAway."""
    scope, turn = f"chat:{session}", 0
    with contextlib.suppress(Refused):  # a key of it is broken; erasing mends it
        state = await Sessions(client).state(session)
        scope, turn = state.scope, state.turn
    # First the session itself, atomically: from here on nothing can be written for it.
    gone = await _erase_session(client, session, OWN_KEYS, scope, turn)
    gone += await _erase_jobs(client, session)
    await forget_media(client, session)
    gone += await _erase_days(client, session)
    gone += await _erase_letters(client, session)
    gone += await _erase_from_lists(client, session)
    return gone + await _erase_seen(client, session)


class EphemeralSessions:
    """Ends ephemeral sessions. Their data in Redis is deleted at once; a worker that reads
    `agenda` deletes their files. Every method raises RedisAway."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self.agenda = Agenda(client, keys.EPHEMERAL)

    async def end(self, session: str) -> None:
        """Delete a session. A running turn is told to stop and can write nothing more."""
        # Due in any case: if this process dies now, a worker deletes the rest.
        await self._client.command("ZADD", keys.EPHEMERAL, 0, session)
        await self.erase(session)

    async def erase(self, session: str) -> None:
        """Delete a session that was read from the agenda."""
        await _erase_session(self._client, session, _EPHEMERAL, f"chat:{session}", 0)


async def _erase_session(client: RedisClient, session: str, own: Iterable[keys.Keys], scope: str, turn: int) -> int:
    chat = keys.inbox(session), keys.queue(TURNS), keys.leases(TURNS), keys.live(session)
    scopes = dict.fromkeys((f"chat:{session}", scope))
    memory = (kind(one) for one in scopes for kind in (keys.memory, keys.memlog))
    stopped = turn, encode_live(TurnEvent(turn, "stopped"))
    gone: int = await client.run(
        "sessions/erase",
        [*chat, keys.IDLE, keys.REWORK, *(kind(session) for kind in own), *memory],
        [session, keys.turn(session), scope, keys.CONTROL, *stopped],
    )
    return gone


async def _erase_jobs(client: RedisClient, session: str) -> int:
    """Delete jobs, named `what:session` or `what:scope`. A running one loses its lease."""
    gone, queue = 0, keys.queue(QUEUE)
    async for flat in client.scan("ZSCAN", queue, match=f"*:{_glob(session)}", count=SCAN_COUNT):
        for member in flat[::2]:
            id = member.decode()
            if id.partition(":")[2] not in (session, f"chat:{session}"):
                continue
            gone += await client.command("ZREM", queue, id)
            # Whoever runs it notices at its next renewal.
            await client.command("HDEL", keys.leases(QUEUE), id)
            gone += await client.command("DEL", *(f"{prefix}{id}" for prefix in JOB_PREFIXES))
            await client.command("DEL", keys.crashed(id))
    return gone


async def _erase_days(client: RedisClient, session: str) -> int:
    gone = 0
    prefix = f"shoal:spent:{session}:"
    async for key in _scan(client, f"{_glob(prefix)}*"):
        if key.removeprefix(prefix).isdigit():
            gone += await client.command("DEL", key)
    return gone


async def _erase_letters(client: RedisClient, session: str) -> int:
    letters, gone = DeadLetters(client, Inbox(client)), 0
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
