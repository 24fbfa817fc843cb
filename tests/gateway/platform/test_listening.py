"""Who listens: one at a time, so many, or all; and what a listener does that is broken off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from gateway.platform.listening import ListenerCursor, PlatformListener, locks_of
from gateway.platform.protocol import ChannelBroken, Inlet, NotAccepted
from shared.errors import RedisAway
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from shared.tasks import cancel_all
from tests.contracts.channels.stage import MortalClient
from tests.gateway.fake_platform import FakePlatform
from tests.helpers.wait import eventually

INLET = cast(Inlet, None)
SOON_S = 60.0


class Listener:
    """One replica's listening."""

    def __init__(self, client: MortalClient, platform: FakePlatform, lease_s: float) -> None:
        async def on_gap() -> None:
            pass

        self.client = client
        self.platform = platform
        self.cursor = ListenerCursor()
        self.draining = asyncio.Event()
        fanout = Fanout(client, on_gap=on_gap)
        self._hearing = asyncio.create_task(fanout.run())
        locks = locks_of(platform, client, lease_s=lease_s)
        self.listening = PlatformListener(platform, locks, self.cursor, fanout, draining=self.draining)
        self.running = asyncio.create_task(self.listening.run(INLET))

    async def listens(self) -> None:
        await eventually(self.platform.listening.is_set, within_s=SOON_S, what="a listener")

    async def close(self) -> None:
        self.draining.set()
        await asyncio.wait({self.running})
        await cancel_all([self._hearing])
        await self.client.close()


class Listeners:
    """Replicas of one channel."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self.all: list[Listener] = []

    def add(self, platform: FakePlatform, *, lease_s: float = 60.0) -> Listener:
        made = Listener(MortalClient(self._redis_url, timeout_s=1.0), platform, lease_s)
        self.all.append(made)
        return made


@pytest.fixture
async def listeners(redis_url: str) -> AsyncIterator[Listeners]:
    made = Listeners(redis_url)
    yield made
    for listener in made.all:
        await listener.close()


async def test_one_of_two_listens_and_hands_over_at_its_end(listeners: Listeners) -> None:
    """At once: the lease of a minute is given up, and the other one is told."""
    first = listeners.add(FakePlatform())
    await first.listens()
    second = listeners.add(FakePlatform())
    first.draining.set()
    await asyncio.wait({first.running})
    await second.listens()
    assert not first.platform.listening.is_set()


async def test_who_loses_the_lock_stops_at_once(listeners: Listeners, client: RedisClient) -> None:
    """Another one may listen already: the connection is cut, not finished."""
    first = listeners.add(FakePlatform(), lease_s=2.0)
    await first.listens()
    ended = asyncio.Event()

    async def cut() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    first.platform.fault("listen", cut)
    await client.command("HSET", keys.lock("fake"), "lease", "somebody:1", "until", 10**15)
    await eventually(lambda: not first.platform.listening.is_set(), within_s=SOON_S, what="the end")
    assert not first.listening.listens


async def test_who_does_not_know_whether_it_has_the_lock_stops_in_time(listeners: Listeners) -> None:
    """Redis is away: after three quarters of the lease nothing is listened to."""
    first = listeners.add(FakePlatform(), lease_s=2.0)
    await first.listens()
    first.client.dead = True
    await eventually(lambda: not first.platform.listening.is_set(), within_s=SOON_S, what="the end")
    first.client.dead = False
    await first.listens()


async def test_so_many_sockets_as_the_platform_takes(listeners: Listeners) -> None:
    """A third replica waits for one of two."""
    all_three = [listeners.add(FakePlatform(run_mode="socket", sockets=2)) for _ in range(3)]

    def open_ones() -> list[Listener]:
        return [one for one in all_three if one.platform.listening.is_set()]

    await eventually(lambda: len(open_ones()) == 2, within_s=SOON_S)
    [waiting] = [one for one in all_three if one not in open_ones()]
    open_ones()[0].draining.set()
    await waiting.listens()


async def test_every_replica_has_a_socket_where_the_platform_says_no_number(listeners: Listeners) -> None:
    """No lock is asked for."""
    both = [listeners.add(FakePlatform(run_mode="socket")) for _ in range(2)]
    for one in both:
        await one.listens()


@pytest.mark.parametrize("fault", [NotAccepted("cut"), RedisAway("away"), KeyError("a bug")])
async def test_a_listener_that_breaks_off_is_called_again(
    listeners: Listeners, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment, and as often as it takes."""
    monkeypatch.setattr("gateway.platform.listening.AGAIN_FIRST_S", 0.05)
    platform = FakePlatform()
    platform.fault("listen", fault, fault)
    listeners.add(platform)
    await eventually(lambda: platform.calls.count("listen") == 3 and platform.listening.is_set(), within_s=SOON_S)


async def test_a_channel_that_needs_a_person_says_so(listeners: Listeners) -> None:
    """And gives the lock up: perhaps another replica has a better token."""
    platform = FakePlatform()
    platform.fault("listen", ChannelBroken("no token"))
    first = listeners.add(platform)
    await asyncio.wait({first.running})
    assert isinstance(first.running.exception(), ChannelBroken)
    second = listeners.add(FakePlatform())
    await second.listens()


async def test_how_far_was_read_is_known_to_whoever_listens_next(listeners: Listeners) -> None:
    """Only who has the lock can say."""
    first = listeners.add(FakePlatform())
    await first.listens()
    assert first.cursor.read() == b""
    await first.cursor.save(b"17")
    assert first.cursor.read() == b"17"
    second = listeners.add(FakePlatform())
    await second.cursor.save(b"3")
    first.draining.set()
    await second.listens()
    assert second.cursor.read() == b"17"


async def test_a_listener_that_does_not_end_is_cut(listeners: Listeners, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the process, after a moment."""
    monkeypatch.setattr("gateway.platform.listening.FINISH_S", 0.2)

    async def for_ever() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.Event().wait()

    platform = FakePlatform()
    platform.fault("listen", cast(Any, for_ever))
    first = listeners.add(platform)
    await first.listens()
    async with asyncio.timeout(10):
        await first.close()


async def test_a_listener_that_is_cancelled_again_and_again_gives_its_lock_up(
    listeners: Listeners, client: RedisClient
) -> None:
    """Else no replica would listen until the lease of a minute has lapsed."""
    first = listeners.add(FakePlatform())
    await first.listens()
    for _ in range(50):
        first.running.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({first.running})
    assert await client.command("HEXISTS", keys.lock("fake"), "until") == 0
