"""Planning from a turn: what the model is told, what is refused and why, and that a lost worker plans nothing twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.errors import LeaseLost, ToolFailed
from shared.messages.schedule import BACKGROUND, HEARTBEAT, AtPlan, CronPlan, EveryPlan
from shared.messages.transcript import AssistantEntry, ToolCall, TranscriptEntry
from shared.settings import CronSettings
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import Schedules
from shared.store.turns.inbox import TURNS, Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from tests.helpers.build import message, say
from tests.helpers.children import Parent, end, take
from tests.helpers.clock import HandClock
from tests.helpers.schedules import left
from tests.helpers.scripted_model import call
from worker.agent.model.model import TokenUsage
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult
from worker.tools.cron import CronTool
from worker.turn.schedules import TurnSchedules, drop_quiet_heartbeat

SESSION = "web:owner/a"
CLOCK = HandClock(1_795_262_400.0)  # Saturday, 2026-11-21, 12:00 UTC
NOW = CLOCK.now_ms()


@pytest.fixture
async def claim(client: RedisClient) -> Claim:
    """A turn of `web:owner/a` that runs."""
    await say(Inbox(client))
    queue = LeaseQueue(client, TURNS, owner="hand", lease_s=60)
    [claim] = await queue.acquire(1)
    await queue.close()
    return claim


def context(client: RedisClient, claim: Claim, *, call_id: str = "c1", background: bool = False) -> ToolContext:
    schedule_message = message()
    if background:
        schedule_message = msgspec.structs.replace(schedule_message, metadata={BACKGROUND: "1"})
    return ToolContext(
        session=SESSION,
        turn=1,
        call_id=call_id,
        clock=CLOCK,
        timezone="Europe/Berlin",
        schedules=TurnSchedules(Schedules(client), CronSettings(), claim, schedule_message),
    )


async def asked(context: ToolContext, **arguments: Any) -> str:
    """The result of a call as the model reads it."""
    return (await Toolbox([CronTool()]).call(call("cron", arguments), context)).content


async def test_a_new_schedule_is_described_with_its_first_run(client: RedisClient, claim: Claim) -> None:
    """In the user's own zone unless another was named; bound to the chat and to who asked."""
    made = [
        await asked(context(client, claim, call_id="c1"), action="add", message="Tea!", at="2026-11-22 09:00"),
        await asked(context(client, claim, call_id="c2"), action="add", message="Stretch", every_seconds=3600),
        await asked(
            context(client, claim, call_id="c3"), action="add", message="News", cron_expr=" 30  8 * * 1-5",
            timezone="America/New_York", missed="all",
        ),
        await asked(context(client, claim, call_id="c4"), action="add", message="Z", at="2026-11-22T09:00:00+05:30"),
    ]  # fmt: skip
    ids = [text.split()[1] for text in made]
    assert [text.replace(id, "ID") for text, id in zip(made, ids, strict=True)] == [
        "Schedule ID is made: once, at 2026-11-22 09:00 (Sunday, Europe/Berlin).",
        "Schedule ID is made: every 1 h; first 2026-11-21 14:00 (Saturday, Europe/Berlin).",
        "Schedule ID is made: at '30 8 * * 1-5' (America/New_York); first 2026-11-23 08:30 (Monday, America/New_York).",
        "Schedule ID is made: once, at 2026-11-22 04:30 (Sunday, Europe/Berlin).",
    ]
    standing = {one.schedule.id: one.schedule for one in await Schedules(client).of_session(SESSION)}
    assert [type(standing[id].plan) for id in ids] == [AtPlan, EveryPlan, CronPlan, AtPlan]
    assert [standing[id].misfire for id in ids] == ["once", "skip", "all", "once"]
    assert {(one.session, one.owner, one.created_at) for one in standing.values()} == {(SESSION, "owner", NOW)}


async def test_the_same_call_again_plans_nothing_anew(client: RedisClient, claim: Claim) -> None:
    """A successor of a lost worker gets the first answer, also when time has passed; another call is another plan."""
    first = await asked(context(client, claim), action="add", message="Tea!", every_seconds=60)
    later = msgspec.structs.replace(context(client, claim), clock=HandClock(CLOCK.at + 30))
    assert await asked(later, action="add", message="Tea!", every_seconds=60) == first
    assert len(await Schedules(client).of_session(SESSION)) == 1
    await asked(context(client, claim, call_id="c2"), action="add", message="Tea!", every_seconds=60)
    await asked(context(client, claim), action="add", message="Coffee!", every_seconds=60)
    assert len(await Schedules(client).of_session(SESSION)) == 3


async def test_one_that_is_over_already_is_not_made_again(client: RedisClient, claim: Claim) -> None:
    """The successor reads so."""
    made = await asked(context(client, claim), action="add", message="Tea!", at="2026-11-22 09:00")
    await Schedules(client).remove(SESSION, made.split()[1])
    again = await asked(context(client, claim), action="add", message="Tea!", at="2026-11-22 09:00")
    assert "was made by this call before, and is over" in again
    assert await left(client) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"every_seconds": 60}, "needs a message"),
        ({"message": "  ", "every_seconds": 60}, "needs a message"),
        ({"message": "x" * 4001, "every_seconds": 60}, "at most 4,000"),
        ({"message": "x"}, "exactly one of at, every_seconds and cron_expr; none was given"),
        ({"message": "x", "at": "2026-11-22 09:00", "every_seconds": 60}, "exactly one of"),
        ({"message": "x", "at": "2026-11-21 12:00"}, "that time is past"),
        ({"message": "x", "at": "tomorrow"}, "write it like '2026-11-22 09:00'"),
        ({"message": "x", "at": "2026-02-30 09:00"}, "not a date and time"),
        ({"message": "x", "at": "2099-01-01 09:00"}, "ten years"),
        ({"message": "x", "at": "0001-01-01 00:00"}, "past|calendar"),
        ({"message": "x", "at": "2026-11-22 09:00", "timezone": "Mars/Olympus"}, "IANA name"),
        ({"message": "x", "every_seconds": 59}, "at least 60 s"),
        ({"message": "x", "every_seconds": -1}, "give from 1 second"),
        ({"message": "x", "every_seconds": 1e300}, "give from 1 second"),
        ({"message": "x", "cron_expr": "every morning"}, "five fields"),
        ({"message": "x", "cron_expr": "0 9 30 2 *"}, "no cron expression"),
        ({"message": "x", "cron_expr": "0 9 * * *", "timezone": "CEST!"}, "IANA name"),
        ({"message": "x", "every_seconds": "soon"}, "do not fit"),
    ],
)
async def test_what_cannot_be_planned_is_refused_with_what_to_do(
    client: RedisClient, claim: Claim, arguments: dict[str, Any], expected: str
) -> None:
    """The model can act on each text, and nothing was planned."""
    text = await asked(context(client, claim), action="add", **arguments)
    assert text.startswith("Error: ")
    assert any(part in text for part in expected.split("|"))
    assert await left(client) == []


async def test_plans_are_listed_and_removed(client: RedisClient, claim: Claim) -> None:
    """By the id that was told; only those of this chat."""
    asking = context(client, claim)
    assert await asked(asking, action="list") == "Nothing is planned in this chat."
    made = await asked(asking, action="add", message="Tea!", every_seconds=3600)
    id = made.split()[1]
    assert await asked(asking, action="list") == (
        f"{id}: every 1 h; next 2026-11-21 14:00 (Saturday, Europe/Berlin); 0 runs, 0 missed: Tea!"
    )
    assert f"There are: {id}" in await asked(asking, action="remove", id="nothing")
    assert "needs the id" in await asked(asking, action="remove")
    assert await asked(asking, action="remove", id=id) == f"Schedule {id} is removed."
    assert "(any more). There are: none" in await asked(asking, action="remove", id=id)


async def test_a_run_of_a_schedule_makes_no_schedules(client: RedisClient, claim: Claim) -> None:
    """Plans that beget plans would never end; it may take itself out."""
    made = await asked(context(client, claim), action="add", message="Tea!", every_seconds=3600)
    running = context(client, claim, background=True)
    assert "cannot make schedules" in await asked(running, action="add", message="More!", every_seconds=60)
    assert "is removed" in await asked(running, action="remove", id=made.split()[1])


async def test_a_subagent_of_a_run_opens_no_way_to_schedules(client: RedisClient) -> None:
    """The turn that is told of it is of the schedule, too, though a subagent has said it."""
    await Inbox(client).ingest(msgspec.structs.replace(message(), metadata={BACKGROUND: "1"}), internal=True)
    queue = LeaseQueue(client, TURNS, owner="hand", lease_s=60)
    [running] = await queue.acquire(1)
    parent = Parent(client, running)
    await parent.spawn("aaaaaaaa")
    await parent.commit()
    [child] = await take(client)
    assert await end(client, child) == "reported"
    [report_claim] = await queue.acquire(1)
    await queue.close()
    answer = await asked(context(client, report_claim), action="add", message="More!", every_seconds=3600)
    assert "cannot make schedules" in answer


async def test_a_turn_that_lost_its_lease_plans_nothing(client: RedisClient, claim: Claim) -> None:
    """It ends there."""
    late = context(client, msgspec.structs.replace(claim, token="1"))
    with pytest.raises(LeaseLost):
        await asked(late, action="add", message="Tea!", every_seconds=3600)
    assert await left(client) == []


async def test_a_chat_at_its_limit_gets_the_number(client: RedisClient, claim: Claim) -> None:
    """And what to do about it."""
    store = Schedules(client, CronSettings(per_chat=1))
    asking = msgspec.structs.replace(
        context(client, claim), schedules=TurnSchedules(store, CronSettings(), claim, message())
    )
    await asked(asking, action="add", message="Tea!", every_seconds=3600)
    text = await asked(asking, action="add", message="Coffee!", every_seconds=3600)
    assert "this chat has 1 schedules already; remove one first" in text


async def test_an_agent_without_schedules_refuses_to_plan(client: RedisClient) -> None:
    """Such as one that a turn started."""
    bare = ToolContext(session="s", turn=1, call_id="c", clock=CLOCK)
    assert "nothing can be planned here" in await asked(bare, action="add", message="x", every_seconds=60)
    assert await asked(bare, action="list") == "Nothing is planned in this chat."
    assert "there is no schedule" in await asked(bare, action="remove", id="aa")
    with pytest.raises(ToolFailed):
        await bare.schedules.remove("aa")


# The heartbeat


def wrote(path: str) -> list[TranscriptEntry]:
    arguments = msgspec.json.encode({"path": path, "content": "water the plants"}).decode()
    return [AssistantEntry(content=None, turn=1, tool_calls=(ToolCall("c1", "write_file", arguments),))]


async def test_a_chat_gets_its_heartbeat_when_its_file_is_written(client: RedisClient, claim: Claim) -> None:
    """Once, with the first after the time that is set; other files and a setting of 0 make none."""
    schedules = TurnSchedules(Schedules(client), CronSettings(), claim, message())
    await schedules.keep_heartbeat(wrote("notes.md"), every_s=600, now_ms=NOW)
    await schedules.keep_heartbeat(wrote("HEARTBEAT.md"), every_s=0, now_ms=NOW)
    assert await schedules.listed() == []
    for now_ms in (NOW, NOW + 5000):
        await schedules.keep_heartbeat(wrote("HEARTBEAT.md"), every_s=600, now_ms=now_ms)
    [standing] = await schedules.listed()
    assert (standing.schedule.id, standing.next_ms) == (HEARTBEAT, NOW + 600_000)


async def test_a_heartbeat_comes_back_with_its_file(client: RedisClient, claim: Claim) -> None:
    """It is over when its file is gone, and there again when one is written."""
    schedules = TurnSchedules(Schedules(client), CronSettings(), claim, message())
    await schedules.keep_heartbeat(wrote("HEARTBEAT.md"), every_s=600, now_ms=NOW)
    await schedules.remove(HEARTBEAT)
    await schedules.keep_heartbeat(wrote("HEARTBEAT.md"), every_s=600, now_ms=NOW)
    assert len(await schedules.listed()) == 1


async def test_a_chat_full_of_plans_still_answers(client: RedisClient, claim: Claim) -> None:
    """A heartbeat that cannot be made is in the log, and no fault of the turn."""
    store = Schedules(client, CronSettings(per_chat=1))
    schedules = TurnSchedules(store, CronSettings(), claim, message())
    await schedules.add("x", EveryPlan(60_000, NOW), misfire="skip", timezone="UTC", key="k", now_ms=NOW)
    await schedules.keep_heartbeat(wrote("HEARTBEAT.md"), every_s=600, now_ms=NOW)
    assert [one.schedule.text for one in await schedules.listed()] == ["x"]


@pytest.mark.parametrize(
    ("schedule", "content", "kept"),
    [
        (HEARTBEAT, "HEARTBEAT_OK", False),
        (HEARTBEAT, "`HEARTBEAT_OK`.\n", False),
        (HEARTBEAT, "The plants are dry. HEARTBEAT_OK", True),
        ("1a2b3c4d", "HEARTBEAT_OK", True),
    ],
)
def test_a_heartbeat_that_needs_nothing_tells_nobody(schedule: str, content: str, kept: bool) -> None:
    """And nothing of it is kept; whatever else is said is said."""
    tick = msgspec.structs.replace(message(), metadata={"schedule": schedule})
    entry = AssistantEntry(content=content, turn=1)
    result = AgentResult(content=content, entries=(entry,), rounds=1, usage=TokenUsage())
    assert drop_quiet_heartbeat(tick, result) == (
        result if kept else msgspec.structs.replace(result, content="", entries=())
    )


def test_every_parameter_is_described_in_a_schema_of_one_object() -> None:
    """As the contract of all tools has it."""
    tool = CronTool(30)
    (spec,) = Toolbox([tool]).specs()
    assert 20 <= len(tool.description) <= 500
    assert spec.parameters["additionalProperties"] is False
    assert "$ref" not in msgspec.json.encode(spec).decode()
    assert all(field.get("description") for field in spec.parameters["properties"].values())


def test_the_heartbeat_is_described_where_there_is_one() -> None:
    """A model is not told of what would not happen."""
    assert "HEARTBEAT.md" not in CronTool().description
    assert "every 30 minutes" in CronTool(30).description
