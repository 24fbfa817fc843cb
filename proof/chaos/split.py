"""A primary that lives on after another took its place: `python -m proof.chaos.split --splits 2 --failovers 6`.

A primary with a replica and three Sentinels, `redis.copies = 2`, a gateway and two workers, people whose every message
runs an unsafe tool. In a split the Sentinels and the replica lose the primary for twelve seconds and promote the other;
clients of the old side keep it all the time: they ingest messages, renew a lease and read what is there. In the other
fail-overs the primary stands still until another was promoted, and is resumed. Nothing that was told may be lost, and
the old side may tell nothing that the other one does not have.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proof.chaos.fleet import Member
from proof.chaos.proxy import Proxy
from proof.chaos.recovery import times_of
from proof.chaos.stage import Row, perform, zero
from proof.chaos.tail import Talker, counted_wrongs, forgotten_answers
from shared.errors import RedisAway, Refused, ReplyError
from shared.process.resp import RespConnection, RespError
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.tasks import cancel_all
from tests.crash.test_crash_points import TOOLS
from tests.gateway.harness import TOKENS, free_port
from tests.helpers.build import say
from tests.helpers.fleet import workers as present_workers
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.redis_server import started
from tests.helpers.wait import eventually

SERVICE = "shoal"
PASSWORD = "of-the-servers"
SPLIT_S = 12.0
DOWN_AFTER_S = 2.0
CHATS, MESSAGES = 8, 400
PATIENCE_S = 60.0
COPIES = 2


class Node:
    """A server. Sentinels, replicas and the fleet reach it through `link`, the clients of the old side directly."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.link = Proxy(self.url)
        self._folder = folder

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    async def start(self, primary: Node | None) -> None:
        await self.link.start()
        self._folder.mkdir()
        words = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--appendonly", "yes", "--save", ""]
        words += ["--requirepass", PASSWORD, "--masterauth", PASSWORD, "--replica-announce-port", str(self.link.port)]
        words += ["--replica-announce-ip", "127.0.0.1"]
        if primary is not None:
            words += ["--replicaof", "127.0.0.1", str(primary.link.port)]
        self.process = await asyncio.to_thread(started, words, self._folder, self.url)

    def ask(self, *words: str) -> str:
        connection = RespConnection(self.url, timeout_s=5)
        with contextlib.closing(connection):
            answer: bytes = connection.command(*words)
        return answer.decode()

    def is_replica_in_step(self) -> bool:
        with contextlib.suppress(OSError, RespError):
            return "role:slave" in (info := self.ask("INFO", "replication")) and "master_link_status:up" in info
        return False


class Watched:
    """Two nodes and three Sentinels."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.nodes = [Node(folder / "one"), Node(folder / "two")]
        self.ports = [free_port() for _ in range(3)]
        self._sentinels: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"redis+sentinel://:{PASSWORD}@{hosts}/{SERVICE}/0"

    async def start(self) -> None:
        first, second = self.nodes
        await first.start(None)
        await second.start(first)
        for port in self.ports:
            (folder := self._folder / str(port)).mkdir()
            (folder / "sentinel.conf").write_text(
                f"port {port}\nbind 127.0.0.1\nsentinel monitor {SERVICE} 127.0.0.1 {first.link.port} 2\n"
                f"sentinel auth-pass {SERVICE} {PASSWORD}\n"
                f"sentinel down-after-milliseconds {SERVICE} {int(DOWN_AFTER_S * 1000)}\n"
                f"sentinel failover-timeout {SERVICE} 10000\n"
            )
            words = ["redis-server", str(folder / "sentinel.conf"), "--sentinel"]
            self._sentinels.append(await asyncio.to_thread(started, words, folder, f"redis://127.0.0.1:{port}"))
        await eventually(self.ready, within_s=60, every_s=0.2, what="the Sentinels")

    async def stop(self) -> None:
        for process in (*self._sentinels, *(node.process for node in self.nodes)):
            process.kill()
            await asyncio.to_thread(process.wait, 20)
        for node in self.nodes:
            await node.link.stop()

    def _facts(self, port: int) -> dict[str, str]:
        connection = RespConnection(f"redis://127.0.0.1:{port}", timeout_s=2)
        with contextlib.closing(connection):
            flat = [one.decode() for one in connection.command("SENTINEL", "MASTER", SERVICE)]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def primary(self) -> Node | None:
        """The node that all Sentinels name, and see."""
        facts = [self._facts(port) for port in self.ports]
        if any(one["flags"] != "master" for one in facts) or len({one["port"] for one in facts}) > 1:
            return None
        return next(node for node in self.nodes if str(node.link.port) == facts[0]["port"])

    async def ready(self) -> bool:
        """Whether all see a primary whose replica is in step."""
        primary = await asyncio.to_thread(self.primary)
        if primary is None:
            return False
        [other] = [node for node in self.nodes if node is not primary]
        facts = [await asyncio.to_thread(self._facts, port) for port in self.ports]
        known = all(one["num-other-sentinels"] == "2" and one["num-slaves"] == "1" for one in facts)
        return known and await asyncio.to_thread(other.is_replica_in_step)

    async def moved_from(self, former: Node) -> bool:
        found = await asyncio.to_thread(self.primary)
        return found is not None and found is not former


class OldSide:
    """Clients that are connected to one server whatever becomes of it."""

    def __init__(self, node: Node, name: str, copies: int) -> None:
        self._client = RedisClient(node.url, copies=copies)
        self._name = name
        self.accepted: list[str] = []
        self.after = Counter[str]()
        """What was told since `alone`, and `tried`."""
        self.alone = False

    async def run(self) -> None:
        queue = LeaseQueue(self._client, f"old-{self._name}", owner="0" * 32, lease_s=5)
        await self._client.command("ZADD", f"shoal:{{0ax}}:queue:{queue.name}", 1, "job")
        [claim] = await queue.acquire(1)
        number = 0
        try:
            while True:
                number += 1
                alone = self.alone
                for what, step in (
                    ("accepted", self._ingest(f"{self._name}-{number}")),
                    ("renewed", queue.renew([claim])),
                    ("read", self._client.settled()),
                ):
                    self.after["tried"] += alone
                    with contextlib.suppress(RedisAway, Refused, ReplyError):
                        await step
                        self.after[what] += alone
                await asyncio.sleep(0.05)
        finally:
            await queue.close()
            await self._client.close()

    async def _ingest(self, id: str) -> None:
        # Each id has a chat of its own: none is full, and the fleet answers it.
        await say(Inbox(self._client), f"mark {id}", chat=f"owner/{id}", id=id)
        self.accepted.append(id)


async def lost_of(client: RedisClient, sides: Sequence[OldSide]) -> int:
    """How many messages that were accepted the store does not know."""
    lost = 0
    for id in [id for side in sides for id in side.accepted]:
        accepted = await say(Inbox(client), f"mark {id}", chat=f"owner/{id}", id=id)
        lost += not accepted.duplicate
    return lost


async def split(watched: Watched, number: int, copies: int) -> tuple[OldSide, float]:
    """Cut the primary off; heal after SPLIT_S. Return its side, and the seconds until another took over."""
    former = await asyncio.to_thread(watched.primary)
    assert former is not None
    side = OldSide(former, f"old{number}", copies)
    talking = asyncio.create_task(side.run())
    await eventually(lambda: len(side.accepted) > 5 or talking.done(), within_s=30)
    began = time.monotonic()
    cutting = asyncio.create_task(former.link.stand_still(3600))
    await asyncio.sleep(0)
    side.alone = True
    await eventually(lambda: watched.moved_from(former), within_s=60, every_s=0.1, what="the fail-over")
    took = time.monotonic() - began
    await asyncio.sleep(max(0.0, SPLIT_S - took))
    # What was on its way is lost with the connections; then the network is whole again.
    former.link.cut()
    await cancel_all([cutting])
    await eventually(watched.ready, within_s=60, every_s=0.2, what="the replica after a split")
    await cancel_all([talking])
    return side, took


async def stand_still(watched: Watched) -> float:
    """Stop the primary until another took over; resume it. Return the seconds until then."""
    former = await asyncio.to_thread(watched.primary)
    assert former is not None
    began = time.monotonic()
    os.kill(former.process.pid, signal.SIGSTOP)
    await eventually(lambda: watched.moved_from(former), within_s=60, every_s=0.1, what="the fail-over")
    took = time.monotonic() - began
    os.kill(former.process.pid, signal.SIGCONT)
    await eventually(watched.ready, within_s=60, every_s=0.2, what="the replica after a fail-over")
    return took


async def splits(folder: Path, *, wanted: int, failovers: int, copies: int) -> Sequence[Row]:
    """Play and judge."""
    watched = Watched(folder)
    await watched.start()
    with ScriptedOpenAI() as model:
        names = [f"c{i}" for i in range(CHATS)]
        ids = [f"{name}-{n}" for name in names for n in range(MESSAGES)]
        calls = [
            Answer(match=f"^mark {id}$", role="user", calls=[Call("mark", json.dumps({"word": id}))], times=0)
            for id in ids
        ]
        old = Answer(match="^mark old", role="user", text="Noted.", times=0)
        model.script(Answer(role="tool", text="Done.", times=0), old, *calls)
        env = {
            "SHOAL_REDIS__URL": watched.url,
            "SHOAL_REDIS__COPIES": str(copies),
            "SHOAL_DATA__DIR": str(folder),
            "SHOAL_WORKER__LEASE_S": "15",
            "SHOAL_WEB__TOKENS__OWNER": TOKENS["owner"],
            "SHOAL_INBOX__SENDER_PER_MINUTE": "0",
            "SHOAL_INBOX__CHATS_PER_PERSON": "0",
            "SHOAL_MODEL__NAME": "openai/scripted",
            "SHOAL_MODEL__API_BASE": model.base_url,
            "SHOAL_MODEL__API_KEY": "none",
            "SHOAL_MODEL__CLIENT": "direct",
            "SHOAL_AGENT__TITLES": "false",  # calls of the model are counted
            "MARKS": str(folder),
            "PYTHONPATH": str(TOOLS),
        }
        fleet = [Member(kind, n, env, folder) for n, kind in enumerate(("gateway", "worker", "worker"))]
        client = RedisClient(watched.url, copies=copies)
        try:
            await present_workers(client, 2, within_s=60)
            return await _play(watched, client, folder, names, wanted=wanted, failovers=failovers, copies=copies)
        finally:
            await client.close()
            for member in fleet:
                member.process.kill_group()
            await watched.stop()


async def _play(
    watched: Watched,
    client: RedisClient,
    folder: Path,
    names: Sequence[str],
    *,
    wanted: int,
    failovers: int,
    copies: int,
) -> Sequence[Row]:
    talkers = [Talker(client, name, "mark {id}") for name in names]
    cuts: list[float] = []
    ending = asyncio.Event()

    async def talk(talker: Talker) -> None:
        while not ending.is_set() and len(talker.sent) < MESSAGES - 1:
            await talker.say(cuts)
        await talker.say(cuts)

    talking = [asyncio.create_task(talk(talker)) for talker in talkers]
    sides, took = [], []
    forgotten = 0
    for number in range(wanted + failovers):
        await asyncio.sleep(2)
        if number < wanted:
            side, seconds = await split(watched, number, copies)
            sides.append(side)
        else:
            seconds = await stand_still(watched)
        took.append(seconds)
        cuts.append(time.monotonic())
        forgotten += await forgotten_answers(watched.url, talkers)
    await asyncio.sleep(1)
    ending.set()
    _, wedged = await asyncio.wait(talking, timeout=PATIENCE_S)
    await cancel_all(talking)
    for task in talking:
        if task not in wedged:
            task.result()
    wrongs = await counted_wrongs(client, talkers)
    marks = Counter((folder / "marks").read_text().split())
    alone = sum((side.after for side in sides), Counter[str]())
    lost = await lost_of(client, sides)
    promised = copies >= COPIES
    rows = {
        "accepted messages that were lost": lost + sum(len(one.lost_ages) for one in talkers),
        "answers that were seen and forgotten": forgotten,
        "told by the old side alone": alone["accepted"] + alone["renewed"] + alone["read"],
        "unsafe tools that ran twice": sum(count - 1 for count in marks.values()),
    }
    times = times_of(took)
    return [
        Row(f"splits of {SPLIT_S:.0f} s; primaries that stood still", f"{wanted}; {failovers}"),
        Row("servers that a write waits for (redis.copies)", copies),
        Row("messages answered", sum(len(talker.seen_answered) for talker in talkers)),
        Row("until another primary was named: p50, max s", f"{times.p50:.1f}, {max(took):.1f}"),
        Row("calls that the old side tried alone", alone["tried"]),
        *(Row(name, count, count == 0 if promised else None) for name, count in rows.items()),
        *zero({"chats that do not go on": len(wedged), **wrongs}),
    ]


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.split")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--failovers", type=int, default=4)
    parser.add_argument("--copies", type=int, default=COPIES)
    given = parser.parse_args()
    run = partial(splits, wanted=given.splits, failovers=given.failovers, copies=given.copies)
    return perform("an old primary that lives on", run, within_s=240 + 60 * (given.splits + given.failovers))


if __name__ == "__main__":
    sys.exit(main())
