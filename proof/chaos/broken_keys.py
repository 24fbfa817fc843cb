"""Every kind of key broken in every way under load: `python -m proof.chaos.broken_keys --seconds 3`.

Two gateways and two workers serve chats that talk all the time, and two pages, one at each gateway, that never close.
For each kind of key and each way to break it a page opens a chat and talks; the key of that chat, or of the fleet, is
broken; the page asks for everything again. Then the chat is erased, or the key deleted, as the runbook says, and the
chat must be answered. Counted are the waits of the other chats, processes that end and sockets that close.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from websockets.exceptions import ConnectionClosed

from proof.chaos.load import Crowd
from proof.chaos.stage import Row, Stage, perform, stage, zero
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import erase
from shared.store.turns.lost_places import requeue_lost
from tests.gateway.harness import TOKENS, Client, client, session_of
from tests.helpers.break_keys import BREAKAGES, KINDS, Breakage, break_key, names_of

CHATS: Final = 12
BEFORE_S: Final = 15.0
ANSWERED_WITHIN_S: Final = 60.0

NEEDED: Final = {"shoal:{0ax}:queue:", "shoal:{0ax}:leases:", "shoal:{0ax}:seen:"}
"""No turn begins or ends without these: others wait while one is broken, and until a lease is over."""

Case = tuple[keys.FleetKey | keys.Keys, Breakage]
CASES: Final[tuple[Case, ...]] = tuple((kind, how) for kind in KINDS for how in BREAKAGES)


class Waits(NamedTuple):
    """What others waited: before, while something was broken, and where nobody can go on without it."""

    before: list[float]
    beside: list[float]
    needed: list[float]


class Page:
    """A page that stays open. `closed` counts how often its socket was closed all the same."""

    def __init__(self, address: str) -> None:
        self.closed = 0
        self._address = address
        self._socket: Client | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Client]:
        """Use the socket; open it again if it was closed."""
        if self._socket is None:
            self._opening = client(self._address, TOKENS["owner"])
            self._socket = await self._opening.__aenter__()
        try:
            yield self._socket
        except ConnectionClosed:
            self.closed += 1
            self._socket = None
            raise

    async def close(self) -> None:
        """Leave."""
        if self._socket is not None:
            await self._opening.__aexit__(None, None, None)


async def broken_keys(
    folder: Path, *, cases: Sequence[Case], seconds: float, seed: int, lease_s: float, before_s: float = BEFORE_S
) -> Sequence[Row]:
    """Break one after the other, judge. Each stays broken for `seconds`; for `before_s` nothing is."""
    rng = random.Random(seed)
    async with stage(folder, workers=2, gateways=2, lease_s=lease_s, watched=False) as on:
        crowd = Crowd(on.client, [f"c{i}" for i in range(CHATS)])
        pages = [Page(address) for address in on.fleet.addresses()]
        crowd.start()
        await asyncio.sleep(before_s)
        waits = Waits(_waits(crowd, [0] * CHATS), [], [])
        mute = []
        for number, (kind, how) in enumerate(cases):
            seen = [len(chat.waits) for chat in crowd.chats]
            case = _one(on, pages[number % len(pages)], f"v{number}", kind, how, rng, seconds)
            try:
                await case
            except (TimeoutError, ConnectionClosed):
                mute.append(f"{kind} {how}")
            if str(kind) in NEEDED:
                await _all_go_on(crowd)
                waits.needed.extend(_waits(crowd, seen))
            else:
                waits.beside.extend(_waits(crowd, seen))
        never = await crowd.finish()
        for page in pages:
            await page.close()
        ended = sum(member.log.count('"worker ended"') for member in on.fleet.workers)
        ended += sum(not member.process.alive for member in (*on.fleet.workers, *on.fleet.gateways))
        closed = sum(page.closed for page in pages)
        before, beside = _p99(waits.before), _p99(waits.beside)
        wrongs = {name: count for name, count in (await crowd.wrongs()).items() if name != "torn histories"}
        return [
            Row("keys broken", len(cases)),
            Row("messages of other chats answered", sum(len(chat.answered) for chat in crowd.chats)),
            Row("they waited before, p99 s", before),
            Row("beside a broken key, p99 s", beside, beside <= 2 * before),
            Row("at the queue, its leases, message ids: max s", max(waits.needed, default=0.0)),
            Row("processes that ended", ended, ended == 0),
            Row("sockets that closed", closed, closed == 0),
            Row("chats that stayed mute", ", ".join(mute) or 0, not mute),
            Row("never answered", never, never == 0),
            *zero(wrongs),
        ]


async def _one(
    on: Stage, page: Page, chat: str, kind: keys.FleetKey | keys.Keys, how: Breakage, rng: random.Random, seconds: float
) -> None:
    session = session_of(chat)
    async with page.open() as socket:
        await socket.say(chat, "Calculate 6 * 7", f"{chat}-0")
        await socket.next("reply", chat=chat)
        await socket.say(chat, "Calculate 7 * 8", f"{chat}-1")
        names = await names_of(on.client, kind, session)
        for name in names:
            await break_key(on.client, name, how, rng)
        await socket.send("resume", chat=chat, after=0)
        await socket.send("history", chat=chat)
        await socket.send("chats")
        await socket.send("message", id=f"{chat}-2", chat=chat, text="Calculate 8 * 9")
        await socket.answer(f"{chat}-2")
        await asyncio.sleep(seconds)
        if how != "deleted":
            await _mend(on.client, session, names, own=isinstance(kind, keys.OwnKeys))
        if "queue" in kind:
            await requeue_lost(on.client)
        give_up_at = time.monotonic() + ANSWERED_WITHIN_S
        await socket.send("message", id=f"{chat}-3", chat=chat, text="Calculate 9 * 9")
        while (await socket.answer(f"{chat}-3"))["type"] == "error":
            if time.monotonic() > give_up_at:
                raise TimeoutError
            await asyncio.sleep(0.5)
            await socket.send("message", id=f"{chat}-3", chat=chat, text="Calculate 9 * 9")
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + give_up_at - time.monotonic()):
            while "81" not in (await socket.next("reply", chat=chat))["text"]:
                pass


async def _mend(client: RedisClient, session: str, names: Sequence[str], *, own: bool) -> None:
    """What the runbook says. The list of a person's chats, or their rate, is not erased with one chat."""
    if own:
        await erase(client, session)
    await client.command("DEL", *names)


async def _all_go_on(crowd: Crowd) -> None:
    """Wait until every chat was answered again."""
    answered = [len(chat.waits) for chat in crowd.chats]
    give_up_at = time.monotonic() + ANSWERED_WITHIN_S
    while any(len(chat.waits) <= before for chat, before in zip(crowd.chats, answered, strict=True)):
        if time.monotonic() > give_up_at:
            return
        await asyncio.sleep(0.2)


def _waits(crowd: Crowd, seen: Sequence[int]) -> list[float]:
    """The waits of every chat after so many of them."""
    return [wait for chat, many in zip(crowd.chats, seen, strict=True) for wait in chat.waits[many:]]


def _p99(waits: Sequence[float]) -> float:
    return sorted(waits)[int(0.99 * (len(waits) - 1))] if waits else 0.0


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.broken_keys")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each stays broken")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", type=float, default=15.0)
    parser.add_argument("--only", default="", help="kinds of keys whose prefix has this in it")
    given = parser.parse_args()
    cases = [(kind, how) for kind, how in CASES if given.only in kind]
    play = partial(broken_keys, cases=cases, seconds=given.seconds, seed=given.seed, lease_s=given.lease)
    return perform("Broken keys", play, within_s=600 + len(cases) * (given.seconds + ANSWERED_WITHIN_S))


if __name__ == "__main__":
    sys.exit(main())
