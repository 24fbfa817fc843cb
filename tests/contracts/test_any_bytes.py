"""No byte on any channel or key ends a process: what listens to Redis goes on, whatever others wrote there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared.chatlog.follower import ChatFollower
from shared.errors import RedisAway, Refused
from shared.ids import nonce
from shared.process.fleet_gauges import FleetGauges
from shared.process.resp import RespError
from shared.settings import CronSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.deliveries import DeliveryQueue
from shared.store.delivery.fanout import Fanout
from shared.store.delivery.listener_lease import ListenerLock
from shared.store.delivery.outbox import Outbox, read_outboxes
from shared.store.fleet.presence import list_processes, read_queue
from shared.store.schedules.agenda import Agenda
from shared.store.schedules.schedules import Schedules
from shared.store.turns.queue import LeaseQueue
from shared.tasks import cancel_all
from tests.gateway.delivery_stage import run_delivery
from tests.helpers.break_keys import KINDS
from tests.helpers.wait import eventually
from worker.jobs.ticks import Ticker
from worker.lease.lease_loop import LeaseLoop
from worker.process.loop_group import StopListener
from worker.process.worker_handle import WorkerLeases

CHANNEL: Final = "telegram"
OWNER: Final = "a" * 32
QUIET = settings(max_examples=25, suppress_health_check=list(HealthCheck))

words = st.one_of(st.binary(max_size=40), st.text(max_size=12).map(lambda text: text.encode(errors="replace")))
members = st.one_of(
    words,
    st.sampled_from([b"turn:web:a", b"turn:\xff", b"sub:\xff", b"clock", b"i:\xff:web:a", b"telegram:1", b"\xff"]),
)
values = st.one_of(words, st.sampled_from([OWNER.encode() + b":\xff", b"\xff", b"1", b"-1", b"nan", b"{" * 3000]))
scores = st.sampled_from([b"-inf", b"0", b"-1", b"1e308", b"1.5"])


async def fill(client: RedisClient, kind: keys.FleetKey | keys.Keys, id: str, row: tuple[bytes, bytes, bytes]) -> None:
    """Write a row into a key of this kind, as anybody with a user in Redis may."""
    name = kind if isinstance(kind, keys.FleetKey) else kind(id)
    member, value, score = row
    command: dict[str, tuple[str | bytes, ...]] = {
        "hash": ("HSET", name, member, value),
        "zset": ("ZADD", name, score, member),
        "list": ("RPUSH", name, value),
        "string": ("SET", name, value),
        "set": ("SADD", name, member),
        "stream": ("XADD", name, "*", member, value),
    }
    with contextlib.suppress(RedisAway, Refused):
        await client.command(*command[kind.type])


def listeners(client: RedisClient, url: str) -> dict[str, Callable[[], Awaitable[object]]]:
    """One step of each loop that lives as long as its process."""
    queues = [LeaseQueue(client, name, owner=OWNER, lease_s=30) for name in ("turns", "jobs")]
    deliveries, lock = DeliveryQueue(client, CHANNEL, lease_s=30), ListenerLock(client, CHANNEL, lease_s=30)
    deliveries.owner, guarded = OWNER, WorkerLeases(url, 30, OWNER)

    async def guardian() -> None:
        try:
            guarded.renew()
            guarded.release_all(crashed=True)
        except (OSError, RespError):
            pass
        finally:
            guarded.close()

    async def returned() -> None:
        deliveries._was_unavailable = True
        await deliveries.acquire(4)

    steps: dict[str, Callable[[], Awaitable[object]]] = {}
    for queue in queues:
        steps |= {f"{queue.name} unknown": lambda queue=queue: queue.release_unknown([])}  # type: ignore[misc]
        steps |= {f"{queue.name} acquire": lambda queue=queue: queue.acquire(4)}  # type: ignore[misc]
    return steps | {
        "deliveries": lambda: deliveries.acquire(4),
        "deliveries after an outage": returned,
        "lock": lock.acquire,
        "guardian": guardian,
        "schedules": Schedules(client).due,
        "agenda": Agenda(client, keys.IDLE).due,
        "gauges": FleetGauges(client).refresh,
        "processes": lambda: list_processes(client),
        "queue": lambda: read_queue(client, "turns"),
        "outboxes": lambda: read_outboxes(client),
    }


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_bytes_in_a_key_end_a_loop(kind: keys.FleetKey | keys.Keys, redis_url: str) -> None:
    """Of each kind of key, with names and values of any bytes: a loop sees nothing but errors that it expects."""

    @QUIET
    @given(rows=st.lists(st.tuples(members, values, scores), min_size=1, max_size=4))
    @example(rows=[(b"\xff", OWNER.encode() + b":\xff", b"-inf")])
    @example(rows=[(b"turn:\xff", b"\xff" * 3, b"0"), (b"clock", b"x", b"0")])
    @example(rows=[(b"", b"", b"-inf"), (b"", OWNER.encode(), b"-inf")])
    def each(rows: list[tuple[bytes, bytes, bytes]]) -> None:
        asyncio.run(tried(rows))

    async def tried(rows: list[tuple[bytes, bytes, bytes]]) -> None:
        client = RedisClient(redis_url)
        try:
            await client.command("FLUSHALL")
            for at, row in enumerate(rows):
                for id in ("turns", CHANNEL, "telegram:1", f"worker:{at}"):
                    await fill(client, kind, id, row)
                # Names that lead to the keys: loops begin at these.
                await client.command("ZADD", keys.PRESENCE, 1, f"shoal:{{0ax}}:presence:worker:{at}")
                await client.command("ZADD", keys.outqueue(CHANNEL), 1, "telegram:1")
                await client.command("ZADD", keys.SCHEDULES, 1, row[0] + b":telegram:1")
            for name, step in listeners(client, redis_url).items():
                try:
                    await step()
                except (RedisAway, Refused):
                    pass
                except Exception as exc:
                    raise AssertionError(f"{name} ends by {type(exc).__name__}: {exc}") from exc
        finally:
            await client.close()

    each()


@QUIET
@given(sent=st.lists(values, min_size=1, max_size=20))
@example(sent=[b"\xff", b"\xff 1", b"{" * 90_000, b'{"t":"\xff"}', b"9" * 5000 + b" x"])
def test_no_message_ends_a_subscription(redis_url: str, sent: list[bytes]) -> None:
    """Workers listen for stops, gateways for news of chats, of due chats and of free locks."""
    asyncio.run(published(redis_url, sent))


async def published(url: str, sent: list[bytes]) -> None:
    client, seen = RedisClient(url), list[bytes]()

    async def ready() -> None:
        pass

    loop = LeaseLoop(LeaseQueue(client, "turns", owner=nonce(), lease_s=30), slots=1, run=lambda _: ready())
    stops, fanout = StopListener(client, [loop]), Fanout(client, on_gap=ready)
    follower = ChatFollower(Outbox(client), lambda on_gap: Fanout(client, on_gap=on_gap))

    def brittle(data: bytes) -> None:
        seen.append(data)
        data.decode("ascii")
        raise KeyError(data)

    await stops.subscribe()
    await fanout.subscribe("shoal:{0ax}:live:x", brittle)
    await fanout.follow_chat("web:a", lambda _: None)
    running = [asyncio.create_task(one.run()) for one in (stops, fanout, follower)]
    try:
        for data in sent:
            for channel in (keys.CONTROL, "shoal:{0ax}:live:x", keys.live("web:a")):
                while not await client.command("PUBLISH", channel, data):
                    assert not any(task.done() for task in running)
                    await asyncio.sleep(0)
        await eventually(lambda: len(seen) >= len(sent), within_s=60)
        assert not any(task.done() for task in running)
    finally:
        await cancel_all(running)
        await loop.queue.close()
        await client.close()


async def test_a_queue_that_cannot_be_read_ends_no_worker(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The net below all of that: the loop tries again, and claims when the queue can be read."""
    queue, asked = LeaseQueue(client, "turns", owner=nonce(), lease_s=30), list[int]()

    async def acquire(*_: object, **__: object) -> list[object]:
        asked.append(1)
        if len(asked) < 3:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no")
        return []

    monkeypatch.setattr(queue, "acquire", acquire)
    monkeypatch.setattr(queue, "acquire_next", acquire)
    loop = LeaseLoop(queue, slots=1, run=lambda _: asyncio.sleep(0))
    running = asyncio.create_task(loop.run())
    await eventually(lambda: len(asked) > 3, within_s=60)
    assert not running.done()
    loop.drain()
    await running


async def test_a_channel_that_cannot_be_read_ends_no_gateway(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries go on when their queue can be read again."""
    async with run_delivery(redis_url, tmp_path) as stage:
        right, failed = stage.deliveries.acquire, list[int]()

        async def acquire(many: int) -> object:
            if len(failed) < 3:
                failed.append(1)
                raise ValueError("not a number")
            return await right(many)

        monkeypatch.setattr(stage.deliveries, "acquire", acquire)
        await stage.say("hello")
        await stage.receives("<echo: hello>")
        assert len(failed) == 3


async def test_a_schedule_that_cannot_be_read_holds_up_no_other(client: RedisClient) -> None:
    """A tick of garbage is put off; the poll goes on."""
    await client.command("ZADD", keys.SCHEDULES, "-inf", b"\xff:web:a")
    await client.command("HSET", keys.schedules("web:a"), b"\xff", b"\xff", b"\xff:tick", "soon")
    assert await Ticker(Schedules(client), CronSettings()).run_once() >= 0
