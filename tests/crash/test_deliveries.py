"""A gateway killed at each named point of a delivery, in the middle of a chat's replies, against the platform Pond."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import urllib.request
from collections.abc import AsyncIterator
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Final

import pytest

from shared.crash_points import VARIABLE
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.contracts.channels.echo import Echo
from tests.fakes.pond import LIMIT, TOKEN, FakePond, Offers
from tests.gateway.harness import free_port
from tests.helpers import valkey
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.pond_package import pond_package
from tests.helpers.processes import Process
from tests.helpers.wait import eventually, together

POINTS: Final = ("before_post", "after_post", "after_sent")
OFFERS: Final[tuple[Offers, ...]] = ("key", "look-up", "nothing")
WORDS: Final = ("one", "two", "three")
CHATS: Final = ("chat0", "chat1", "chat2")
PARTS: Final = 2
"""Posts of each reply: a gateway may die between them."""

WITHIN_S: Final = 60.0


class Fleet:
    """Gateways of Pond, one after the other."""

    def __init__(self, spawn: Spawn, redis_url: str, pond: FakePond, path: tuple[str, ...], armed: Path) -> None:
        self._spawn, self._redis_url, self._pond, self._path = spawn, redis_url, pond, path
        self._armed = armed
        self.metrics_port = 0

    def start(self) -> Process:
        self.metrics_port = free_port()
        return self._spawn(
            "gateway",
            "pond",
            env={VARIABLE: str(self._armed), "PYTHONPATH": os.pathsep.join(self._path)},
            REDIS__URL=self._redis_url,
            METRICS__PORT=str(self.metrics_port),
            CHANNELS__POND__API=self._pond.address,
            CHANNELS__POND__TOKEN=TOKEN,
            CHANNELS__POND__ALLOW_FROM="ada",
            CHANNELS__POND__OFFERS=self._pond.offers,
            CHANNELS__POND__TIMEOUT_S="30",
        )

    def unknown(self) -> int:
        """How many posts this gateway sent again because nobody knew of the first time."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        found = re.search(r'^shoal_delivery_unknown_total\{channel="pond"\} (\S+)$', text, re.MULTILINE)
        return int(float(found[1])) if found else 0


@contextlib.asynccontextmanager
async def answering(redis_url: str) -> AsyncIterator[Echo]:
    """A worker whose replies have PARTS posts each."""
    echo = Echo(redis_url)
    for word in WORDS:

        async def long(turn: Any, word: str = word) -> str:
            return "\n".join(f"{word} {part} {'.' * (LIMIT - 100)}" for part in range(PARTS))

        echo.scripts[word] = long
    echo.start()
    try:
        yield echo
    finally:
        await echo.close()


def reported(pond: FakePond, chat: str, word: str) -> None:
    pond.tell({"kind": "message", "id": f"{chat}-{word}", "chat": chat, "sender": "ada", "at": 1, "text": word})


def posts(pond: FakePond, chat: str) -> list[str]:
    """What stands in a chat, each post by its first two words."""
    return [" ".join(message.text.split()[:2]) for message in pond.chats.get(chat, [])]


@pytest.mark.parametrize("point", POINTS)
async def test_a_gateway_killed_in_a_delivery_loses_nothing_and_doubles_only_what_is_counted(
    spawn: Spawn, tmp_path: Path, point: str
) -> None:
    """In the first, a middle and the last post of a chat. Every post is there, in order; one stands there twice only
    where the platform knows no key and cannot be asked, and then it is counted."""
    with pond_package() as path:
        await together({offers: killed(spawn, path, tmp_path / offers, point, offers) for offers in OFFERS})


async def killed(spawn: Spawn, path: tuple[str, ...], folder: Path, point: str, offers: Offers) -> None:
    """A gateway of a platform that offers this, killed three times at a point."""
    armed = folder / "crash"
    wanted = list(chain.from_iterable([f"{word} {part}" for part in range(PARTS)] for word in WORDS))
    async with contextlib.AsyncExitStack() as stack:
        redis_url = stack.enter_context(valkey.another(folder))
        client = RedisClient(redis_url)
        stack.push_async_callback(client.close)
        pond = await stack.enter_async_context(FakePond(offers).serving())
        await stack.enter_async_context(answering(redis_url))
        fleet = Fleet(spawn, redis_url, pond, path, armed)
        gateway, counted = fleet.start(), 0
        await eventually(lambda: "listening" in gateway.log, within_s=WITHIN_S, what="the gateway")
        for chat, visit in zip(CHATS, (1, PARTS * len(WORDS) // 2, PARTS * len(WORDS)), strict=True):
            armed.write_text(f"{point} {visit}")
            for word in WORDS:
                reported(pond, chat, word)
            await died(gateway)
            await lapsed(client)
            gateway = fleet.start()
            await delivered(client, pond, chat, wanted[-1])
            counted = await asyncio.to_thread(fleet.unknown)
            shown = posts(pond, chat)
            assert [post for post, _ in groupby(shown)] == wanted, "in order, nothing lost"
            doubles = len(shown) - len(wanted)
            assert doubles == (offers == "nothing" and point == "after_post")
            assert counted == (offers == "nothing" and point != "after_sent")
        gateway.terminate()
        assert await asyncio.to_thread(gateway.wait) == 0


async def died(gateway: Process) -> None:
    await eventually(lambda: not gateway.alive, within_s=WITHIN_S, what="the crash")


async def lapsed(client: RedisClient) -> None:
    """Let the leases of the dead gateway be over: those of a minute are left to no stall of the machine, and waited
    for by no test."""
    for session in await client.command("HKEYS", keys.outleases("pond")):
        await client.command("ZADD", keys.outqueue("pond"), "XX", 0, session)
    if await client.command("EXISTS", keys.lock("pond")):
        await client.command("HSET", keys.lock("pond"), "until", 0)


async def delivered(client: RedisClient, pond: FakePond, chat: str, last: str) -> None:
    """Wait until the last post is there, and nothing is left to do."""

    async def quiet() -> bool:
        queue, leases = await client.pipeline(
            [("ZCARD", "shoal:{0ax}:outqueue:pond"), ("HLEN", "shoal:{0ax}:outleases:pond")]
        )
        return not queue and not leases

    await eventually(lambda: posts(pond, chat)[-1:] == [last], within_s=WITHIN_S, what="the replies")
    await eventually(quiet, within_s=WITHIN_S, what="the end of deliveries")
