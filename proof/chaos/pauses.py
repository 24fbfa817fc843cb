"""Workers that stand still past their lease and go on: `python -m proof.chaos.pauses --pauses 1000`.

Most worker groups are stopped at once (SIGSTOP, guardian and worker) for one to two and a half leases under load, then
continued, until so many pauses were done. Meanwhile the others take over. No write of a lease that was given to
somebody else may be taken: read from the server's own order of things, and from what was committed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import signal
import sys
import urllib.request
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proof.chaos.fleet import Fleet, Member
from proof.chaos.load import Crowd
from proof.chaos.recovery import recoveries, times_of
from proof.chaos.stage import Row, perform, stage, zero
from proof.chaos.verdict import debris
from shared.store import keys
from tests.helpers.fleet import workers as present_workers

AWAKE = 2
"""So many groups are never stopped at the same time as the others."""


async def pauses(folder: Path, *, wanted: int, lease_s: float, groups: int, seed: int) -> Sequence[Row]:
    """Pause, go on, judge."""
    rng = random.Random(seed)
    async with stage(folder, workers=groups, lease_s=lease_s, env={"SHOAL_WORKER__TURNS": "16"}) as on:
        crowd = Crowd(on.client, [f"c{i}" for i in range(4 * groups)])
        crowd.start()
        done = 0
        while done < wanted:
            done += await _pause(on.fleet, rng, min(groups - AWAKE, wanted - done), lease_s)
            on.fleet.keep()
            await asyncio.sleep(rng.uniform(0.2, 0.6))
        never = await crowd.finish()
        await present_workers(on.client, 1)
        hit = recoveries(on.fleet.blows, on.witness.events).get("pause", [])
        times = times_of(hit)
        return [
            Row("pauses longer than the lease", done, done >= wanted),
            Row("lease, s", lease_s),
            Row("turns that were under work in them", times.many, times.many > 0),
            Row("messages answered", sum(len(chat.answered) for chat in crowd.chats)),
            Row("stale writes accepted", on.witness.stale_accepted, on.witness.stale_accepted == 0),
            Row("overlapping turns", on.witness.overlaps, on.witness.overlaps == 0),
            Row("stale writes tried and refused", on.witness.stale_refused),
            Row("leases found lost (logs)", sum(member.log.count('"lease lost"') for member in on.fleet.workers)),
            Row("shoal_stale_writes_refused_total, processes alive", await asyncio.to_thread(_refused, on.fleet)),
            Row("never answered", never, never == 0),
            *zero(await crowd.wrongs()),
            Row("dead letters", found := await on.client.command("XLEN", keys.DEAD), found == 0),
            Row("left behind", ", ".join(left := await debris(on.client)) or 0, not left),
        ]


async def _pause(fleet: Fleet, rng: random.Random, many: int, lease_s: float) -> int:
    chosen = [member for member in rng.sample(fleet.workers, many) if member.process.alive]
    pids = [child.pid for member in chosen for child in member.process.children()]
    fleet.note("pause", await fleet.owners(pids), "progress")
    for member in chosen:
        _group(member, signal.SIGSTOP)
    try:
        await asyncio.sleep(lease_s * rng.uniform(1.05, 2.5))
    finally:
        for member in chosen:
            _group(member, signal.SIGCONT)
    return len(chosen)


def _group(member: Member, number: int) -> None:
    if member.process.alive:
        os.killpg(member.process.pid, number)


def _refused(fleet: Fleet) -> int:
    """The metric, of the processes that live now."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    total = 0.0
    for member in fleet.workers:
        for port in re.findall(r'"health_port": ?(\d+)', member.log)[-1:]:
            with direct.open(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                found = re.search(rb"^shoal_stale_writes_refused_total (\S+)", answer.read(), re.MULTILINE)
            total += float(found[1]) if found else 0.0
    return int(total)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.pauses")
    parser.add_argument("--pauses", type=int, default=40)
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--groups", type=int, default=6, help=f"all but {AWAKE} of them are stopped at a time")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.groups <= AWAKE:
        parser.error(f"--groups must be more than {AWAKE}")
    play = partial(pauses, wanted=given.pauses, lease_s=given.lease, groups=given.groups, seed=given.seed)
    rounds = given.pauses / (given.groups - AWAKE) + 1
    return perform("paused past the lease", play, within_s=600 + rounds * (2.5 * given.lease + 5))


if __name__ == "__main__":
    sys.exit(main())
