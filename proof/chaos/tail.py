"""A server that forgets what it had confirmed: `python -m proof.chaos.tail --cuts 10`.

`appendfsync everysec`, under load; the server is killed and the last 1 to 64 KB of the newest append-only file are cut
off, as a power failure would, in the middle of a record. What was in the cut is gone, and that is counted apart:
messages that a client has to send again, and answers that people saw and the server forgot. Whatever the cut left must
still be right: nothing answered twice, no torn history, no ledger with a hole, every chat goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proof.chaos.stage import Row, Stage, perform, stage, zero
from proof.chaos.verdict import debris, torn
from shared.errors import RedisAway, Refused
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.transcript import UserEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from shared.tasks import cancel_all
from tests.helpers.build import message
from tests.helpers.fleet import history

CHATS = 10
POLL_S = 0.1
SMALLEST_CUT, BIGGEST_CUT = 1024, 64 * 1024
PATIENCE_S = 120.0


class Talker:
    """One chat whose client sends a message again, under its id, when the server was away while it waited."""

    def __init__(self, client: RedisClient, name: str, words: str = "Calculate {n} * 7 for {id}") -> None:
        self._words = words
        self.session = f"web:owner/{name}"
        self.sent: list[str] = []
        self.seen_answered: set[str] = set()
        self.lost_ages: list[float] = []
        """How old each message was, in seconds since it was accepted, that had to be said again."""
        self._client = client
        self._name = name

    async def say(self, cuts: Sequence[float]) -> None:
        """One message and its answer. `cuts` are the times (monotonic) at which the server lost its tail."""
        id = f"{self._name}-{len(self.sent)}"
        self.sent.append(id)
        await self._ingest(id)
        accepted, known = time.monotonic(), len(cuts)
        while id not in self.seen_answered:
            await asyncio.sleep(POLL_S)
            if len(cuts) > known:
                known = len(cuts)
                if not await self._ingest(id):
                    self.lost_ages.append(max(0.0, cuts[-1] - accepted))
                    accepted = time.monotonic()
            with contextlib.suppress(RedisAway):
                answered = await self.answered(self._client)
                await self._client.settled()  # a page shows nothing before
                self.seen_answered.update(answered)

    async def answered(self, client: RedisClient) -> list[str]:
        """The ids that the chat's log has an answer to now, as often as it has one."""
        lines = await Outbox(client).read_after(self.session, after=0, limit=2000)
        return [id for line in lines if isinstance(line.line, OutboundMessage) for id in line.line.in_reply_to]

    async def _ingest(self, id: str) -> bool:
        """Whether the server knew the message already."""
        text = self._words.format(n=len(self.sent), id=id)
        sent = message(text, chat=f"owner/{self._name}", id=id)
        while True:
            try:
                show = UserLine(id=id, text=text)
                done = await Inbox(self._client).ingest(sent, log_line=show, principal="owner", retry_for_s=60)
            except (RedisAway, Refused):
                await asyncio.sleep(POLL_S)
            else:
                return done.duplicate


async def tails(folder: Path, *, wanted: int, seed: int) -> Sequence[Row]:
    """Cut, start again, judge."""
    rng = random.Random(seed)
    cuts: list[float] = []
    holes: set[str] = set()
    stopping = asyncio.Event()
    async with stage(folder, workers=3, lease_s=3, fsync="everysec", watched=False) as on:
        talkers = [Talker(on.client, f"c{i}") for i in range(CHATS)]

        async def talk(talker: Talker) -> None:
            while not stopping.is_set():
                await talker.say(cuts)
            await talker.say(cuts)  # every chat still goes on

        looking = asyncio.create_task(_look_for_holes(on.client, [talker.session for talker in talkers], holes))
        talking = [asyncio.create_task(talk(talker)) for talker in talkers]
        bytes_cut = forgotten = 0
        for _ in range(wanted):
            await asyncio.sleep(rng.uniform(2, 5))
            bytes_cut += await _lose_tail(on, rng.randint(SMALLEST_CUT, BIGGEST_CUT))
            cuts.append(time.monotonic())
            forgotten += await forgotten_answers(on.server.url, talkers)
            on.fleet.keep()
        await asyncio.sleep(2)
        stopping.set()
        _, wedged = await asyncio.wait(talking, timeout=PATIENCE_S)
        await cancel_all([*talking, looking])
        for task in talking:
            if task not in wedged:
                task.result()
        left = await debris(on.client)
        wrongs = {
            "chats that do not go on": len(wedged),
            "ledgers with a hole": len(holes),
            **await counted_wrongs(on.client, talkers),
        }
        for_good = await forgotten_answers(on.server.url, talkers)
        lost = [age for talker in talkers for age in talker.lost_ages]
        return [
            Row("cuts", wanted),
            Row("bytes cut off", bytes_cut),
            Row("messages answered", sum(len(talker.seen_answered) for talker in talkers)),
            Row("in the cut: messages to be sent again", len(lost)),
            Row("the oldest of them had been accepted for, s", max(lost, default=0.0)),
            Row("in the cut: answers that were seen and forgotten", forgotten),
            Row("of these never given again: their message was forgotten, too", for_good),
            *zero(wrongs),
            Row("left behind", ", ".join(left) or 0, not left),
        ]


async def forgotten_answers(url: str, talkers: Sequence[Talker]) -> int:
    """How many answers people saw that the server at `url` does not know.

    Asks by a connection of its own: theirs may be on its way back yet, and a server that is away has forgotten nothing.
    """
    client = RedisClient(url)
    try:
        # What is seen while we ask may be newer than what we are told.
        seen = [(talker, frozenset(talker.seen_answered)) for talker in talkers]
        return sum([len(answers - set(await talker.answered(client))) for talker, answers in seen])
    finally:
        await client.close()


async def counted_wrongs(client: RedisClient, talkers: Sequence[Talker]) -> dict[str, int]:
    """What must be 0, whatever a server forgot."""
    found = {"answered twice": 0, "in the history twice": 0, "torn histories": 0}
    for talker in talkers:
        entries = await history(client, talker.session)
        asked = Counter(entry.content for entry in entries if isinstance(entry, UserEntry))
        found["in the history twice"] += sum(count - 1 for count in asked.values())
        found["answered twice"] += sum(count - 1 for count in Counter(await talker.answered(client)).values())
        found["torn histories"] += torn(entries)
    found["dead letters"] = await client.command("XLEN", keys.DEAD)
    return found


async def _lose_tail(on: Stage, bytes_cut: int) -> int:
    """Kill the server, cut its newest file, start it; how much there was to cut."""
    await asyncio.to_thread(on.server.kill)
    newest = max(on.fleet.server_files("*.incr.aof"), key=lambda path: path.stat().st_mtime)
    size = newest.stat().st_size
    with newest.open("r+b") as file:
        file.truncate(max(0, size - bytes_cut))
    await asyncio.to_thread(on.server.start)
    return min(size, bytes_cut)


async def _look_for_holes(client: RedisClient, sessions: Sequence[str], holes: set[str]) -> None:
    """Watch all ledgers: steps are 1, 2, 3, ... at any time."""
    while True:
        for session in sessions:
            try:
                steps = await client.command("XRANGE", keys.ledger(session), "-", "+")
            except RedisAway:
                break
            if [step[0] for step in steps] != [b"%d-0" % number for number in range(1, len(steps) + 1)]:
                holes.add(session)
        await asyncio.sleep(POLL_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.tail")
    parser.add_argument("--cuts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    play = partial(tails, wanted=given.cuts, seed=given.seed)
    return perform("a lost tail", play, within_s=300 + 20 * given.cuts)


if __name__ == "__main__":
    sys.exit(main())
