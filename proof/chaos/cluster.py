"""Fail-overs and moves of our slot on a real cluster, under load: `python -m proof.chaos.cluster --rounds 25`.

Six Valkeys: three primaries with a replica each. A round is one of each kind: a fail-over by hand, a primary that is
killed, one that stands still and is resumed, our slot moved to another primary at once, and key by key. Between them
processes of the fleet are killed. Each message runs an unsafe tool. With `--copies 2` (the default here) nothing that
was confirmed may be lost, and no unsafe tool may run twice; while the former primary is away, nothing counts for three
seconds, until most primaries are known to see the new one.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from proof.chaos.failover import Play, play, unsafe_calls
from proof.chaos.faults import kill_gateway, kill_group, kill_worker
from proof.chaos.fleet import Fleet
from proof.chaos.recovery import times_of
from proof.chaos.stage import Row, perform, zero
from proof.chaos.tail import counted_wrongs
from proof.chaos.verdict import debris
from shared.store.client.redis_client import RedisClient
from tests.helpers.redis_cluster import NODE_TIMEOUT_S, RedisCluster, redis_cluster
from tests.helpers.wait import eventually

LEASE_S: Final = 15.0
KINDS: Final = ("by hand", "killed", "stopped", "moved at once", "moved key by key")


class Moves:
    """What is done to the cluster, each one until the cluster is whole again."""

    def __init__(self, cluster: RedisCluster, rng: random.Random) -> None:
        self._cluster, self._rng = cluster, rng

    async def do(self, kind: str, back: Callable[[], Awaitable[float]]) -> float:
        """Do it; return the seconds from its beginning to the first answer that was asked for after it began."""
        cluster, began = self._cluster, time.monotonic()
        former = await asyncio.to_thread(cluster.primary)
        if kind.startswith("moved"):
            target = self._rng.choice(await asyncio.to_thread(cluster.others))
            began = time.monotonic()
            await asyncio.to_thread(
                cluster.move_at_once if kind == "moved at once" else cluster.move_key_by_key, target
            )
        else:
            began = time.monotonic()
            change = {"by hand": lambda _: cluster.fail_over(), "killed": cluster.kill, "stopped": cluster.stop}
            await asyncio.to_thread(change[kind], former)
        await eventually(lambda: asyncio.to_thread(self._has_left, former), within_s=60, every_s=0.02)
        if kind == "killed":
            await asyncio.to_thread(cluster.start, former)
        elif kind == "stopped":
            await asyncio.to_thread(cluster.resume, former)
        await back()
        took_s = time.monotonic() - began
        await eventually(lambda: asyncio.to_thread(cluster.ready), within_s=60, every_s=0.1)
        return took_s

    def _has_left(self, former: int) -> bool:
        return self._cluster.primary() != former


async def rounds(folder: Path, *, wanted: int, kills: int, copies: int, seed: int) -> Sequence[Row]:
    """Break and move, judge."""
    rng = random.Random(seed)
    (folder / "nodes").mkdir()
    with redis_cluster(folder / "nodes") as cluster, unsafe_calls(folder, copies) as env:
        await eventually(lambda: asyncio.to_thread(cluster.attach), within_s=60, every_s=0.1)
        fleet = Fleet(cluster, None, folder, gateways=2, workers=3, lease_s=LEASE_S, env=env)
        async with play(fleet, cluster.url, copies) as on:
            return await _run(on, cluster, rng, folder, wanted=wanted, kills=kills, copies=copies)


async def _run(
    on: Play, cluster: RedisCluster, rng: random.Random, folder: Path, *, wanted: int, kills: int, copies: int
) -> Sequence[Row]:
    back: dict[str, list[float]] = defaultdict(list)
    moves, done = Moves(cluster, rng), 0
    talking = [asyncio.create_task(on.talk(talker)) for talker in on.talkers]
    for number in range(wanted):
        for kind in rng.sample(KINDS, len(KINDS)):
            await asyncio.sleep(rng.uniform(0.3, 1))
            back[kind].append(await moves.do(kind, on.back))
            while done < kills * (number + 1) // wanted:
                kill = rng.choice((kill_worker, kill_worker, kill_group, kill_gateway))
                done += await kill(on.fleet, rng, LEASE_S)
                on.fleet.keep()
                await asyncio.sleep(rng.uniform(0.1, 0.5))
    wedged = await on.end(talking)
    client = RedisClient(cluster.url)
    wrongs = await counted_wrongs(client, on.talkers)
    left = await debris(client)
    await client.close()
    marks = Counter((folder / "marks").read_text().split())
    again = sum(len(one.lost_ages) for one in on.talkers)
    twice = sum(count - 1 for count in marks.values())
    strict = copies > 1
    return [
        Row("rounds of five", wanted),
        Row("processes killed", done),
        Row("servers that a write waits for (redis.copies)", copies),
        Row("messages answered", sum(len(talker.seen_answered) for talker in on.talkers)),
        *(
            Row(
                f"an answer after it was {kind}: p50, p99, max s",
                "{1:.2f}, {2:.2f}, {3:.2f}".format(*times_of(back[kind])),
            )
            for kind in KINDS
        ),
        Row("cluster-node-timeout, s", NODE_TIMEOUT_S),
        Row("messages to be sent again", again, again == 0 if strict else None),
        Row("unsafe tools that ran", marks.total()),
        Row("of them twice", twice, twice == 0 if strict else None),
        *zero({"chats that do not go on": wedged, **wrongs}),
        Row("left behind", ", ".join(left) or 0, not left),
    ]


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.cluster")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    numbers = {"wanted": given.rounds, "kills": given.kills, "copies": given.copies, "seed": given.seed}
    return perform("a cluster", partial(rounds, **numbers), within_s=300 + 120 * given.rounds + 3 * given.kills)


if __name__ == "__main__":
    sys.exit(main())
