"""How long a killed worker's turn stands still: `python -m proof.chaos.takeover --kills 50`.

Two workers with the demo model; the one that streams is killed. The times are taken until another attempt at the same
turn is announced, and until the first letter comes that people had not seen, for which the demo model takes 25 ms.
Before the next kill both workers have started, as in a fleet that is not shot at every second. `--group` kills the
guardian with it, so that the lease must lapse. The exit code is 1 when a promise is broken: a second for a worker,
the lease and one for a group.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from proof.chaos.recovery import times_of
from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import holder, replies, watching
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

DELTAS = 80
"""Of an answer before the kill: about four seconds of it."""


async def takeovers(folder: Path, url: str, *, kills: int, lease_s: float, group: bool) -> list[tuple[float, float]]:
    """The times in seconds, in the order of the kills: another attempt runs, its text comes."""
    env = {"SHOAL_REDIS__URL": url, "SHOAL_WORKER__LEASE_S": str(lease_s)}

    def start(number: int) -> Process:
        return Process("worker", env=env, log=folder / f"{number}.log")

    fleet = [start(0), start(1)]
    client = RedisClient(url)
    times: list[tuple[float, float]] = []
    try:
        for number in range(kills):
            fleet = [member if member.alive else start(i) for i, member in enumerate(fleet)]
            for member in fleet:
                await eventually(partial(_has_started, member), within_s=60)
            times.append(await takeover(client, fleet, f"owner/{number}", group=group))
    finally:
        for member in fleet:
            if member.alive:
                member.kill_group()
        await client.close()
    return times


def _has_started(group: Process) -> bool:
    """True when its newest worker has found out about its sandbox, for which a first turn waits."""
    return group.log.count('"logger": "sandbox"') >= group.log.count('"guardian", "event": "worker started"')


async def takeover(client: RedisClient, fleet: list[Process], chat: str, *, group: bool) -> tuple[float, float]:
    """Kill the worker that answers in `chat`; the seconds until its turn is begun again, and until its first text."""
    session = f"web:{chat}"
    async with watching(client, session) as seen:
        await say(Inbox(client), "tell me a long story", chat=chat)
        await eventually(lambda: len(seen.deltas()) > DELTAS, within_s=30)
        worker = await holder(client, session)
        began = time.monotonic()
        if group:
            next(member for member in fleet if worker in member.children()).kill_group()
        else:
            worker.kill()
        again = await eventually(lambda: seen.started_at(2), within_s=60, every_s=0.001)
        text = await eventually(lambda: seen.grown_at(2), within_s=60, every_s=0.001)
        await Inbox(client).stop(session)
        await eventually(lambda: replies(client, session), within_s=30)
    return again - began, text - began


def main() -> int:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.takeover")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--lease", type=float, default=15.0)
    parser.add_argument("--group", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shoal-takeover-"))
    server = EmbeddedValkey(folder / "valkey")
    server.start()
    try:
        times = asyncio.run(takeovers(folder, server.url, kills=given.kills, lease_s=given.lease, group=given.group))
    finally:
        server.stop()
    shutil.rmtree(folder)
    what, limit_s = ("group", given.lease + 1) if given.group else ("worker", 1.0)
    found, text = times_of([again for again, _ in times]), times_of([first for _, first in times])
    kept = found.p99 <= limit_s
    sys.stdout.write(
        f"{what} killed {found.many} times, lease {given.lease:g} s, {os.cpu_count()} cores: "
        f"p50 {1000 * found.p50:.0f} ms, p99 {1000 * found.p99:.0f} ms, max {1000 * found.worst:.0f} ms; "
        f"first new letter p50 {1000 * text.p50:.0f} ms, p99 {1000 * text.p99:.0f} ms, max {1000 * text.worst:.0f} ms; "
        f"promise p99 <= {limit_s:g} s {'kept' if kept else 'BROKEN'}\n"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
