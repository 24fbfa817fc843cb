"""The panel about a chat: real Chromium, real gateway; what it shows and changes is in a real Valkey."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from shared.store.client.redis_client import RedisClient
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.memory import MemoryStore
from tests.e2e.test_page import PATIENCE_MS, ask, noted, page_at, sessions, start_gateway
from tests.gateway.harness import free_port
from tests.helpers.axe import violations
from tests.helpers.children import Parent
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.schedules import schedule
from tests.helpers.wait import eventually

pytestmark = pytest.mark.usefixtures("browser")


async def test_plans_jobs_and_memory_are_seen_and_changed_with_buttons(client: RedisClient, spawn: Spawn) -> None:
    """A plan and a job go by a button that is pressed twice, the memory is written in its field; the page says what is
    so then. A chat without a message has no panel."""
    port = free_port()
    start_gateway(spawn, port)
    async with page_at(port) as page:
        opener = page.get_by_role("button", name="About this chat")
        await expect(page.locator("#composer")).to_be_visible(timeout=PATIENCE_MS)
        await expect(opener).to_be_hidden()
        await ask(page, "hello")
        await expect(page.locator(".own")).to_have_count(1)
        [session] = await eventually(lambda: sessions(client))  # the page shows a message before it is stored
        chat = session.removeprefix("web:")
        parent = await Parent.begin(client, chat=chat)
        await parent.spawn("one")
        await Schedules(client).add(schedule("p1", chat=chat, text="water the plants"), 2_000_000_000_000)
        await opener.click()
        panel = page.get_by_role("dialog", name="About this chat")
        await expect(panel).to_contain_text("water the plants")
        await expect(panel).to_contain_text("No files in the newest messages.")
        assert await violations(page) == []
        remove = panel.get_by_role("button", name="Remove the plan water the plants")
        await remove.click()
        await expect(panel).to_contain_text("water the plants")
        await remove.dblclick()  # on a machine that stalled, the first press is forgotten by now
        await expect(panel).to_contain_text("Nothing is planned.")
        cancel = panel.get_by_role("button", name="Cancel search")
        await cancel.dblclick()
        await expect(panel).to_contain_text("cancelled, ")
        await expect(cancel).to_have_count(0)
        field = panel.get_by_role("textbox", name="Memory")
        save = panel.get_by_role("button", name="Save")
        await expect(save).to_be_disabled()
        await field.fill("Likes otters.")
        await save.click()
        await expect(panel.get_by_role("status")).to_contain_text("Saved.")
        assert (await MemoryStore(client).read_memory(f"chat:{session}")).text == "Likes otters."
        # Meanwhile the agent writes it, too: what it wrote is not overwritten.
        version = (await MemoryStore(client).read_memory(f"chat:{session}")).version
        await MemoryStore(client).write_memory(f"chat:{session}", "Likes seals.", version=version)
        await field.fill("Likes cats.")
        await save.click()
        await noted(page, "changed meanwhile")
        await expect(field).to_have_value("Likes cats.")
        assert await violations(page) == []
        await panel.get_by_role("button", name="Make a link").click()
        address = await panel.get_by_role("textbox", name="Link").input_value()
        assert await violations(page) == []
        visitor = await page.context.browser.new_page()  # type: ignore[union-attr]
        await visitor.goto(address)
        await expect(visitor.locator(".own").first).to_have_text("hello")
        assert await violations(visitor) == []
        end = panel.get_by_role("button", name="End the link")
        await end.dblclick()
        await expect(panel.get_by_role("button", name="Make a link")).to_be_visible()
        gone = await visitor.reload()
        assert gone is not None
        assert gone.status == 404
        await page.keyboard.press("Escape")
        await expect(panel).to_be_hidden()
        await expect(opener).to_be_focused()
        await opener.click()
        await expect(field).to_have_value("Likes seals.")
