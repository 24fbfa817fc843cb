"""What every process tells of Redis, the queues and the fleet."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from pathlib import Path

import pytest
from msgspec.structs import replace

from shared.errors import RedisAway, ReplyError
from shared.media.disk import DiskFloor
from shared.metrics import REGISTRY
from shared.process.fleet_gauges import CACHED_S, SETTINGS_EVERY_S, FleetGauges, warn_of_restart
from shared.process.volume_gauges import VolumeGauges
from shared.settings import Settings
from shared.store.client.redis_client import RedisClient, Value
from shared.store.fleet.presence import Presence, announce, remove_presence
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.clock import HandClock
from tests.helpers.wait import eventually


class Shut(RedisClient):
    """A client of a server that can go away, or refuse some commands."""

    away = False
    hidden: Collection[Value] = ()

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.refused: list[Value] = []

    async def command(self, *parts: Value) -> object:
        if self.away:
            raise RedisAway("away")
        if parts[0] in self.hidden:
            self.refused.append(parts[0])
            raise ReplyError(f"ERR unknown command '{parts[0]!r}'")
        return await super().command(*parts)


def gauge(name: str, **labels: str) -> float:
    value = REGISTRY.get_sample_value(f"shoal_{name}", labels)
    assert value is not None
    return value


@pytest.fixture
def shut(redis_url: str) -> Shut:
    return Shut(redis_url)


async def test_queues_fleet_and_server_are_read(client: RedisClient) -> None:
    """Also with no worker at all: then there are none of them."""
    await say(Inbox(client))
    for kind, name in (("gateway", "g"), ("gateway", "h"), ("worker", "w")):
        await announce(client, Presence(kind=kind, name=name, host="h", pid=1, started_at=0, version="0"))
    await FleetGauges(client).refresh()
    assert gauge("queue_due", queue="turns") == 1
    assert gauge("queue_running", queue="turns") == gauge("queue_due", queue="jobs") == 0
    assert (gauge("processes", kind="gateway"), gauge("processes", kind="worker")) == (2, 1)
    assert gauge("redis_up") == gauge("redis_writes_ok") == 1
    assert abs(gauge("redis_clock_ahead_seconds")) < 1
    assert gauge("redis_memory_bytes") > 500_000
    assert gauge("redis_memory_limit_bytes") == 0
    await client.command("CONFIG", "SET", "maxmemory", 50_000_000)
    try:
        await FleetGauges(client).refresh()
        assert gauge("redis_memory_limit_bytes") == 50_000_000
    finally:
        await client.command("CONFIG", "SET", "maxmemory", 0)


@pytest.mark.parametrize(
    ("setting", "value", "window_s"),
    [
        ("appendfsync", "always", 0.0),
        ("appendfsync", "everysec", 1.0),
        ("appendfsync", "no", math.inf),
        ("appendonly", "no", math.inf),
    ],
)
async def test_what_a_crash_of_redis_may_cost_is_exported(
    setting: str, value: str, window_s: float, client: RedisClient
) -> None:
    """By its own settings; somebody may change them while it runs."""
    before = (await client.command("CONFIG", "GET", setting))[1]
    clock = HandClock()
    readings = FleetGauges(client, clock=clock)
    await readings.refresh()
    await client.command("CONFIG", "SET", setting, value)
    try:
        clock.at += SETTINGS_EVERY_S + CACHED_S
        await readings.refresh()
        assert gauge("redis_loss_window_seconds") == window_s
    finally:
        await client.command("CONFIG", "SET", setting, before)


async def test_a_role_that_may_not_read_settings_does_not_ask_for_them(client: RedisClient, redis_url: str) -> None:
    """As a gateway: the server's log of refusals is for intruders. Without a log at all INFO tells."""
    await client.command("ACL", "SETUSER", "gateway", "on", ">pw", "~*", "+@all", "-config")
    await client.command("ACL", "LOG", "RESET")
    role = RedisClient(redis_url.replace("//:", "//gateway:").replace(secret_of(redis_url), "pw"))
    assert role.user == "gateway"
    try:
        await FleetGauges(role).refresh()
        assert math.isnan(gauge("redis_loss_window_seconds"))
        assert await client.command("ACL", "LOG") == []
        await client.command("CONFIG", "SET", "appendonly", "no")
        await FleetGauges(role).refresh()
        assert gauge("redis_loss_window_seconds") == math.inf
    finally:
        await client.command("CONFIG", "SET", "appendonly", "yes")
        await role.close()
        await client.command("ACL", "DELUSER", "gateway")


async def test_the_roles_as_shipped_know_what_a_crash_costs(client: RedisClient, redis_url: str) -> None:
    """A worker reads `appendfsync` with the rights that users.acl gives it, and nothing is refused."""
    users = (Path(__file__).parents[2] / "deploy/redis/users.acl").read_text().replace("\\\n", "")
    [rule] = [line for line in users.splitlines() if line.startswith("user worker ")]
    await client.command(
        "ACL", "SETUSER", *rule.replace("{worker}", ">pw").split()[1:4], "resetchannels", "-@all", "~*"
    )
    granted = [word for word in rule.partition("(")[0].split() if word.startswith("+")]
    await client.command("ACL", "SETUSER", "worker", *granted)
    await client.command("ACL", "LOG", "RESET")
    before = (await client.command("CONFIG", "GET", "appendfsync"))[1]
    await client.command("CONFIG", "SET", "appendfsync", "always")
    role = RedisClient(redis_url.replace("//:", "//worker:").replace(secret_of(redis_url), "pw"))
    try:
        await FleetGauges(role).refresh()
        assert gauge("redis_loss_window_seconds") == 0
        assert await client.command("ACL", "LOG") == []
    finally:
        await client.command("CONFIG", "SET", "appendfsync", before)
        await role.close()
        await client.command("ACL", "DELUSER", "worker")


async def test_places_are_those_of_workers_that_take_work(client: RedisClient) -> None:
    """A worker is all processes of a host. One that drains has no places; the size of the last one stays."""
    base = Presence(kind="worker", name="", host="a", pid=1, started_at=0, version="0", slots=100, job_slots=20)
    for name, fields in (("1", {}), ("2", {}), ("3", {"host": "b"}), ("4", {"host": "c", "draining": True})):
        await announce(client, replace(base, name=name, **fields))
    clock = HandClock()
    readings = FleetGauges(client, clock=clock)
    await readings.refresh()
    assert [gauge("places", queue=queue) for queue in ("turns", "jobs")] == [300, 60]
    assert [gauge("worker_places", queue=queue) for queue in ("turns", "jobs")] == [200, 40]
    for name in "123":
        await remove_presence(client, replace(base, name=name))
    clock.at += 2 * CACHED_S
    await readings.refresh()
    assert (gauge("places", queue="turns"), gauge("worker_places", queue="turns")) == (0, 200)


async def test_the_append_only_file_has_a_size_and_a_cost(client: RedisClient) -> None:
    """A disk that becomes slow shows here before anybody notices."""
    await say(Inbox(client))
    await FleetGauges(client).refresh()
    assert gauge("redis_aof_bytes") > 100
    assert gauge("redis_aof_busy_seconds") > 0


async def test_a_restart_that_would_forget_is_logged_once_at_the_start(
    client: RedisClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever reads the log of a new release sees it before the next restart of Redis."""
    await warn_of_restart(client)
    assert capsys.readouterr().out == ""
    await client.command("ACL", "SETUSER", "default", "-xadd")
    try:
        await warn_of_restart(client)
    finally:
        await client.command("ACL", "SETUSER", "default", "+@all")
    assert capsys.readouterr().out.count("redis restart forgets") == 1


async def test_a_restart_that_would_forget_is_exported(client: RedisClient) -> None:
    """A user `default` that may not write loses what scripts wrote, at the next start; somebody may change it."""
    clock = HandClock()
    readings = FleetGauges(client, clock=clock)
    await readings.refresh()
    assert gauge("redis_restart_safe") == 1
    await client.command("ACL", "SETUSER", "default", "-xadd")
    try:
        clock.at += SETTINGS_EVERY_S + CACHED_S
        await readings.refresh()
        assert gauge("redis_restart_safe") == 0
    finally:
        await client.command("ACL", "SETUSER", "default", "+@all")


def secret_of(url: str) -> str:
    """The password in an address."""
    return url.split("//:")[1].partition("@")[0]


async def test_a_reading_stands_for_a_second(client: RedisClient) -> None:
    """However many scrape, Redis is asked once."""
    clock = HandClock()
    readings = FleetGauges(client, clock=clock)
    await readings.refresh()
    await say(Inbox(client))
    clock.at += CACHED_S * 0.9
    await readings.refresh()
    assert gauge("queue_due", queue="turns") == 0
    clock.at += CACHED_S * 0.2
    await readings.refresh()
    assert gauge("queue_due", queue="turns") == 1


async def test_while_redis_is_unavailable_the_last_reading_stays_and_redis_is_down(
    client: RedisClient, shut: Shut
) -> None:
    """The page of metrics is never lost with Redis."""
    clock = HandClock()
    readings = FleetGauges(shut, clock=clock)
    await say(Inbox(client))
    await readings.refresh()
    shut.away = True
    clock.at += 2 * CACHED_S
    await readings.refresh()
    assert (gauge("redis_up"), gauge("queue_due", queue="turns")) == (0, 1)
    shut.away = False
    clock.at += 2 * CACHED_S
    await readings.refresh()
    assert gauge("redis_up") == 1
    await shut.close()


async def test_what_a_server_does_not_tell_is_no_number(shut: Shut) -> None:
    """A hosted one may hide INFO: then no rule fires, rather than one that takes nothing for zero bytes."""
    shut.hidden = ("INFO",)
    await FleetGauges(shut).refresh()
    assert gauge("redis_up") == 1
    for name in (
        "redis_memory_bytes",
        "redis_memory_limit_bytes",
        "redis_writes_ok",
        "redis_restart_safe",
        "redis_aof_bytes",
    ):
        assert math.isnan(gauge(name))
    await shut.close()


async def test_a_setting_that_the_server_refused_is_not_read_again(shut: Shut) -> None:
    """Each try would be a line in the server's log of refusals, from every process, every minute."""
    shut.hidden = ("CONFIG", "ACL")
    clock = HandClock()
    readings = FleetGauges(shut, clock=clock)
    for _ in range(3):
        await readings.refresh()
        clock.at += SETTINGS_EVERY_S + CACHED_S
    assert shut.refused == ["CONFIG", "ACL"]
    assert math.isnan(gauge("redis_loss_window_seconds"))
    await shut.close()


async def test_every_command_is_timed_and_no_waiting_one(client: RedisClient) -> None:
    """A wait for work says nothing of how quick Redis is."""

    def count() -> float:
        return gauge("redis_command_seconds_count")

    before = count()
    await client.command("PING")
    await client.pipeline([("PING",), ("PING",)])
    assert count() - before == 2
    blocking = client.blocking(0.01)
    await blocking.commands([("BLPOP", "nothing", 0.01)])
    await blocking.close()
    assert count() - before == 2


async def test_volumes_say_how_much_room_they_have(client: RedisClient, tmp_path: Path) -> None:
    """Above what must stay free; one that does not answer holds nothing up and is not asked again and again."""
    release = threading.Event()

    class Hung(DiskFloor, frozen=True):
        def room_bytes(self, folder: Path) -> int:
            asked.append(folder)
            release.wait(10)
            return 7

    asked: list[Path] = []
    volumes = {"media": (tmp_path / "no", DiskFloor(2**62, 1.0)), "workspaces": (tmp_path, Hung())}
    clock = HandClock()
    readings = VolumeGauges(volumes, answer_s=0.02)
    gauges = FleetGauges(client, clock=clock, volumes=readings)
    for _ in range(2):
        await gauges.refresh()
        clock.at += CACHED_S
    assert gauge("volume_room_bytes", volume="media") < 0
    assert math.isnan(gauge("volume_room_bytes", volume="workspaces"))
    assert len(asked) == 1
    release.set()

    async def both_have_answered() -> bool:
        await readings.refresh()
        return gauge("volume_room_bytes", volume="workspaces") == 7 and gauge("volume_room_bytes", volume="media") < 0

    await eventually(both_have_answered)
    assert set(VolumeGauges.of(Settings(), workspaces=True).volumes) == {"media", "workspaces"}
