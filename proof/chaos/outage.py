"""Redis away for ten seconds under load: `python -m proof.chaos.outage --rounds 6`.

Every second outage kills the server, the others stop it (SIGSTOP). Counted is what was lost, and how long each turn
that was under work stood still after the server was back: until its own lease wrote again or another was given out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proof.chaos.load import Crowd
from proof.chaos.recovery import recoveries, times_of
from proof.chaos.stage import Row, perform, stage, zero
from proof.chaos.verdict import debris
from shared.embedded import EmbeddedValkey
from shared.store import keys

RESUMED_WITHIN_S = 3.0
LOADED_S = 5.0
CHATS = 40


async def outages(folder: Path, *, rounds: int, away_s: float, lease_s: float) -> Sequence[Row]:
    """Take the server away, bring it back, judge."""
    async with stage(folder, workers=2, lease_s=lease_s) as on:
        crowd = Crowd(on.client, [f"c{i}" for i in range(CHATS)])
        crowd.start()
        for number in range(rounds):
            await asyncio.sleep(LOADED_S)
            if number % 2 == 0:
                await _killed(on.server, away_s)
            else:
                await _stopped(on.server, away_s)
            on.fleet.note("outage", [""], "progress")
            back = time.time()
            await _resumed(on.witness.listening, back)
        await asyncio.sleep(LOADED_S)
        never = await crowd.finish()
        times = times_of(recoveries(on.fleet.blows, on.witness.events).get("outage", []))
        ended = sum(member.log.count('"worker ended"') for member in on.fleet.workers)
        return [
            Row("outages", rounds),
            Row("each, s", away_s),
            Row("messages answered", sum(len(chat.answered) for chat in crowd.chats)),
            Row("turns under work in them", times.many, times.many > 0),
            Row("stood still after it was back, p50 s", times.p50),
            Row("p99 s", times.p99, times.p99 <= RESUMED_WITHIN_S),
            Row("max s", times.worst),
            Row("workers that ended", ended, ended == 0),
            Row("never answered", never, never == 0),
            *zero(await crowd.wrongs()),
            Row("dead letters", found := await on.client.command("XLEN", keys.DEAD), found == 0),
            Row("stale writes accepted", on.witness.stale_accepted, on.witness.stale_accepted == 0),
            Row("left behind", ", ".join(left := await debris(on.client)) or 0, not left),
        ]


async def _killed(server: EmbeddedValkey, away_s: float) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(away_s)
    await asyncio.to_thread(server.start)


async def _stopped(server: EmbeddedValkey, away_s: float) -> None:
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(away_s)
    finally:
        os.kill(pid, signal.SIGCONT)


async def _resumed(listening: asyncio.Event, back: float) -> None:
    """What is written before the witness is back would be missed, and the next write counted: later, never sooner."""
    async with asyncio.timeout(10):
        await listening.wait()
    assert time.time() - back < 10


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.outage")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--away", type=float, default=10.0, help="seconds")
    parser.add_argument("--lease", type=float, default=15.0)
    given = parser.parse_args()
    play = partial(outages, rounds=given.rounds, away_s=given.away, lease_s=given.lease)
    return perform("Redis away", play, within_s=420 + given.rounds * (given.away + 15))


if __name__ == "__main__":
    sys.exit(main())
