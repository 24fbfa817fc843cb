"""Schedules as people see them: the command, and answers to what nobody said."""

from __future__ import annotations

import pytest

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from shared.ids import nonce
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.schedule import AtPlan, CronPlan, Schedule, tick_message
from shared.settings import Settings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.schedules.schedules import NextTick, Schedules
from tests.gateway.harness import client as connected
from tests.gateway.harness import gateway, worker
from tests.helpers.build import message
from tests.helpers.schedules import MINUTE, schedule, server_ms

NOW = 1_795_262_400_000  # Saturday, 2026-11-21, 12:00 UTC


@pytest.fixture
def ingress(client: RedisClient) -> Ingress:
    return Ingress(client, build_commands(Settings(), client))


async def ask(client: RedisClient, ingress: Ingress, text: str, *, id: str | None = None, chat: str = "owner/a") -> str:
    """Say a command; the text of its answer."""
    user_line = message(text, id=id or nonce(), chat=chat)
    await ingress.ingest(user_line, show=UserLine(id=user_line.id, text=text), principal="owner")
    line = (await Outbox(client).read_after(f"web:{chat}", after=0))[-1].line
    assert isinstance(line, OutboundMessage)
    return line.content


async def fire(client: RedisClient, one: Schedule, now: int) -> None:
    """Run one tick of a schedule, as a worker does."""
    schedules = Schedules(client)
    await schedules.add(one, now)
    [due] = (await schedules.due(now_ms=now)).due
    user_line = tick_message(one, now, now_ms=now, late=False, text=one.text)
    assert await schedules.fire(due, one, NextTick(to=now + MINUTE, due_ms=now + MINUTE), user_line) == "fired"


async def test_cron_lists_what_is_planned_here(client: RedisClient, ingress: Ingress) -> None:
    """With times in the zone of the plan, the next one first; not what other chats planned."""
    assert await ask(client, ingress, "/cron") == "Nothing is planned in this chat."
    schedules = Schedules(client)
    await schedules.add(
        schedule("bb", plan=CronPlan("30 8 * * 1-5", "UTC"), text="read\nthe " + "news " * 100), NOW + 2
    )
    await schedules.add(schedule("aa", plan=AtPlan(NOW)), NOW)
    await schedules.add(schedule("cc", chat="owner/b"), NOW)
    text = await ask(client, ingress, "/cron")
    assert text.startswith(
        "2 plans in this chat:\n\n- `aa` once, at 2026-11-21 12:00 (Saturday, UTC); next 2026-11-21 12:00 (Saturday, "
        "UTC); 0 runs: look\n- `bb` at '30 8 * * 1-5' (UTC); next 2026-11-21 12:00 (Saturday, UTC); 0 runs: read the "
    )
    assert text.endswith("…\n\n`/cron remove ID` takes one out.")
    await schedules.pause("web:owner/a")
    assert "paused" in await ask(client, ingress, "/cron")


async def test_cron_removes_one_once(client: RedisClient, ingress: Ingress) -> None:
    """The same message again gets the same answer; a stranger's plan is not there."""
    schedules = Schedules(client)
    await schedules.add(schedule("aa"), NOW)
    await schedules.add(schedule("cc", chat="owner/b"), NOW)
    for _ in range(2):
        assert await ask(client, ingress, "/cron remove `AA`", id="m-remove") == "`aa` is removed: every 1 min."
    assert await ask(client, ingress, "/cron remove aa") == "There is no plan `aa` in this chat; `/cron` lists them."
    assert await ask(client, ingress, "/cron delete cc") == "There is no plan `cc` in this chat; `/cron` lists them."
    assert (await ask(client, ingress, "/cron rm")).startswith("Which one?")
    assert (await ask(client, ingress, "/cron every day")).startswith("I know `/cron`")
    assert [session async for session in schedules.sessions()] == ["web:owner/b"]


async def test_forget_names_the_plans_that_go(client: RedisClient, ingress: Ingress) -> None:
    """Exactly what was deleted is said."""
    assert "plan" not in await ask(client, ingress, "/forget")
    await Schedules(client).add(schedule("aa"), NOW)
    assert "- 1 plan of this chat" in await ask(client, ingress, "/forget")
    assert await Schedules(client).of_session("web:owner/a") == []


async def test_an_answer_that_nobody_asked_for_is_shown_to_all_devices(redis_url: str, client: RedisClient) -> None:
    """Live with its turn and text to who is there, from the log to who comes later, and the chat is at the head of the
    list. No line says that a person had said something."""
    async with gateway(redis_url) as running, worker(redis_url) as answering, connected(running.address) as there:
        await there.say("a", "hello", id="m1")
        await there.say("b", "hello", id="m2")
        await answering.run_once()
        await there.send("resume", chat="a", after=0)
        await there.shown("a", 2)
        now = await server_ms(client)
        await fire(client, schedule(), now)
        await answering.run_once()
        await there.next("turn", state="started", turn=2)
        await there.next("delta", turn=2)
        reply = await there.next("reply", turn=2)
        assert reply["in_reply_to"] == [f"aa:{now}"]
        assert reply["text"].endswith("look")
        async with connected(running.address) as later:
            await later.send("history", chat="a")
            lines = (await later.next("history"))["lines"]
            assert [(line["type"], line.get("turn")) for line in lines[-3:]] == [
                ("message", None), ("reply", 1), ("reply", 2),
            ]  # fmt: skip
            await later.send("chats")
            chats = (await later.next("chats"))["chats"]
            assert [(chat["chat"], chat["title"]) for chat in chats] == [("a", "hello"), ("b", "hello")]
            await later.send("resume", chat="a", after=2)
            assert (await later.next("reply"))["seq"] == 3
            assert (await later.next("resumed")).get("running") is None
