"""Fail-overs under load: `python -m proof.chaos.failover --planned 9 --crashes 4`.

A primary and its replica swap roles behind one address, as with a virtual IP or a moved name. In a planned fail-over
nothing may be lost, and the fleet must go on within two seconds whether its connections to the old primary stay open,
are cut, or are killed by the server. In a crash the replica is a moment behind: what it had not got yet is lost. With
`--copies 2` (the default here) nothing of that was confirmed, and no unsafe tool may run twice; with `--copies 1`
clients send it again, and what a crash loses is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from proof.chaos.fleet import Fleet
from proof.chaos.proxy import Proxy
from proof.chaos.recovery import times_of
from proof.chaos.stage import Row, perform, zero
from proof.chaos.tail import Talker, counted_wrongs, forgotten_answers
from proof.chaos.verdict import debris
from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from shared.tasks import cancel_all
from tests.crash.test_crash_points import TOOLS
from tests.helpers import valkey
from tests.helpers.fleet import workers as present_workers
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

CHATS = 12
"""Of a chat at most; each has a scripted tool call of its own."""

BACK_WITHIN_S = 2.0
BEHIND_S = 0.8
PATIENCE_S = 120.0
CONNECTIONS = ("kept", "cut", "killed")


class Pair:
    """Two servers that replicate each other through proxies of their own, and `address`, which leads to the primary."""

    def __init__(self, folder: Path) -> None:
        first = EmbeddedValkey(folder / "one")
        password = first.url.split(":")[2].split("@")[0]
        (folder / "two").mkdir(parents=True)
        # The second server takes its password from here: an address that moves keeps its own.
        (folder / "two" / "valkey.conf").write_text(f"requirepass {password}\n")
        self.primary, self.replica = first, EmbeddedValkey(folder / "two")
        self._password = password
        self._links: dict[EmbeddedValkey, Proxy] = {}

    async def start(self) -> None:
        for server in (self.primary, self.replica):
            await asyncio.to_thread(server.start)
            self._links[server] = link = Proxy(server.url)
            await link.start()
        self.address = Proxy(self.primary.url)
        await self.address.start()
        await self.replicate()

    async def stop(self) -> None:
        for proxy in (self.address, *self._links.values()):
            await proxy.stop()
        for server in (self.primary, self.replica):
            await asyncio.to_thread(server.stop)

    async def ask(self, server: EmbeddedValkey, *words: str) -> str:
        return await asyncio.to_thread(valkey.command, server.url, *words)

    async def replicate(self) -> None:
        """Have the replica follow the primary, and return when it has everything."""
        for server in (self.primary, self.replica):
            # No other replica comes that a copy of everything could wait for.
            await self.ask(server, "CONFIG", "SET", "masterauth", self._password, "repl-diskless-sync-delay", "0")
        await self.ask(self.replica, "REPLICAOF", "127.0.0.1", str(self._links[self.primary].port))
        await eventually(self._in_step, within_s=30, what="the replica")

    async def _in_step(self) -> bool:
        return "state=online" in await self.ask(self.primary, "INFO", "replication")

    async def hand_over(self, connections: str) -> None:
        """A planned fail-over: the server itself waits until the replica has everything."""
        await self.ask(self.primary, "FAILOVER", "TIMEOUT", "5000")
        await eventually(self._handed_over, within_s=10, every_s=0.005, what="the fail-over")
        self._move()
        if connections == "cut":
            self.address.cut()
        elif connections == "killed":
            await self.ask(self.replica, "CLIENT", "KILL", "TYPE", "normal")

    async def _handed_over(self) -> bool:
        return (await self.ask(self.primary, "ROLE")).startswith("slave")

    async def crash(self) -> None:
        """Kill the primary while its replica is behind, and promote that."""
        link = self._links[self.primary]
        behind = asyncio.create_task(link.stand_still(60))
        await asyncio.sleep(BEHIND_S)
        await asyncio.to_thread(self.primary.kill)
        link.cut()
        await cancel_all([behind])
        await self.ask(self.replica, "REPLICAOF", "NO", "ONE")
        self._move()

    def _move(self) -> None:
        self.primary, self.replica = self.replica, self.primary
        self.address.lead_to(self.primary.url)


class Play:
    """A fleet, and people whose every message runs an unsafe tool."""

    def __init__(self, fleet: Fleet, talkers: Sequence[Talker]) -> None:
        self.fleet, self.talkers = fleet, talkers
        self.cuts: list[float] = []
        self._stopping = False

    async def back(self) -> float:
        """The seconds until a message that was sent from now on has its answer."""
        began = time.monotonic()
        sent = {talker: len(talker.sent) for talker in self.talkers}

        def answered() -> bool:
            return any(set(talker.sent[sent[talker] :]) & talker.seen_answered for talker in self.talkers)

        await eventually(answered, within_s=60, what="an answer after the fail-over")
        return time.monotonic() - began

    async def talk(self, talker: Talker) -> None:
        while not self._stopping:
            await talker.say(self.cuts)
        await talker.say(self.cuts)

    async def end(self, talking: Sequence[asyncio.Task[None]]) -> int:
        """Let everybody say one thing more, and return how many of them get no answer."""
        self._stopping = True
        _, wedged = await asyncio.wait(talking, timeout=PATIENCE_S)
        await cancel_all([*talking])
        for task in talking:
            if task not in wedged:
                task.result()
        return len(wedged)


@contextmanager
def unsafe_calls(folder: Path, copies: int) -> Iterator[dict[str, str]]:
    """A model that runs the tool `mark` once for each message; the settings of a fleet that asks it."""
    with ScriptedOpenAI() as model:
        call = Answer(match=r"^mark (\S+)$", role="user", calls=[Call("mark", r'{"word": "\1"}')], times=0)
        model.script(Answer(role="tool", text="Done.", times=0), call)
        yield {
            "SHOAL_MODEL__NAME": "openai/scripted",
            "SHOAL_MODEL__API_BASE": model.base_url,
            "SHOAL_MODEL__API_KEY": "none",
            "SHOAL_MODEL__CLIENT": "direct",
            "SHOAL_REDIS__COPIES": str(copies),
            "MARKS": str(folder),
            "PYTHONPATH": str(TOOLS),
        }


@asynccontextmanager
async def play(fleet: Fleet, url: str, copies: int) -> AsyncIterator[Play]:
    """A fleet that is ready, and people; it ends with the block."""
    client = RedisClient(url, copies=copies)
    try:
        await present_workers(client, len(fleet.workers), within_s=60)
        yield Play(fleet, [Talker(client, f"c{i}", "mark {id}") for i in range(CHATS)])
    finally:
        await client.close()
        await fleet.close()
        await asyncio.to_thread(fleet.end)


@asynccontextmanager
async def play_on(pair: Pair, folder: Path, copies: int) -> AsyncIterator[Play]:
    """The same with a pair of servers."""
    await pair.start()
    try:
        with unsafe_calls(folder, copies) as env:
            fleet = Fleet(pair.primary, pair.address, folder, gateways=1, workers=2, lease_s=5.0, env=env)
            async with play(fleet, pair.address.url, copies) as on:
                yield on
    finally:
        await pair.stop()


async def failovers(folder: Path, *, planned: int, crashes: int, copies: int, seed: int = 1) -> Sequence[Row]:
    """Fail over, judge."""
    rng = random.Random(seed)
    back: dict[str, list[float]] = {name: [] for name in (*CONNECTIONS, "crash")}
    pair = Pair(folder)
    async with play_on(pair, folder, copies) as on:
        talkers = on.talkers
        talking = [asyncio.create_task(on.talk(talker)) for talker in talkers]
        forgotten = 0
        for number in range(planned):
            await asyncio.sleep(rng.uniform(1, 2))
            connections = CONNECTIONS[number % len(CONNECTIONS)]
            await pair.hand_over(connections)
            back[connections].append(await on.back())
            await pair.replicate()
        for _ in range(crashes):
            await asyncio.sleep(rng.uniform(1, 2))
            await pair.crash()
            on.cuts.append(time.monotonic())
            forgotten += await forgotten_answers(pair.primary.url, talkers)
            await asyncio.to_thread(pair.replica.start)
            # With two copies wanted, everything waits until there is a replica again.
            await pair.replicate()
            back["crash"].append(await on.back())
        await asyncio.sleep(1)
        wedged = await on.end(talking)
        client = RedisClient(pair.primary.url)
        wrongs = await counted_wrongs(client, talkers)
        left = await debris(client)
        await client.close()
        marks = Counter((folder / "marks").read_text().split())
        again = sum(len(one.lost_ages) for one in talkers)
        twice = sum(count - 1 for count in marks.values())
        return [
            Row("planned fail-overs", planned),
            Row("crashes with the replica behind", crashes),
            Row("servers that a write waits for (redis.copies)", copies),
            Row("messages answered", sum(len(talker.seen_answered) for talker in talkers)),
            *_back_rows(back),
            Row("in the crashes: messages to be sent again", again, again == 0 if copies > 1 else None),
            Row("in the crashes: answers seen and forgotten", forgotten, forgotten == 0 if copies > 1 else None),
            Row("unsafe tools that ran", marks.total()),
            Row("of them twice", twice, twice == 0 if copies > 1 or not crashes else None),
            *zero({"chats that do not go on": wedged, **wrongs}),
            Row("left behind", ", ".join(left) or 0, not left),
        ]


def _back_rows(back: dict[str, list[float]]) -> list[Row]:
    rows = []
    for name, seconds in back.items():
        if seconds:
            what = "answers again after a crash" if name == "crash" else f"answers again, connections {name}"
            kept = None if name == "crash" else max(seconds) <= BACK_WITHIN_S
            rows.append(Row(f"{what}: p50, max s", f"{times_of(seconds).p50:.2f}, {max(seconds):.2f}", kept))
    return rows


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.failover")
    parser.add_argument("--planned", type=int, default=6)
    parser.add_argument("--crashes", type=int, default=4)
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    numbers = {"planned": given.planned, "crashes": given.crashes, "copies": given.copies, "seed": given.seed}
    within_s = 300 + 30 * (given.planned + given.crashes)
    return perform("fail-overs", partial(failovers, **numbers), within_s=within_s)


if __name__ == "__main__":
    sys.exit(main())
