"""Running what is planned: each tick once, whoever looks, and what becomes of those that nobody could run."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from shared.errors import RedisAway, Refused, ToolFailed
from shared.messages.inbound import InboundMessage
from shared.messages.schedule import HEARTBEAT, AtPlan, CronPlan, EveryPlan, Misfire, Plan, Schedule
from shared.metrics import SCHEDULES_FIRED
from shared.settings import CronSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import BATCH, DueSchedule, NextTick, Schedules
from tests.helpers.schedules import MINUTE, answer_all, inbox, left, schedule, server_ms
from tests.helpers.wait import eventually
from worker.jobs.ticks import POLL_S, SOON_S, Ticker, TickPlan, plan_tick

HOUR = 60 * MINUTE
NOW = 1_795_262_400_000
SETTINGS = CronSettings()
AT_ONCE = CronSettings(spread_s=0)


def fired(outcome: str) -> float:
    return float(SCHEDULES_FIRED.labels(outcome)._value.get())


def ticks_of(messages: list[InboundMessage]) -> list[int]:
    return [int(message.metadata["tick"]) for message in messages]


# Each once


class Sleeper(Schedules):
    """One whose worker is stopped between seeing a tick and running it, until it is woken."""

    def __init__(self, client: RedisClient) -> None:
        super().__init__(client, AT_ONCE)
        self.asleep = asyncio.Event()
        self.awake = asyncio.Event()
        self.late = 0

    async def fire(self, due: DueSchedule, *args: Any, **kwargs: Any) -> Any:
        self.asleep.set()
        await self.awake.wait()
        self.late += 1
        return await super().fire(due, *args, **kwargs)


async def test_a_thousand_ticks_and_three_workers_make_a_thousand_messages(client: RedisClient) -> None:
    """One of the workers sleeps in the middle of running its ticks, for longer than all the others need, and then goes
    on with what it saw: nothing is run twice, nothing is left out, and each chat has its ticks in order."""
    chats, each = 10, 100
    plan = EveryPlan(1000, NOW)
    one_second = CronSettings(min_every_s=1)
    for number in range(chats):
        await Schedules(client, one_second).add(schedule(chat=f"owner/{number}", plan=plan), NOW + 1000)
    sleeper = Sleeper(client)
    sleeping = asyncio.create_task(
        Ticker(sleeper, AT_ONCE, rng=random.Random(0)).run_once(now_ms=NOW + 1000), name="sleeper"
    )
    await sleeper.asleep.wait()
    tickers = [Ticker(Schedules(client), AT_ONCE, rng=random.Random(seed)) for seed in (1, 2)]
    answered: list[InboundMessage] = []
    for second in range(1, each + 1):
        if second == each - 10:
            sleeper.awake.set()
            await sleeping
        now = NOW + 1000 * second
        await asyncio.gather(*(ticker.run_once(now_ms=now) for ticker in tickers))
        answered += await answer_all(client)
    assert len(answered) == chats * each == 1000
    assert max(Counter(message.id for message in answered if message.chat_id == "owner/0").values()) == 1
    for number in range(chats):
        ticks = ticks_of([message for message in answered if message.chat_id == f"owner/{number}"])
        assert ticks == [NOW + 1000 * second for second in range(1, each + 1)]
    assert sleeper.late == chats


async def test_a_worker_that_dies_while_it_runs_ticks_loses_and_doubles_none(client: RedisClient) -> None:
    """Before the step nothing has happened, after it everything: another worker does the rest."""

    class Dying(Schedules):
        async def fire(self, due: DueSchedule, *args: Any, **kwargs: Any) -> Any:
            if due.schedule == schedule("bb"):
                raise RedisAway("died before it")
            done = await super().fire(due, *args, **kwargs)
            if due.schedule == schedule("cc"):
                raise RedisAway("died after it")
            return done

    for id in ("aa", "bb", "cc"):
        await Schedules(client).add(schedule(id), NOW)
    with pytest.raises(RedisAway):
        await Ticker(Dying(client), SETTINGS).run_once(now_ms=NOW)
    await Ticker(Schedules(client), SETTINGS).run_once(now_ms=NOW)
    assert sorted(message.metadata["schedule"] for message in await answer_all(client)) == ["aa", "bb", "cc"]


# Those that were missed


def at(minutes: float) -> int:
    return NOW + int(minutes * MINUTE)


EVERY_10 = EveryPlan(10 * MINUTE, NOW)
CLOCK = CronPlan("*/20 * * * *", "UTC")


@pytest.mark.parametrize(
    ("plan", "misfire", "tick", "now", "wanted"),
    [
        # In time, or a little late: run, whatever the policy is.
        (EVERY_10, "skip", 10, 10, TickPlan(True, NextTick(to=at(20), due_ms=at(20)))),
        (EVERY_10, "skip", 10, 11, TickPlan(True, NextTick(to=at(20), due_ms=at(20)))),
        (EVERY_10, "once", 10, 11, TickPlan(True, NextTick(to=at(20), due_ms=at(20), skip_busy=False))),
        (EVERY_10, "all", 10, 11, TickPlan(True, NextTick(to=at(20), due_ms=at(20), skip_busy=False))),
        (AtPlan(at(10)), "once", 10, 10, TickPlan(True, NextTick(to=None, skip_busy=False))),
        # An hour away: the ticks of 10, 20, .. 60 were missed.
        (EVERY_10, "skip", 10, 65, TickPlan(False, NextTick(to=at(70), due_ms=at(70), missed=6))),
        (EVERY_10, "once", 10, 65, TickPlan(True, NextTick(to=at(70), due_ms=at(70), missed=5, skip_busy=False))),
        (EVERY_10, "all", 10, 65, TickPlan(True, NextTick(to=at(20), due_ms=at(65) + 1, skip_busy=False))),
        # Of those that shall all be run, the newest ten.
        (EVERY_10, "all", 10, 145, TickPlan(False, NextTick(to=at(50), due_ms=at(145), missed=4))),
        (EVERY_10, "all", 50, 145, TickPlan(True, NextTick(to=at(60), due_ms=at(145) + 1, skip_busy=False))),
        (EVERY_10, "all", 140, 145, TickPlan(True, NextTick(to=at(150), due_ms=at(150), skip_busy=False))),
        # A single time.
        (AtPlan(at(10)), "skip", 10, 65, TickPlan(False, NextTick(to=None, missed=1))),
        (AtPlan(at(10)), "once", 10, 65, TickPlan(True, NextTick(to=None, skip_busy=False))),
        (AtPlan(at(10)), "all", 10, 65, TickPlan(True, NextTick(to=None, skip_busy=False))),
        # The clock of a place.
        (CLOCK, "skip", 20, 65, TickPlan(False, NextTick(to=at(80), due_ms=at(80), missed=3))),
        (CLOCK, "once", 20, 65, TickPlan(True, NextTick(to=at(80), due_ms=at(80), missed=2, skip_busy=False))),
        (CLOCK, "all", 20, 65, TickPlan(True, NextTick(to=at(40), due_ms=at(65) + 1, skip_busy=False))),
    ],
)  # fmt: skip
def test_what_becomes_of_a_tick(plan: Plan, misfire: Misfire, tick: float, now: float, wanted: TickPlan) -> None:
    """The table of the policies: skip, once, all with a cap."""
    assert plan_tick(plan, misfire, at(tick), at(now), SETTINGS) == wanted


@pytest.mark.parametrize(
    ("misfire", "wanted", "missed"),
    [("skip", [], 12), ("once", [NOW], 11), ("all", [NOW + 5 * MINUTE * n for n in range(2, 12)], 2)],
)
async def test_an_outage_of_an_hour_ends_as_the_schedule_says(
    client: RedisClient, misfire: Misfire, wanted: list[int], missed: int
) -> None:
    """Twelve ticks were missed: none, one for all, or the newest ten are made up for; the rest is counted."""
    schedules, now = Schedules(client), NOW + 58 * MINUTE
    await schedules.add(schedule(plan=EveryPlan(5 * MINUTE, NOW), misfire=misfire), NOW)
    ticker, answered = Ticker(schedules, AT_ONCE), list[InboundMessage]()
    for look in range(25):
        await ticker.run_once(now_ms=now + look)
        answered += await answer_all(client)
    assert ticks_of(answered) == wanted
    assert all("was due at" in message.content for message in answered if int(message.metadata["tick"]) < now - MINUTE)
    [standing] = await schedules.of_session("web:owner/a")
    assert (standing.next_ms, standing.missed, standing.runs) == (NOW + HOUR, missed, len(wanted))


async def test_the_runs_after_an_outage_are_spread(client: RedisClient) -> None:
    """A thousand reminders that are all late come within the time that is set, not at once, and each once."""
    schedules, now = Schedules(client), await server_ms(client)
    settings = CronSettings(spread_s=3600)
    for number in range(1000):
        one = schedule(chat=f"owner/{number}", plan=AtPlan(now - HOUR), misfire="once")
        await schedules.add(one, now - HOUR)
    tickers = [Ticker(schedules, settings, rng=random.Random(seed)) for seed in range(3)]
    for _ in range(20):
        await asyncio.gather(*(ticker.run_once() for ticker in tickers))
    early = await client.command("ZCARD", keys.queue(keys.BACKGROUND))
    flat = await client.command("ZRANGE", keys.SCHEDULES, 0, -1, "WITHSCORES")
    by_minute = Counter((int(float(score)) - now) // MINUTE for score in flat[1::2])
    assert early + len(flat) / 2 == 1000
    assert max(by_minute) - min(by_minute) >= 50, "they are spread over the hour"
    assert max(by_minute.values()) <= 60, "and evenly"
    later = max(int(float(score)) for score in flat[1::2])
    for _ in range(20):
        await asyncio.gather(*(ticker.run_once(now_ms=later) for ticker in tickers))
    assert await client.command("ZCARD", keys.queue(keys.BACKGROUND)) == 1000
    assert await left(client) == []


async def test_a_tick_that_cannot_be_accepted_is_kept(client: RedisClient) -> None:
    """While the store is full it stays due; it is run, or missed as its schedule says, and never just gone."""
    schedules = Schedules(client)
    await schedules.add(schedule(), NOW)
    ticker = Ticker(schedules, SETTINGS)
    await client.command("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(Refused, match="full"):
            await ticker.run_once(now_ms=NOW)
    finally:
        await client.command("CONFIG", "SET", "maxmemory", "0")
    await ticker.run_once(now_ms=NOW + 1000)
    assert ticks_of(await inbox(client)) == [NOW]


# Looking


async def test_a_worker_looks_when_the_next_one_is_due(client: RedisClient) -> None:
    """Seldom when nothing is planned, in time for what is, and again at once when there is more than it takes."""
    schedules = Schedules(client)
    ticker = Ticker(schedules, AT_ONCE)
    assert await ticker.run_once(now_ms=NOW) == POLL_S
    await schedules.add(schedule(), NOW + 3000)
    assert await ticker.run_once(now_ms=NOW) == 3.0
    assert await ticker.run_once(now_ms=NOW + 3000) == SOON_S
    assert await ticker.run_once(now_ms=NOW + 3001) == POLL_S
    for number in range(BATCH + 1):
        await schedules.add(schedule(chat=f"owner/{number}"), NOW, once=False)
    assert await ticker.run_once(now_ms=NOW) == 0.0
    assert await ticker.run_once(now_ms=NOW) == SOON_S
    assert await ticker.run_once(now_ms=NOW) == POLL_S


async def test_a_ticker_outlives_a_store_that_is_away(client: RedisClient) -> None:
    """It looks again when it is back; the lease loops say that it is away."""

    class Away(Schedules):
        looks = 0

        async def due(self, *, now_ms: int | None = None) -> Any:
            self.looks += 1
            raise RedisAway("away") if self.looks == 1 else Refused("overloaded", "full", 60)

    away = Away(client)
    ticker = Ticker(away, SETTINGS)
    running = asyncio.create_task(ticker.run())
    await eventually(lambda: away.looks == 1)
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    with pytest.raises(Refused):
        await ticker.run_once()


async def test_a_schedule_that_cannot_be_run_is_in_nobodys_way(client: RedisClient) -> None:
    """One whose zone this machine does not know, and one of a newer release, are looked at again a minute later."""
    schedules, now = Schedules(client), await server_ms(client)
    broken = msgspec.structs.replace(
        schedule("bb", plan=CronPlan("0 9 * * *", "Mars/Olympus")), timezone="Mars/Olympus"
    )
    # From now on: the whole minute may be a second away.
    for one in (schedule("aa", plan=EveryPlan(MINUTE, now)), broken, schedule("cc")):
        await schedules.add(one, now)
    await client.command("HSET", keys.schedules("web:owner/a"), "cc", b"\xc1")
    await Ticker(schedules, SETTINGS).run_once(now_ms=now)
    assert [message.metadata["schedule"] for message in await inbox(client)] == ["aa"]
    assert (await schedules.due(now_ms=now + 1000)).due == ()
    assert len((await schedules.due(now_ms=now + 2 * MINUTE)).due) == 3


async def test_a_chat_whose_key_is_broken_is_in_nobodys_way(client: RedisClient) -> None:
    """Whatever lies under it: the others have their ticks, and it is looked at again after a minute."""
    store, now = Schedules(client), await server_ms(client)
    for chat in ("owner/a", "owner/b"):
        await store.add(schedule(chat=chat), now - 1)
    await client.command("SET", keys.schedules("web:owner/a"), "broken")
    await Ticker(store, CronSettings(spread_s=0)).run_once()
    assert [one.chat_id for one in await inbox(client, "owner/b")] == ["owner/b"]
    assert float(await client.command("ZSCORE", keys.SCHEDULES, "aa:web:owner/a")) > now + 30_000


async def test_what_came_of_ticks_is_counted(client: RedisClient) -> None:
    """`schedules_fired_total`, once for each tick and by who did it."""
    schedules = Schedules(client)
    for id, tick in (("aa", NOW), ("bb", NOW - HOUR)):
        await schedules.add(schedule(id, plan=EveryPlan(10 * MINUTE, NOW - 2 * HOUR)), tick)
    before = fired("fired"), fired("missed"), fired("lost")
    tickers = [Ticker(schedules, AT_ONCE) for _ in range(3)]
    await asyncio.gather(*(ticker.run_once(now_ms=NOW) for ticker in tickers))
    assert (fired("fired") - before[0], fired("missed") - before[1], fired("lost") - before[2]) == (1, 7, 0)


# The heartbeat


def heartbeat() -> Schedule:
    return msgspec.structs.replace(schedule(HEARTBEAT, plan=EveryPlan(30 * MINUTE, NOW)), text="(HEARTBEAT.md)")


def beating(schedules: Schedules, content: str | Exception, *, every_s: float = 1800.0) -> Ticker:
    async def read(session: str) -> str:
        assert session == "web:owner/a"
        if isinstance(content, Exception):
            raise content
        return content

    return Ticker(schedules, SETTINGS, heartbeat_s=every_s, read_heartbeat=read)


async def test_a_heartbeat_brings_what_the_file_says(client: RedisClient) -> None:
    """The text comes with the message, so that the agent does not have to ask for it."""
    schedules = Schedules(client)
    await schedules.add(heartbeat(), NOW)
    await beating(schedules, "- water {the} plants\n").run_once(now_ms=NOW)
    [summary] = await inbox(client)
    assert summary.content.endswith("- water {the} plants")
    assert "HEARTBEAT_OK" in summary.content
    assert (await schedules.of_session("web:owner/a"))[0].next_ms == NOW + 30 * MINUTE


@pytest.mark.parametrize(("content", "every_s"), [("", 1800.0), (" \n\n", 1800.0), ("water", 0.0)])
async def test_a_heartbeat_without_a_file_is_over_and_asks_no_model(
    client: RedisClient, content: str, every_s: float
) -> None:
    """Missing, empty, or turned off by a setting: no message, and nothing is left of it."""
    schedules = Schedules(client)
    await schedules.add(heartbeat(), NOW)
    await beating(schedules, content, every_s=every_s).run_once(now_ms=NOW)
    assert (await inbox(client), await left(client)) == ([], [])


async def test_a_heartbeat_follows_the_setting_and_makes_up_for_nothing(client: RedisClient) -> None:
    """The time between two is that of now, and an outage ends in no heartbeat."""
    schedules = Schedules(client)
    await schedules.add(heartbeat(), NOW)
    await beating(schedules, "water", every_s=600.0).run_once(now_ms=NOW + HOUR + 1)
    assert await inbox(client) == []
    [standing] = await schedules.of_session("web:owner/a")
    assert (standing.next_ms, standing.missed) == (NOW + HOUR + 10 * MINUTE, 7)


async def test_a_workspace_that_is_away_puts_a_heartbeat_off(client: RedisClient) -> None:
    """It is looked at again later, and other schedules run."""
    schedules, now = Schedules(client), await server_ms(client)
    await schedules.add(heartbeat(), now)
    await schedules.add(schedule(), now)
    await beating(schedules, ToolFailed("the volume is away")).run_once(now_ms=now)
    assert [message.metadata["schedule"] for message in await inbox(client)] == ["aa"]
    assert len((await schedules.due(now_ms=now + 2 * MINUTE)).due) == 2
