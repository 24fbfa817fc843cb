"""Break a fleet on purpose and count what went wrong.

`python -m proof.chaos --minutes 10 --seed 1` starts a Valkey, gateways, workers and people on loopback, breaks one
thing after the other, waits until it is quiet, and prints a table. With `--kills 300 --redis-faults 50` it goes on
until so many were done, at most `--minutes`. The exit code is 1 when anything was lost, doubled, reordered, torn or
left behind. It stops by itself. A run's faults follow from its seed; what they hit does not. `--lose-tail` is another
run: the server loses what it had confirmed (see `proof.chaos.tail`).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from proof.chaos import tail
from proof.chaos.faults import FAULTS, KILLS, REDIS_FAULTS
from proof.chaos.fleet import Fleet
from proof.chaos.people import Person
from proof.chaos.proxy import Proxy
from proof.chaos.recovery import Times, recoveries, times_of
from proof.chaos.verdict import Verdict, debris, judge
from proof.chaos.witness import Witness
from shared.embedded import EmbeddedValkey
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.tasks import cancel_all
from tests.helpers.wait import eventually

QUIET_S = 90.0  # a job of memory rests for a minute after its worker died


class Plan(msgspec.Struct, frozen=True):
    """How long to break things: for `seconds`, or until so many were done if that is sooner. `surely` comes first."""

    seconds: float
    kills: int = 0
    redis_faults: int = 0
    surely: tuple[str, ...] = ()

    def over(self, began: float, done: Counter[str]) -> bool:
        if time.monotonic() - began >= self.seconds:
            return True
        return bool(self.kills or self.redis_faults) and not self.missing(done)

    def missing(self, done: Counter[str]) -> int:
        """How many of the wanted faults were not done."""
        kills, redis_faults = (sum(done[name] for name in names) for names in (KILLS, REDIS_FAULTS))
        return max(0, self.kills - kills) + max(0, self.redis_faults - redis_faults)


class Run(msgspec.Struct):
    """What came of a run: the verdict, how often each fault was done, who still waited in the end, which keys were left
    behind, and how long turns stood still after each kind of fault."""

    verdict: Verdict
    done: Counter[str]
    waiting: set[str]
    left: list[str]
    recovery: dict[str, Times]


async def chaos(folder: Path, plan: Plan, *, seed: int, people: int, lease_s: float) -> Run:
    """One run."""
    rng = random.Random(seed)
    server = EmbeddedValkey(folder / "valkey")
    await asyncio.to_thread(server.start)
    proxy = Proxy(server.url)
    await proxy.start()
    witness = Witness(server.url)
    fleet = Fleet(server, proxy, folder, gateways=2, workers=3, lease_s=lease_s)
    client = RedisClient(server.url)
    crowd = [Person(f"p{i}", fleet.addresses, random.Random(rng.random())) for i in range(people)]
    tasks: list[asyncio.Task[None]] = [asyncio.create_task(witness.run())]
    try:
        await eventually(fleet.ready, within_s=30)
        await eventually(witness.listening.is_set)
        tasks += [asyncio.create_task(person.run()) for person in crowd]
        done = await _break_things(fleet, rng, plan, lease_s)
        for person in crowd:
            person.finish()
        give_up_at = time.monotonic() + QUIET_S
        while time.monotonic() < give_up_at and (any(p.waiting for p in crowd) or await _busy(client)):
            fleet.keep()
            await asyncio.sleep(0.2)
        waiting = {f"{person.name}/{id}" for person in crowd for id in person.waiting}
        recovery = {kind: times_of(found) for kind, found in recoveries(fleet.blows, witness.events).items()}
        left = await debris(client)
        return Run(await judge(crowd, client, witness, left), done, waiting, left, recovery)
    finally:
        await cancel_all(tasks)
        await client.close()
        await fleet.close()
        await asyncio.to_thread(fleet.end)
        await proxy.stop()
        await asyncio.to_thread(server.stop)


async def _break_things(fleet: Fleet, rng: random.Random, plan: Plan, lease_s: float) -> Counter[str]:
    names, weights = list(FAULTS), [weight for _, weight in FAULTS.values()]
    done: Counter[str] = Counter()
    began = time.monotonic()
    surely = list(plan.surely)
    while not plan.over(began, done):
        await asyncio.sleep(rng.uniform(0.3, 2.0))
        name = surely.pop(0) if surely else rng.choices(names, weights)[0]
        fault, _ = FAULTS[name]
        done[name] += await fault(fleet, rng, lease_s)
        fleet.keep()
    return done


async def _busy(client: RedisClient) -> bool:
    return bool(await client.command("ZCARD", keys.queue("turns")))


def show(run: Run) -> None:
    """The tables."""
    table = Table("count", "value", title="what came of it")
    verdict = run.verdict
    for name, value in verdict.wrongs.items():
        table.add_row(name.replace("_", " "), f"[red]{value}" if value else "0")
    for name in verdict.__struct_fields__[len(verdict.wrongs) :]:
        value = getattr(verdict, name)
        table.add_row(name.replace("_", " "), f"{value:.2f}" if isinstance(value, float) else str(value))
    recovery = Table("fault", "turns hit", "p50 s", "p99 s", "max s", title="how long turns stood still")
    for kind, times in sorted(run.recovery.items()):
        recovery.add_row(kind, str(times.many), *(f"{value:.2f}" for value in times[1:]))
    console = Console()
    console.print(table)
    console.print(recovery)
    kills, redis_faults = (sum(run.done[name] for name in names) for names in (KILLS, REDIS_FAULTS))
    console.print(f"{kills} kills, {redis_faults} Redis faults")
    console.print("faults:", ", ".join(f"{name} {count}" for name, count in run.done.most_common()))
    if run.waiting:
        console.print("[red]never answered:", ", ".join(sorted(run.waiting)[:10]))
    if run.left:
        console.print("[red]left behind:", ", ".join(run.left[:10]))


def main() -> int:
    """Run, print, keep the logs when something went wrong."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=None, help="default: 1, or 60 with a number of faults")
    parser.add_argument("--kills", type=int, default=0, help="go on until so many processes were killed")
    parser.add_argument("--redis-faults", type=int, default=0, help="and so many things were done to Redis")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--people", type=int, default=12)
    parser.add_argument("--lease", type=float, default=15.0, help="seconds (default: %(default)s, as in production)")
    parser.add_argument("--lose-tail", action="store_true", help="a server that loses confirmed writes (everysec)")
    given = parser.parse_args()
    if given.lose_tail:
        return tail.main(["--cuts", str(given.redis_faults or 10), "--seed", str(given.seed)])
    minutes = given.minutes or (60.0 if given.kills or given.redis_faults else 1.0)
    plan = Plan(minutes * 60, given.kills, given.redis_faults)
    folder = Path(tempfile.mkdtemp(prefix="shoal-chaos-"))
    run = asyncio.run(chaos(folder, plan, seed=given.seed, people=given.people, lease_s=given.lease))
    show(run)
    if missing := plan.missing(run.done):
        sys.stdout.write(f"the time was over with {missing} faults not done\n")
    if any(run.verdict.wrongs.values()) or run.waiting:
        sys.stdout.write(f"logs are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
