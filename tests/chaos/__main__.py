"""Break a fleet on purpose and count what went wrong.

`python -m tests.chaos --minutes 10 --seed 1` starts a Valkey, gateways, workers and people on loopback, breaks one
thing after the other, waits until it is quiet, and prints a table. The exit code is 1 when anything was lost, doubled,
reordered, torn or left behind. It stops by itself. A run's faults follow from its seed; what they hit does not.
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

from rich.console import Console
from rich.table import Table

from shared.embedded import EmbeddedValkey
from shared.store import keys
from shared.store.client import RedisClient
from shared.tasks import cancel_all
from tests.chaos.faults import FAULTS
from tests.chaos.fleet import Fleet
from tests.chaos.people import Person
from tests.chaos.proxy import Proxy
from tests.chaos.verdict import Verdict, judge
from tests.helpers.wait import eventually

QUIET_S = 60.0


async def chaos(
    folder: Path, *, seconds: float, seed: int, people: int, lease_s: float
) -> tuple[Verdict, Counter[str], set[str]]:
    """One run: the verdict, how often each fault was done, and who still waited in the end."""
    rng = random.Random(seed)
    server = EmbeddedValkey(folder / "valkey")
    await asyncio.to_thread(server.start)
    proxy = Proxy(server.url)
    await proxy.start()
    fleet = Fleet(server, proxy, folder, gateways=2, workers=3, lease_s=lease_s)
    client = RedisClient(server.url)
    crowd = [Person(f"p{i}", fleet.addresses, random.Random(rng.random())) for i in range(people)]
    tasks: list[asyncio.Task[None]] = []
    try:
        await eventually(fleet.ready, within_s=30)
        tasks = [asyncio.create_task(person.run()) for person in crowd]
        done = await _break_things(fleet, rng, seconds, lease_s)
        for person in crowd:
            person.finish()
        give_up_at = time.monotonic() + QUIET_S
        while time.monotonic() < give_up_at and (any(p.waiting for p in crowd) or await _busy(client)):
            fleet.keep()
            await asyncio.sleep(0.2)
        waiting = {f"{person.name}/{id}" for person in crowd for id in person.waiting}
        return await judge(crowd, client), done, waiting
    finally:
        await cancel_all(tasks)
        await client.close()
        await asyncio.to_thread(fleet.end)
        await proxy.stop()
        await asyncio.to_thread(server.stop)


async def _break_things(fleet: Fleet, rng: random.Random, seconds: float, lease_s: float) -> Counter[str]:
    names, weights = list(FAULTS), [weight for _, weight in FAULTS.values()]
    done: Counter[str] = Counter()
    end_at = time.monotonic() + seconds
    while time.monotonic() < end_at:
        await asyncio.sleep(rng.uniform(0.3, 2.0))
        [name] = rng.choices(names, weights)
        fault, _ = FAULTS[name]
        await fault(fleet, rng, lease_s)
        done[name] += 1
        fleet.keep()
    return done


async def _busy(client: RedisClient) -> bool:
    return bool(await client.command("ZCARD", keys.queue("turns")))


def show(verdict: Verdict, done: Counter[str], waiting: set[str]) -> None:
    """The table."""
    table = Table("count", "value", title="what came of it")
    for name, value in verdict.wrongs.items():
        table.add_row(name.replace("_", " "), f"[red]{value}" if value else "0")
    for name in verdict.__struct_fields__[len(verdict.wrongs) :]:
        value = getattr(verdict, name)
        table.add_row(name.replace("_", " "), f"{value:.2f}" if isinstance(value, float) else str(value))
    console = Console()
    console.print(table)
    console.print("faults:", ", ".join(f"{name} {count}" for name, count in done.most_common()))
    if waiting:
        console.print("[red]never answered:", ", ".join(sorted(waiting)[:10]))


def main() -> int:
    """Run, print, keep the logs when something went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--people", type=int, default=12)
    parser.add_argument("--lease", type=float, default=15.0, help="seconds (default: %(default)s, as in production)")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shoal-chaos-"))
    verdict, done, waiting = asyncio.run(
        chaos(folder, seconds=given.minutes * 60, seed=given.seed, people=given.people, lease_s=given.lease)
    )
    show(verdict, done, waiting)
    if any(verdict.wrongs.values()):
        sys.stdout.write(f"logs are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
