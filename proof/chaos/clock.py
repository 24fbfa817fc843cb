"""The server's clock falls back under load: `python -m proof.chaos.clock --falls 8`.

By a minute, an hour or a day, with turns under work and more of them waiting for a slot; with every second fall a
worker group is killed, whose leases must lapse. Everything that waited then must be answered within a lease, and
within two where a group was killed. Without the repair in `acquire.lua` it waits as long as the clock fell.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proof.chaos.load import Chat, Crowd
from proof.chaos.recovery import times_of
from proof.chaos.stage import Row, perform, stage, zero
from proof.chaos.verdict import debris
from shared.store import keys
from tests.helpers.server_clock import server_clock
from tests.helpers.wait import eventually

CHATS = 24
SLOTS = 4
FALLS_S = (60, 3540, 86_400, 20)
SLACK_S = 3.0
"""For the turns themselves: all chats wait for a few slots."""


async def falls(folder: Path, *, rounds: int, lease_s: float, seed: int = 1) -> Sequence[Row]:
    """Set the clock back, see who waits, judge."""
    rng = random.Random(seed)
    with server_clock(folder) as clock:
        # The processes of the fleet keep the clock of this machine.
        env = {"LD_PRELOAD": "", "SHOAL_WORKER__TURNS": str(SLOTS)}
        async with stage(folder, workers=3, lease_s=lease_s, env=env) as on:
            crowd = Crowd(on.client, [f"c{i}" for i in range(CHATS)])
            crowd.start()
            alone: list[float] = []
            killed: list[float] = []
            for number in range(rounds):
                await asyncio.sleep(rng.uniform(1, 2))
                kill = number % 2 == 1
                clock.step(-FALLS_S[number % len(FALLS_S)])
                if kill:
                    rng.choice(on.fleet.workers).process.kill_group()
                (killed if kill else alone).append(await _answered(crowd.chats))
                on.fleet.keep()
            never = await crowd.finish()
            # Timed jobs of arq have the clock of a worker; they would be left behind for a day.
            clock.step(-clock.offset_s)
            logs = "".join(member.log for member in on.fleet.workers)
            return [
                Row("falls of the clock", rounds),
                Row("by, s", ", ".join(map(str, FALLS_S[:rounds]))),
                Row("messages answered", sum(len(chat.answered) for chat in crowd.chats)),
                Row("until all that waited were answered: p50 s", times_of(alone).p50),
                Row("max s", max(alone, default=0.0), max(alone, default=0.0) <= lease_s + SLACK_S),
                Row("the same with a group killed: p50 s", times_of(killed).p50),
                Row("max s", max(killed, default=0.0), max(killed, default=0.0) <= 2 * lease_s + SLACK_S),
                Row("queues put right", found := logs.count("redis clock fell back"), found >= rounds),
                Row("never answered", never, never == 0),
                *zero(await crowd.wrongs()),
                Row("dead letters", letters := await on.client.command("XLEN", keys.DEAD), letters == 0),
                Row("stale writes accepted", on.witness.stale_accepted, on.witness.stale_accepted == 0),
                Row("left behind", ", ".join(left := await debris(on.client)) or 0, not left),
            ]


async def _answered(chats: Sequence[Chat]) -> float:
    """The seconds until each message that is under way now has its answer."""
    began = time.monotonic()
    waiting = [(chat, chat.sent[-1]) for chat in chats if chat.sent and chat.sent[-1] not in chat.answered]

    def answered() -> bool:
        return all(id in chat.answered for chat, id in waiting)

    await eventually(answered, within_s=120, what="the answers to what waited")
    return time.monotonic() - began


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.clock")
    parser.add_argument("--falls", type=int, default=4)
    parser.add_argument("--lease", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    play = partial(falls, rounds=given.falls, lease_s=given.lease, seed=given.seed)
    return perform("a clock that falls back", play, within_s=180 + 150 * given.falls)


if __name__ == "__main__":
    sys.exit(main())
