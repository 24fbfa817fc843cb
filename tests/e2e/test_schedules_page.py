"""A schedule at the chat page: an answer that nobody asked for, on a page that is there and on one that comes later."""

from __future__ import annotations

import msgspec
import pytest
from playwright.async_api import expect

from shared.messages.schedule import AtPlan, Schedule
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import Schedules
from tests.e2e.test_page import PATIENCE_MS, ask, page_at, sessions, start_gateway
from tests.gateway.harness import free_port
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.schedules import schedule, server_ms

pytestmark = pytest.mark.usefixtures("browser")


async def test_a_page_shows_the_answer_of_a_schedule(client: RedisClient, spawn: Spawn, model: ScriptedOpenAI) -> None:
    """It grows as a card of its own, says why it came and quotes nobody, leaves the page ready for the next question,
    and a page that is opened later shows the same."""
    model.script(
        Answer(match="count the birds", text="There are **seven** birds.", delta_s=0.05, times=0),
        Answer(match="hello", text="Hello.", times=0),
    )
    port = free_port()
    start_gateway(spawn, port)
    await warm(spawn("worker", MODEL__CLIENT="direct"))
    async with page_at(port) as page:
        await ask(page, "hello")
        done = page.locator('.card.reply[data-state="done"]')
        await expect(done).to_have_count(1, timeout=PATIENCE_MS)
        [session] = await sessions(client)
        await Schedules(client).add(_in_this_chat(session), await server_ms(client))
        await expect(done).to_have_count(2, timeout=PATIENCE_MS)
        await expect(done.nth(1).locator("strong")).to_have_text("seven")
        await expect(done.nth(1).locator(".origin")).to_have_text("Scheduled")
        await expect(done.nth(0).locator(".origin")).to_have_count(0)
        await expect(done.nth(1).locator(".quote")).to_have_count(0)
        await expect(page.locator('.card.reply[data-state="streaming"]')).to_have_count(0)
        await expect(page.locator(".card.own")).to_have_count(1)
        await ask(page, "hello again")
        await expect(done).to_have_count(3, timeout=PATIENCE_MS)
    async with page_at(port) as later:
        await later.locator("#chats li[data-chat]").first.click()
        done = later.locator('.card.reply[data-state="done"]')
        await expect(done).to_have_count(3, timeout=PATIENCE_MS)
        await expect(done.nth(1)).to_contain_text("There are seven birds.")
        await expect(later.locator(".card.reply .origin")).to_have_text(["Scheduled"])
        await expect(done.nth(1).locator(".quote")).to_have_count(0)


def _in_this_chat(session: str) -> Schedule:
    one = schedule(chat=session.removeprefix("web:"), plan=AtPlan(1), misfire="once", text="count the birds")
    return msgspec.structs.replace(one, owner="owner")
