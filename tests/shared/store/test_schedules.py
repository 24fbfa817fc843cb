"""What chats have planned, in a real store: made once, run once, listed, paused and gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from shared.errors import BadInput, LeaseLost, Refused
from shared.messages.codec import encode
from shared.messages.inbound import TIMEZONE
from shared.messages.outbound import OutboundMessage
from shared.messages.schedule import (
    BACKGROUND,
    HEARTBEAT,
    AtPlan,
    CronPlan,
    EveryPlan,
    Schedule,
    is_background,
    tick_message,
)
from shared.settings import CronSettings, Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import (
    DueSchedule,
    NextTick,
    ScheduleOver,
    Schedules,
    TickOutcome,
    TooManySchedules,
)
from shared.store.sessions import erase as session_erase
from shared.store.sessions.backup import SessionBackup, read_file, write_file
from shared.store.sessions.session import Sessions
from shared.store.turns.inbox import TURNS, Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from tests.helpers.build import message, say
from tests.helpers.schedules import MINUTE, answer_all, inbox, left, schedule, server_ms

SESSION = "web:owner/a"
NOW = 1_795_262_400_000


async def due_now(schedules: Schedules, one: Schedule, tick: int = NOW) -> DueSchedule:
    """Make a schedule whose tick has come, and see it."""
    await schedules.add(one, tick, once=False)
    [due] = [due for due in (await schedules.due(now_ms=tick)).due if due.schedule == one]
    return due


async def fire(
    schedules: Schedules, due: DueSchedule, *, to: int | None = NOW + MINUTE, skip_busy: bool = True, now: int = NOW
) -> TickOutcome:
    """Run a tick that was seen."""
    assert due.schedule is not None
    texts = tick_message(due.schedule, due.tick, now_ms=now, late=False, text=due.schedule.text)
    move = NextTick(to=to, due_ms=to or 0, skip_busy=skip_busy)
    return await schedules.fire(due, due.schedule, move, texts, now_ms=now)


async def claim_of(client: RedisClient, chat: str = "owner/a") -> Claim:
    await say(Inbox(client), chat=chat)
    queue = LeaseQueue(client, TURNS, owner="hand", lease_s=15)
    [claim] = await queue.acquire(1)
    await queue.close()
    return claim


# Making them


async def test_a_schedule_is_there_once_however_often_it_is_made(client: RedisClient) -> None:
    """A worker that was lost before it could say so made it; its successor gets the same, with the first time."""
    schedules, one = Schedules(client), schedule()
    first = await schedules.add(one, NOW)
    again = await schedules.add(msgspec.structs.replace(one, created_at=5, text="other"), NOW + 5)
    assert (first.first, again.first) == (True, False)
    assert (again.schedule, again.next_ms) == (one, NOW)
    [standing] = await schedules.of_session(SESSION)
    assert (standing.schedule, standing.next_ms, standing.runs, standing.last_ms) == (one, NOW, 0, None)


async def test_one_that_is_over_is_not_made_again_by_the_same_call(client: RedisClient) -> None:
    """A reminder that rang while its maker was dead does not ring again."""
    schedules, one = Schedules(client), schedule(plan=AtPlan(NOW))
    await schedules.add(one, NOW)
    assert await schedules.remove(SESSION, one.id)
    with pytest.raises(ScheduleOver):
        await schedules.add(one, NOW)
    assert (await schedules.add(one, NOW, once=False)).first


async def test_only_a_turn_that_holds_its_lease_makes_or_removes_one(client: RedisClient) -> None:
    """A worker that is late changes nothing."""
    schedules, claim = Schedules(client), await claim_of(client)
    lost = msgspec.structs.replace(claim, token="1")
    with pytest.raises(LeaseLost):
        await schedules.add(schedule(), NOW, claim=lost)
    assert await left(client) == []
    await schedules.add(schedule(), NOW, claim=claim)
    with pytest.raises(LeaseLost):
        await schedules.remove(SESSION, "aa", claim=lost)
    assert await schedules.remove(SESSION, "aa", claim=claim)
    assert not await schedules.remove(SESSION, "aa", claim=claim)
    assert await left(client) == []


async def test_a_chat_and_the_fleet_have_so_many_and_no_more(client: RedisClient) -> None:
    """The number is in the refusal; what is there already is answered all the same."""
    schedules = Schedules(client, CronSettings(per_chat=2, in_all=3))
    for id in ("aa", "bb"):
        await schedules.add(schedule(id), NOW)
    with pytest.raises(TooManySchedules, match="2 schedules"):
        await schedules.add(schedule("cc"), NOW)
    assert not (await schedules.add(schedule("bb"), NOW)).first
    await schedules.add(schedule("cc", chat="owner/b"), NOW)
    with pytest.raises(TooManySchedules, match="operator"):
        await schedules.add(schedule("dd", chat="owner/b"), NOW)


# Running them


async def test_a_tick_becomes_a_message_of_its_chat(client: RedisClient) -> None:
    """The turn is due, a worker is woken, and the schedule has moved on."""
    schedules = Schedules(client)
    due = await due_now(schedules, schedule())
    assert await fire(schedules, due) == "fired"
    [texts] = await inbox(client)
    assert (texts.session, texts.sender_id, texts.id) == (SESSION, "cron", f"aa:{NOW}")
    assert texts.metadata == {"schedule": "aa", "tick": str(NOW), BACKGROUND: "1", TIMEZONE: "UTC"}
    assert is_background(texts)
    assert not is_background(message())
    assert texts.content.endswith("]\n\nlook")
    assert await client.command("LLEN", keys.wake(TURNS)) == 1
    [standing] = await schedules.of_session(SESSION)
    assert (standing.next_ms, standing.runs, standing.last_ms) == (NOW + MINUTE, 1, NOW)
    assert int(await client.command("PTTL", keys.session(SESSION))) > 0
    assert (await schedules.due(now_ms=NOW)).due == ()
    assert (await schedules.due(now_ms=NOW)).next_in_ms == MINUTE


async def test_many_workers_at_one_tick_run_it_once(client: RedisClient) -> None:
    """Compare and swap: all have seen it, one is first."""
    schedules = Schedules(client)
    due = await due_now(schedules, schedule())
    outcomes = await asyncio.gather(*(fire(schedules, due) for _ in range(20)))
    assert sorted(outcomes) == ["fired"] + ["lost"] * 19
    assert len(await inbox(client)) == 1


async def test_a_worker_that_slept_cannot_run_an_old_tick(client: RedisClient) -> None:
    """Also not when the schedule was removed and made again meanwhile, or put off."""
    schedules, one = Schedules(client), schedule()
    old = await due_now(schedules, one)
    assert await fire(schedules, old) == "fired"
    assert await fire(schedules, old) == "lost"
    await schedules.remove(SESSION, one.id)
    assert await fire(schedules, old) == "lost"
    await schedules.add(one, NOW + 5, once=False)
    assert await fire(schedules, old) == "lost"
    [due] = (await schedules.due(now_ms=NOW + 5)).due
    assert await schedules.put_off(due, 1000)
    assert not await schedules.put_off(due, 1000)
    assert await fire(schedules, due) == "lost"
    assert len(await inbox(client)) == 1


async def test_a_tick_that_came_before_is_not_sent_again(client: RedisClient) -> None:
    """Should the store lose its newest changes and with them that the schedule moved on, its message is known."""
    schedules = Schedules(client)
    due = await due_now(schedules, schedule())
    dump = await client.command("DUMP", keys.SCHEDULES), await client.command("DUMP", keys.schedules(SESSION))
    assert await fire(schedules, due) == "fired"
    for key, data in zip((keys.SCHEDULES, keys.schedules(SESSION)), dump, strict=True):
        await client.command("RESTORE", key, 0, data, "REPLACE")
    assert await fire(schedules, due) == "moved"
    assert len(await inbox(client)) == 1


async def test_a_single_run_leaves_nothing_behind(client: RedisClient) -> None:
    """When its last tick is run, the schedule is gone."""
    schedules = Schedules(client)
    due = await due_now(schedules, schedule(plan=AtPlan(NOW)))
    assert await fire(schedules, due, to=None) == "fired"
    assert await left(client) == []
    assert len(await answer_all(client)) == 1


async def test_a_tick_waits_or_is_passed_over_while_its_last_one_is_not_answered(client: RedisClient) -> None:
    """A slow turn and a quick schedule make no pile."""
    schedules, one = Schedules(client), schedule()
    assert await fire(schedules, await due_now(schedules, one)) == "fired"
    [due] = (await schedules.due(now_ms=NOW + MINUTE)).due
    assert await fire(schedules, due, to=NOW + 2 * MINUTE, now=NOW + MINUTE, skip_busy=False) == "busy"
    [again] = (await schedules.due(now_ms=NOW + MINUTE + 5000)).due
    assert (again.tick, again.put_off) == (due.tick, True)
    assert await fire(schedules, again, to=NOW + 2 * MINUTE, now=NOW + MINUTE) == "skipped"
    [standing] = await schedules.of_session(SESSION)
    assert (standing.next_ms, standing.missed, standing.runs) == (NOW + 2 * MINUTE, 1, 1)
    assert len(await answer_all(client)) == 1
    [due] = (await schedules.due(now_ms=NOW + 2 * MINUTE)).due
    assert await fire(schedules, due, to=NOW + 3 * MINUTE, now=NOW + 2 * MINUTE) == "fired"


async def test_ticks_leave_room_in_the_inbox_and_need_none(client: RedisClient) -> None:
    """They have a cap of their own: a full inbox does not lose one, and many do not keep people out."""
    schedules = Schedules(client, CronSettings(waiting=2))
    for _ in range(3):
        await say(Inbox(client, InboxLimits(cap=3)))
    seen = [await due_now(schedules, schedule(id)) for id in ("aa", "bb", "cc")]
    assert [await fire(schedules, due) for due in seen] == ["fired", "fired", "crowded"]
    [put_off] = (await schedules.due(now_ms=NOW + 6000)).due
    assert put_off.schedule == schedule("cc")
    assert len(await answer_all(client)) == 5
    assert await fire(schedules, put_off, now=NOW + 6000) == "fired"


async def test_a_fleet_that_is_full_puts_ticks_off(client: RedisClient) -> None:
    """As messages of people are refused; a chat that is at work already may have it."""
    schedules = Schedules(client, limits=InboxLimits(sessions_cap=1))
    await say(Inbox(client), chat="owner/b")
    due = await due_now(schedules, schedule())
    assert await fire(schedules, due) == "crowded"
    due = await due_now(schedules, schedule(chat="owner/b"))
    assert await fire(schedules, due) == "fired"


async def test_a_full_store_keeps_the_tick(client: RedisClient) -> None:
    """Nothing new is taken, and nothing is lost."""
    schedules = Schedules(client)
    due = await due_now(schedules, schedule())
    await client.command("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(Refused, match="full"):
            await fire(schedules, due)
        with pytest.raises(Refused, match="full"):
            await schedules.add(schedule("bb"), NOW)
        assert len((await schedules.due(now_ms=NOW)).due) == 1
    finally:
        await client.command("CONFIG", "SET", "maxmemory", "0")
    assert await fire(schedules, due) == "fired"


async def test_a_tick_shows_its_chat_at_the_head_of_the_list(client: RedisClient) -> None:
    """Its person sees that something happened there; a chat that they deleted does not come back."""
    await say(Inbox(client), chat="owner/a")
    await say(Inbox(client), chat="owner/b")
    schedules = Schedules(client)
    now = await server_ms(client) + 1000
    due = await due_now(schedules, schedule(chat="owner/a"), now)
    assert await fire(schedules, due, to=now + MINUTE, now=now) == "fired"
    chats = keys.chats("web", "owner")
    assert await client.command("ZREVRANGE", chats, 0, -1) == [b"owner/a", b"owner/b"]
    due = await due_now(schedules, schedule("bb", chat="owner/unlisted"), now)
    assert await fire(schedules, due, to=now + MINUTE, now=now) == "fired"
    assert await client.command("ZSCORE", chats, "owner/unlisted") is None


async def test_an_entry_without_a_schedule_is_removed(client: RedisClient) -> None:
    """A store that lost one of two keys, or a stranger's entry, costs one look."""
    await client.command("ZADD", keys.SCHEDULES, 1, f"aa:{SESSION}", 2, "nonsense")
    assert (await Schedules(client).due(now_ms=NOW)).due == ()
    assert await left(client) == []


async def test_a_broken_key_puts_the_schedules_of_its_chat_off_and_stops_no_other(client: RedisClient) -> None:
    """They are looked at again after a minute, in case somebody has mended it."""
    schedules = Schedules(client)
    await due_now(schedules, schedule(chat="owner/b"))
    await client.command("SET", keys.schedules(SESSION), "no hash")
    await client.command("ZADD", keys.SCHEDULES, 1, f"aa:{SESSION}")
    assert [due.schedule for due in (await schedules.due(now_ms=NOW)).due] == [schedule(chat="owner/b")]
    assert int(await client.command("ZSCORE", keys.SCHEDULES, f"aa:{SESSION}")) == NOW + MINUTE


async def test_a_record_of_a_newer_release_is_left_alone(client: RedisClient) -> None:
    """It is seen as one that cannot be read, and not listed."""
    schedules = Schedules(client)
    await due_now(schedules, schedule())
    await client.command("HSET", keys.schedules(SESSION), "aa", encode(message()))
    [due] = (await schedules.due(now_ms=NOW)).due
    assert due.schedule is None
    assert await schedules.of_session(SESSION) == []
    assert await schedules.put_off(due, MINUTE)


# Rest and end


async def test_the_schedules_of_a_blocked_chat_rest(client: RedisClient) -> None:
    """Nothing of them runs until the chat can be reached again; then they go on from the tick that was next."""
    schedules = Schedules(client)
    await due_now(schedules, schedule())
    await due_now(schedules, schedule("bb"))
    await due_now(schedules, schedule(chat="owner/b"))
    assert (await schedules.pause(SESSION), await schedules.pause(SESSION)) == (2, 0)
    assert [due.schedule for due in (await schedules.due(now_ms=NOW + MINUTE)).due] == [schedule(chat="owner/b")]
    assert [one.paused for one in await schedules.of_session(SESSION)] == [True, True]
    assert (await schedules.resume(SESSION), await schedules.resume(SESSION)) == (2, 0)
    assert len((await schedules.due(now_ms=NOW)).due) == 3
    assert not any(one.paused for one in await schedules.of_session(SESSION))
    assert await schedules.pause("web:owner/none") == 0
    await schedules.pause(SESSION)
    await schedules.add(schedule("dd"), NOW)
    assert [due.schedule for due in (await schedules.due(now_ms=NOW)).due] == [schedule(chat="owner/b")]
    await schedules.resume(SESSION)
    assert len((await schedules.due(now_ms=NOW)).due) == 4
    assert keys.schedules("web:owner/none") not in await left(client)


async def test_a_chat_that_stays_blocked_loses_its_schedules(client: RedisClient) -> None:
    """Every key has an end: after 30 days they are over."""
    schedules = Schedules(client)
    await due_now(schedules, schedule())
    await schedules.pause(SESSION)
    now = await server_ms(client)
    assert (await schedules.due(now_ms=now + 29 * 86_400_000)).due == ()
    [due] = (await schedules.due(now_ms=now + 31 * 86_400_000)).due
    assert await fire(schedules, due) == "over"
    assert (await left(client), await inbox(client)) == ([], [])


async def test_every_chat_that_has_some_is_found(client: RedisClient) -> None:
    """Once, however many it has."""
    schedules = Schedules(client)
    for chat in ("owner/a", "owner/b"):
        for id in ("aa", "bb"):
            await schedules.add(schedule(id, chat=chat), NOW)
    assert sorted([session async for session in schedules.sessions()]) == ["web:owner/a", "web:owner/b"]


async def erase(client: RedisClient) -> None:
    await session_erase.erase(client, SESSION)


async def forget(client: RedisClient) -> None:
    await session_erase.forget(client, SESSION)


@pytest.mark.parametrize("end", [erase, forget])
async def test_forgetting_a_chat_forgets_what_it_planned(
    client: RedisClient, end: Callable[[RedisClient], Awaitable[None]]
) -> None:
    """Also a tick that waits; another chat's stay."""
    schedules = Schedules(client)
    await say(Inbox(client))
    assert await fire(schedules, await due_now(schedules, schedule())) == "fired"
    await due_now(schedules, schedule("bb"))
    other = await due_now(schedules, schedule(chat="owner/b"))
    await end(client)
    assert await left(client) == [keys.SCHEDULES, keys.schedules("web:owner/b")]
    assert (await schedules.due(now_ms=NOW + MINUTE)).due == (other,)
    assert await inbox(client) == []


async def test_only_a_schedule_can_be_removed(client: RedisClient) -> None:
    """What is noted of schedules has names that no schedule has."""
    schedules = Schedules(client)
    await due_now(schedules, schedule())
    await schedules.pause(SESSION)
    before = await client.command("HGETALL", keys.schedules(SESSION))
    for id in (":paused", "aa:tick", "", f"aa:{SESSION}"):
        assert not await schedules.remove(SESSION, id)
    assert await client.command("HGETALL", keys.schedules(SESSION)) == before


async def test_a_command_takes_one_out_in_the_step_that_says_so(client: RedisClient) -> None:
    """Once: the same command again changes nothing."""
    schedules, sessions = Schedules(client), Sessions(client)
    for id in ("aa", "bb"):
        await schedules.add(schedule(id), NOW)
    texts = message("/cron remove aa")
    answer = OutboundMessage(content="Removed.", turn=0, kind="command")
    for again in (False, True):
        done = await sessions.answer_command(
            texts, answer, await sessions.state(SESSION), change="unschedule", schedule="aa"
        )
        assert done.duplicate == again
        assert [one.schedule.id for one in await schedules.of_session(SESSION)] == ["bb"]


async def test_a_new_conversation_keeps_what_was_planned(client: RedisClient) -> None:
    """`/new` ends what was said, and not what was asked for."""
    schedules, sessions = Schedules(client), Sessions(client)
    await schedules.add(schedule(), NOW)
    answer = OutboundMessage(content="New.", turn=0, kind="command")
    await sessions.answer_command(message("/new"), answer, await sessions.state(SESSION), change="new")
    assert len(await schedules.of_session(SESSION)) == 1


async def test_plans_go_out_and_come_back_with_their_session(client: RedisClient) -> None:
    """Into another chat, too; a time that is past by then is left out."""
    schedules, backup = Schedules(client), SessionBackup(client, Settings())
    await say(Inbox(client))
    await answer_all(client)
    await schedules.add(schedule("aa"), NOW)
    await schedules.add(schedule("bb", plan=AtPlan(NOW)), NOW)
    file = read_file(write_file(await backup.export(SESSION, now_ms=NOW)))
    assert {one.id for one in file.schedules} == {"aa", "bb"}
    file = msgspec.structs.replace(file, schedules=tuple(_past(one) for one in file.schedules))
    await backup.restore(file, "web:ann/b")
    [standing] = await schedules.of_session("web:ann/b")
    assert (standing.schedule.id, standing.schedule.chat_id) == ("aa", "ann/b")
    assert standing.next_ms > await server_ms(client)
    assert (await backup.export(SESSION, now_ms=NOW, memory_only=True)).schedules == ()


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        ({"id": "aa:tick"}, "no id of a schedule"),
        ({"timezone": "Mars/Olympus"}, "IANA name"),
        ({"text": "x" * 33_000}, "32,768"),
        ({"plan": EveryPlan(1, 0)}, "too often"),
        ({"plan": CronPlan("61 * * * *", "UTC")}, "no cron expression"),
    ],
)
async def test_a_file_that_was_changed_by_hand_is_checked_first(
    client: RedisClient, change: dict[str, Any], texts: str
) -> None:
    """Before anything is written."""
    backup = SessionBackup(client, Settings())
    file = await backup.export(SESSION, now_ms=NOW)
    one = msgspec.structs.replace(schedule(), **change)
    with pytest.raises(BadInput, match=texts):
        await backup.restore(msgspec.structs.replace(file, schedules=(one,)), SESSION)
    assert await client.command("KEYS", "*") == []


async def test_plans_that_find_no_room_beside_others_are_refused_first(client: RedisClient) -> None:
    """Nothing of the file is there then."""
    schedules, settings = Schedules(client), Settings(cron=CronSettings(per_chat=2))
    backup = SessionBackup(client, settings)
    for id in ("aa", "bb"):
        await schedules.add(schedule(id), NOW)
    file = await backup.export(SESSION, now_ms=NOW)
    await backup.restore(file, SESSION)
    await schedules.remove(SESSION, "aa")
    await schedules.add(schedule("cc"), NOW)
    with pytest.raises(BadInput, match="more than 2 schedules"):
        await backup.restore(msgspec.structs.replace(file, memory_md="new"), SESSION, replace=True)
    assert (await backup.export(SESSION, now_ms=NOW)).memory_md == ""


def _past(one: Schedule) -> Schedule:
    return msgspec.structs.replace(one, plan=AtPlan(1)) if isinstance(one.plan, AtPlan) else one


def test_a_run_of_a_plan_has_the_zone_of_its_person_and_the_heartbeat_that_of_the_settings() -> None:
    """Nobody's browser is open then."""
    plan = msgspec.structs.replace(schedule(), timezone="Asia/Tokyo")
    beat = msgspec.structs.replace(schedule(HEARTBEAT), timezone="UTC")
    ran, beaten = [tick_message(one, NOW, now_ms=NOW, late=False, text="look") for one in (plan, beat)]
    assert ran.metadata[TIMEZONE] == "Asia/Tokyo"
    assert TIMEZONE not in beaten.metadata
