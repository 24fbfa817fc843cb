"""How long a quiet chat waits beside a busy one: `python -m proof.chaos.fairness --messages 20`.

One worker with few slots and the demo model. A person says something, waits for the answer, and says the next thing:
alone; beside a chat with 1,000 messages; beside one person with 200 chats; beside 500 ticks that are due. How long each
of those messages waited until its turn began, and how long turns last, the worker's log says. The exit code is 1 when a
message waited for longer than one turn, or something that was said elsewhere was lost.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from proof.chaos.recovery import times_of
from proof.chaos.stage import Row, Stage, perform, stage
from shared.ids import log_id
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import OutboundMessage
from shared.messages.schedule import BACKGROUND
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox, InboxLimits
from tests.helpers.build import message
from tests.helpers.wait import eventually

SLOTS: Final = 5
"""Beside one chat there is one slot, or it would hold nobody up."""

WORDS: Final = "Calculate 12 * 7"
SLACK_S: Final = 0.3
"""What lies between the end of a turn and the beginning of the next, on a machine that does other things."""

Crowd = Callable[[Inbox], Awaitable[list[str]]]
"""Says all at once; the sessions in which something was said."""


class Turn(NamedTuple):
    """One line of a worker's log about a turn that ended."""

    session: str
    waited_s: float
    seconds: float


async def nobody(_: Inbox) -> list[str]:
    """An idle fleet."""
    return []


async def one_chat(inbox: Inbox, *, messages: int) -> list[str]:
    """One chat with many messages."""
    for _ in range(messages):
        await inbox.ingest(_sent("busy", "busy/a"))
    return ["web:busy/a"]


async def many_chats(inbox: Inbox, *, chats: int) -> list[str]:
    """One person with a message in each of many chats."""
    names = [f"busy/{i}" for i in range(chats)]
    for name in names:
        await inbox.ingest(_sent("busy", name))
    return [f"web:{name}" for name in names]


async def many_ticks(inbox: Inbox, *, ticks: int) -> list[str]:
    """Schedules of as many chats that are due at once."""
    names = [f"owner{i}/a" for i in range(ticks)]
    for i, name in enumerate(names):
        message = _sent(f"owner{i}", name)
        await inbox.ingest(msgspec.structs.replace(message, metadata={BACKGROUND: "1"}), internal=True)
    return [f"web:{name}" for name in names]


def _sent(who: str, chat: str) -> InboundMessage:
    return msgspec.structs.replace(message(WORDS, chat=chat), sender_id=who)


async def fairness(folder: Path, *, messages: int, scale: float) -> Sequence[Row]:
    """All four, one after the other, each on a server of its own."""
    crowds: dict[str, Crowd] = {
        "idle": nobody,
        f"a chat with {int(1000 * scale)} messages": partial(one_chat, messages=int(1000 * scale)),
        f"a person with {int(200 * scale)} chats": partial(many_chats, chats=int(200 * scale)),
        f"{int(500 * scale)} ticks": partial(many_ticks, ticks=int(500 * scale)),
    }
    rows: list[Row] = []
    for nth, (name, crowd) in enumerate(crowds.items()):
        below = folder / str(nth)
        below.mkdir()
        slots = 1 if name.startswith("a chat") else SLOTS
        async with stage(below, workers=1, env={"SHOAL_WORKER__TURNS": str(slots)}, watched=False) as on:
            rows += await beside(on, name, crowd, messages=messages)
    return rows


async def beside(on: Stage, name: str, crowd: Crowd, *, messages: int) -> list[Row]:
    """What a quiet person meets."""
    inbox = Inbox(on.client, InboxLimits(cap=2000))
    there = await crowd(inbox)
    held_up = 0
    for nth in range(messages):
        message = _sent("quiet", "quiet/a")
        await inbox.ingest(message)
        await eventually(partial(_answered, on.client, "web:quiet/a", nth + 1), within_s=120)
        held_up += await _due(on.client) > 0
    turns = _turns(on)
    quiet = [turn for turn in turns if turn.session == log_id("web:quiet/a")]
    longest = max(turn.seconds for turn in turns)
    waits = times_of([turn.waited_s for turn in quiet])
    lost = sum([await _silent(on.client, session) for session in there])
    return [
        Row(f"{name}: turns of others while it waited", len(turns) - len(quiet)),
        Row(f"{name}: of its messages, that came while others waited", held_up),
        Row(f"{name}: the longest turn, s", longest),
        Row(f"{name}: wait p50, s", waits.p50),
        Row(f"{name}: wait at most, s", waits.worst, waits.worst <= longest + SLACK_S),
        Row(f"{name}: chats with neither an answer nor a place in a queue", lost, lost == 0),
    ]


async def _answered(client: RedisClient, session: str, many: int) -> bool:
    lines = [one.line for one in await Outbox(client).read_after(session, after=0)]
    return sum(isinstance(line, OutboundMessage) and line.kind == "reply" for line in lines) >= many


async def _due(client: RedisClient) -> int:
    turns, background, running = await client.pipeline(
        [("ZCARD", keys.queue("turns")), ("ZCARD", keys.queue(keys.BACKGROUND)), ("HLEN", keys.leases("turns"))]
    )
    return int(turns) + int(background) - int(running)


async def _silent(client: RedisClient, session: str) -> bool:
    if await _answered(client, session, 1):
        return False
    member = keys.turn(session)
    scores = await client.pipeline([("ZSCORE", keys.queue(name), member) for name in ("turns", keys.BACKGROUND)])
    return scores == [None, None] and not await _answered(client, session, 1)


def _turns(on: Stage) -> list[Turn]:
    found = []
    for worker in on.fleet.workers:
        for line in worker.log.splitlines():
            if '"turn ended"' in line:
                message = msgspec.json.decode(line)
                found.append(Turn(message["session"], message["waited_ms"] / 1000, message["seconds"]))
    return found


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.fairness")
    parser.add_argument("--messages", type=int, default=20, help="that the quiet person says")
    parser.add_argument("--scale", type=float, default=1.0, help="of the crowd: 1,000 messages, 200 chats, 500 ticks")
    given = parser.parse_args()
    play = partial(fairness, messages=given.messages, scale=given.scale)
    return perform("how long a quiet chat waits", play, within_s=1800)


if __name__ == "__main__":
    sys.exit(main())
