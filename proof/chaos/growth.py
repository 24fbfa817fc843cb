"""What stays in Redis: `python -m proof.chaos.growth --chats 50`.

Three equal rounds of load, each in chats of its own, behind one that warms everything up (the server's tables, scripts,
connections). After each it is quiet, then the chats are erased, and what goes by itself in a day or two (the ids of
messages that were seen, say) is taken away: memory must be what it was after the first round.
And what one idle chat costs, by kind of key.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from proof.chaos.load import Crowd
from proof.chaos.stage import Row, perform, stage, zero
from proof.chaos.verdict import debris
from shared.errors import ShoalError
from shared.store import keys
from shared.store.client.connection import ReplyError
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import erase
from tests.helpers.wait import eventually

ROUNDS: Final = 3
GROWTH: Final = 0.02
SESSION_BYTES: Final = 300
LOG_OVERHEAD: Final = 1.5
SEVERAL_NODES_BYTES: Final = 4096
"""A log shorter than this is mostly its first node; its share says nothing."""

IDLE_KINDS: Final = frozenset({"session", "history", "transcript", "memory", "memlog", "outbox", "spent", "used"})


async def growth(folder: Path, *, chats: int, messages: int) -> Sequence[Row]:
    """Three rounds, judged."""
    used: list[int] = []
    rows: list[Row] = []
    async with stage(folder, workers=2, watched=False) as on:
        wrongs: dict[str, int] = defaultdict(int)
        left: list[str] = []
        for number in range(ROUNDS + 1):
            crowd = Crowd(on.client, [f"r{number}c{i:03}" for i in range(chats)])
            crowd.start(messages)
            wrongs["never answered"] += await crowd.ended()
            for name, count in (await crowd.wrongs()).items():
                wrongs[name] += count
            left += await debris(on.client)
            if number == ROUNDS:
                rows = await _idle_cost(on.client, [chat.session for chat in crowd.chats])
            for chat in crowd.chats:
                await erase(on.client, chat.session)
            await _a_day_later(on.client)
            used.append(await _settled(on.client))
        warmed, *used = used
        grown = used[-1] / used[0] - 1
        return [
            Row("messages a round", chats * messages),
            Row("memory after the round that warms up, bytes", warmed),
            *(Row(f"memory after round {number}, bytes", value) for number, value in enumerate(used, 1)),
            Row("growth from round 1 to 3, %", 100 * grown, grown <= GROWTH),
            *rows,
            *zero(wrongs),
            Row("left behind", ", ".join(left) or 0, not left),
        ]


async def _idle_cost(client: RedisClient, sessions: Sequence[str]) -> list[Row]:
    """Bytes of one idle chat, by MEMORY USAGE with every element counted."""
    cost: dict[str, list[int]] = defaultdict(list)
    overhead: dict[str, list[float]] = defaultdict(list)
    strange = set()
    for session in sessions:
        for name in await client.command("KEYS", f"shoal:{{0ax}}:*:{session}*"):
            kind = name.split(b":")[2].decode()
            bytes_used = await _size(client, name)
            cost[kind].append(bytes_used)
            text = await _text(client, kind, name)
            if text > SEVERAL_NODES_BYTES:
                overhead[kind].append(bytes_used / text)
            if kind not in IDLE_KINDS:
                strange.add(kind)
    rows = [Row(f"idle chat: {kind}, mean bytes", sum(found) // len(found)) for kind, found in sorted(cost.items())]
    biggest = max(cost["session"])
    rows.append(Row("biggest session hash, bytes", biggest, biggest <= SESSION_BYTES))
    for kind, ratios in sorted(overhead.items()):
        rows.append(Row(f"{kind}: memory for a byte of text, at most", max(ratios), max(ratios) <= LOG_OVERHEAD))
    rows.append(Row("keys of an idle chat that should not be", ", ".join(strange) or 0, not strange))
    return rows


async def _text(client: RedisClient, kind: str, name: bytes) -> int:
    """The bytes that a log's records have of their own."""
    if kind in ("history", "memlog"):
        return sum(len(entry) for entry in await client.command("LRANGE", name, 0, -1))
    if kind == "outbox":
        return sum(len(fields[1]) for _, fields in await client.command("XRANGE", name, "-", "+"))
    return 0


async def _size(client: RedisClient, name: bytes) -> int:
    return int(await client.command("MEMORY", "USAGE", name, "SAMPLES", 0))


async def _a_day_later(client: RedisClient) -> None:
    """What has an age goes now: ids of messages that were seen, what chats spent, lists of chats, results of jobs."""
    for pattern in (f"{keys.SEEN_PREFIX}*", "shoal:{0ax}:spent:*", "shoal:{0ax}:chats:*", "arq:result:*"):
        for name in await client.command("KEYS", pattern):
            await client.command("UNLINK", name)


async def _settled(client: RedisClient) -> int:
    """What is allocated when it stands still: the least of ten looks in two seconds, twice alike within 0.2 %.

    Buffers of connections and of the append-only file come and go, so they are left out, and what scripts left behind
    is collected first.
    """

    async def least() -> int:
        looks = []
        for _ in range(10):
            with contextlib.suppress(ShoalError, ReplyError):  # only some allocators can be purged
                await client.command("MEMORY", "PURGE")
            await client.command("EVAL", "collectgarbage() return 1", 0)
            result = await client.command("MEMORY", "STATS")
            stats = dict(zip(result[::2], result[1::2], strict=True))
            looks.append(stats[b"total.allocated"] - stats[b"clients.normal"] - stats[b"aof.buffer"])
            await asyncio.sleep(0.2)
        return int(min(looks))

    async def twice() -> int:
        first, second = await least(), await least()
        return second if abs(first - second) <= 0.002 * first else 0

    return await eventually(twice, within_s=60, what="memory that stands still")


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.growth")
    parser.add_argument("--chats", type=int, default=20)
    parser.add_argument("--messages", type=int, default=20, help="in each chat of each round")
    given = parser.parse_args()
    play = partial(growth, chats=given.chats, messages=given.messages)
    return perform("what stays in Redis", play, within_s=600 + 4 * given.chats * given.messages / 5)


if __name__ == "__main__":
    sys.exit(main())
