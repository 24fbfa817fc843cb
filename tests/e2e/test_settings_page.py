"""The settings in a real Chromium: by keyboard, on a telephone, light and dark, for an owner and for others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from shared.store.client.redis_client import RedisClient
from shared.store.fleet.spending import Spending
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.memory import MemoryStore
from tests.e2e.test_page import PATIENCE_MS, TOKEN, ask, page_at, page_of_fleet, sessions, start_gateway
from tests.gateway.harness import free_port
from tests.helpers.axe import violations
from tests.helpers.children import Parent
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.schedules import schedule
from tests.helpers.wait import eventually

pytestmark = pytest.mark.usefixtures("browser")

ANN = "anns-token-for-this-page"
PRESETS = '[model.presets.quick]\nname = "openai/quick"\nabout = "quick and cheap"\n'
LATER = """() => performance.getEntriesByType("resource").filter(one => one.name.includes("/static/") &&
  one.name.includes("/settings/")).length"""


async def open_settings(page: Page) -> None:
    await expect(page.get_by_role("button", name="Settings")).to_be_visible(timeout=PATIENCE_MS)
    await page.keyboard.press("Control+,")
    await expect(page.get_by_role("dialog", name="Settings")).to_be_visible(timeout=PATIENCE_MS)


async def test_the_settings_are_opened_and_left_by_keyboard(client: RedisClient, spawn: Spawn) -> None:
    """They have an address of their own, and are fetched at the first opening; "back" closes them."""
    port = free_port()
    start_gateway(spawn, port)
    async with page_at(port) as page:
        opener = page.get_by_role("button", name="Settings")
        dialog = page.get_by_role("dialog", name="Settings")
        assert await page.evaluate(LATER) == 0
        await open_settings(page)
        assert await page.evaluate(LATER) > 5
        await expect(page).to_have_url(re.compile("/settings$"))
        await expect(dialog.get_by_role("tab", name="You", exact=True)).to_be_focused()
        for tab in ("Your work", "Usage", "Models", "This installation"):
            await page.keyboard.press("ArrowDown")
            await expect(dialog.get_by_role("tab", name=tab)).to_be_focused()
            await expect(dialog.get_by_role("tabpanel", name=tab).get_by_role("heading").first).to_be_visible()
            await expect(dialog.get_by_text("Loading")).to_have_count(0)
            assert await violations(page) == []
        await page.keyboard.press("Home")
        await expect(dialog.get_by_role("tabpanel", name="You", exact=True)).to_contain_text("You are owner here.")
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        await expect(page).to_have_url(re.compile(f":{port}/$"))
        await opener.click()
        await expect(dialog.get_by_role("tabpanel", name="You", exact=True)).to_contain_text("You are owner here.")
        await page.go_back()
        await expect(dialog).to_be_hidden()
        await page.goto(f"http://127.0.0.1:{port}/settings#usage")
        await expect(dialog.get_by_role("tabpanel", name="Usage")).to_contain_text("This month", timeout=PATIENCE_MS)
        await dialog.get_by_role("button", name="Close").click()
        await expect(page).not_to_have_url(re.compile("settings"))


async def test_theme_zone_and_the_way_out(client: RedisClient, spawn: Spawn) -> None:
    """The theme is the browser's, the zone the person's; a mistake is said in words."""
    port = free_port()
    start_gateway(spawn, port)
    async with page_at(port, timezone="Europe/Paris") as page:
        await open_settings(page)
        panel = page.get_by_role("tabpanel", name="You", exact=True)
        await expect(panel.get_by_role("radio", name="As the system")).to_be_checked()
        await panel.get_by_role("radio", name="Dark").check()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert await violations(page) == []
        await panel.get_by_role("radio", name="As the system").check()
        await expect(page.locator("html")).not_to_have_attribute("data-theme", "dark")
        await page.context.grant_permissions(["notifications"])
        await panel.get_by_role("button", name="Turn on").click()
        await expect(panel).to_contain_text("You are told of reminders, questions and long answers")
        await expect(page.locator("#notify")).to_have_attribute("aria-pressed", "true")
        await panel.get_by_role("button", name="Turn off").click()
        field = panel.get_by_label("Zone of your plans")
        await expect(field).to_have_attribute("placeholder", "Europe/Paris")
        await field.fill("Mars/Olympus")
        await field.press("Enter")
        await expect(panel).to_contain_text("'Mars/Olympus' is not a time zone")
        assert await violations(page) == []
        await field.fill("tokyo")
        await field.press("Enter")
        await expect(field).to_have_value("Asia/Tokyo")
        await expect(panel).to_contain_text("Your plans use Asia/Tokyo from now on.")
        await page.reload()
        await expect(field).to_have_value("Asia/Tokyo", timeout=PATIENCE_MS)
        await panel.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Sign in to Shoal")).to_be_visible(timeout=PATIENCE_MS)


async def test_the_work_of_all_chats_is_seen_and_ended(client: RedisClient, spawn: Spawn) -> None:
    """A plan and a job go by a button that is pressed twice; a title leads to its chat, a memory to its panel."""
    port = free_port()
    start_gateway(spawn, port)
    async with page_at(port) as page:
        await ask(page, "hello")
        [session] = await eventually(lambda: sessions(client))
        chat = session.removeprefix("web:")
        parent = await Parent.begin(client, chat=chat)
        await parent.spawn("one")
        for id, text in (("p1", "water the plants"), ("p2", "call Ann")):
            await Schedules(client).add(schedule(id, chat=chat, text=text), 2_000_000_000_000)
        await MemoryStore(client).write_memory(f"chat:{session}", "Likes otters.", version="0")
        await Spending(client).add(session, 12_345, 0.0678)
        await open_settings(page)
        dialog = page.get_by_role("dialog", name="Settings")
        await dialog.get_by_role("tab", name="Your work").click()
        panel = dialog.get_by_role("tabpanel")
        await expect(panel).to_contain_text("water the plants")
        assert await violations(page) == []
        remove = panel.get_by_role("button", name="Remove the plan water the plants")
        await remove.dblclick()
        await expect(panel).not_to_contain_text("water the plants")
        await expect(panel).to_contain_text("call Ann")
        await panel.get_by_role("button", name="Cancel search").dblclick()
        await expect(panel).to_contain_text("cancelled, ")
        assert [one.schedule.id for one in await Schedules(client).of_session(session)] == ["p2"]
        await dialog.get_by_role("tab", name="Usage").click()
        await expect(panel).to_contain_text("12,345 tokens")
        await expect(panel).to_contain_text("about $0.0678")
        assert await violations(page) == []
        await dialog.get_by_role("tab", name="Your work").click()
        await panel.get_by_role("button", name="Show the memory of hello").click()
        await expect(dialog).to_be_hidden()
        about = page.get_by_role("dialog", name="About this chat")
        await expect(about.get_by_role("textbox", name="Memory")).to_have_value("Likes otters.")
        await expect(page).to_have_url(re.compile(f"/c/{chat.partition('/')[2]}$"))
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="New chat").first.click()
        await open_settings(page)
        await dialog.get_by_role("tab", name="Your work").click()
        await panel.get_by_role("link", name="hello").first.click()
        await expect(page).to_have_url(re.compile(f"/c/{chat.partition('/')[2]}$"))
        await expect(page.locator(".own").first).to_contain_text("hello")


async def test_models_are_tested_by_a_worker(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """The provider's own answer and its own error stand below the model; the key stands nowhere."""
    model.script(Answer(match="Say OK", text="OK"), Answer(match="Say OK", status=401))
    port = free_port()
    (tmp_path / "shoal.toml").write_text(PRESETS)
    env = {"SHOAL_CONFIG": str(tmp_path / "shoal.toml")}
    spawn("gateway", env=env, WEB__PORT=str(port), WEB__TOKEN=TOKEN, WEB__TOKENS__ANN=ANN)
    await warm(spawn("worker", env=env))
    async with page_at(port) as page:
        await open_settings(page)
        dialog = page.get_by_role("dialog", name="Settings")
        await dialog.get_by_role("tab", name="Models").click()
        panel = dialog.get_by_role("tabpanel")
        usual = panel.get_by_role("button", name="Test Usual model")
        await usual.click()
        await expect(panel).to_contain_text("said 'OK' after", timeout=PATIENCE_MS)
        await expect(usual).to_be_focused()
        await panel.get_by_role("button", name="Test quick").click()
        await expect(panel).to_contain_text("it says: scripted error 401", timeout=PATIENCE_MS)
        await expect(panel).to_contain_text("quick and cheap")
        await panel.get_by_text("Set or replace the key").last.click()
        await expect(panel).to_contain_text('[model.presets."quick"]')
        assert await violations(page) == []
        await dialog.get_by_role("tab", name="This installation").click()
        await expect(panel).to_contain_text("worker ")
        await expect(panel).to_contain_text('model.presets.quick.name = "openai/quick"')
        await expect(panel).to_contain_text('web.token = "***"')
        assert await violations(page) == []
    async with page_at(port, token=ANN, width=390, height=760) as page:
        await page.emulate_media(color_scheme="dark")
        await page.get_by_role("button", name="Settings").click()
        dialog = page.get_by_role("dialog", name="Settings")
        await expect(dialog.get_by_role("tab")).to_have_count(4, timeout=PATIENCE_MS)
        await dialog.get_by_role("tab", name="Models").click()
        panel = dialog.get_by_role("tabpanel")
        await expect(panel).to_contain_text("quick and cheap")
        await expect(panel.get_by_role("button")).to_have_count(0)
        assert await violations(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_the_demo_is_left_from_the_settings_too(spawn: Spawn) -> None:
    """The card of the first run stands there as well, with labels of its own."""
    port = free_port()
    folder = {"WEB__PORT": str(port), "WEB__TOKEN": TOKEN, "WEB__FIRST_RUN": "true", "MODEL__NAME": "demo"}
    spawn("gateway", **folder)
    async with page_at(port) as page:
        await open_settings(page)
        await page.get_by_role("tab", name="Models").click()
        panel = page.get_by_role("dialog", name="Settings").get_by_role("tabpanel")
        await panel.get_by_text("Use a real model").click()
        await panel.get_by_label("Provider").select_option("ollama")
        await expect(panel.get_by_label("Address")).to_have_value("http://127.0.0.1:11434")
        await expect(panel.get_by_role("alert")).to_contain_text("No worker answers just now")
        assert await violations(page) == []


async def test_a_gateway_that_goes_is_explained(client: RedisClient, spawn: Spawn) -> None:
    """With a button that tries again, for when it is back."""
    async with page_of_fleet(spawn) as page:
        await open_settings(page)
        dialog = page.get_by_role("dialog", name="Settings")
        await page.route("**/settings/usage", lambda route: route.abort())
        await dialog.get_by_role("tab", name="Usage").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("That could not be read just now.")
        assert await violations(page) == []
        await page.unroute("**/settings/usage")
        await dialog.get_by_role("button", name="Try again").click()
        await expect(dialog.get_by_role("tabpanel")).to_contain_text("This month")
        await expect(dialog.get_by_role("tabpanel")).to_be_focused()


async def test_a_change_that_fails_is_explained_in_the_dialog(client: RedisClient, spawn: Spawn) -> None:
    """The page under it can neither be seen nor read aloud; pressed again it may succeed."""
    plan = {"chat": "a", "title": "hello", "id": "p1", "when": "daily", "text": "call Ann", "next": 2e12}
    memory = {"chat": "a", "title": "hello", "of": "chat", "bytes": 3}
    work = {"plans": [plan], "jobs": [], "memories": [memory], "next": 0}
    async with page_of_fleet(spawn) as page:
        await page.route(re.compile(r"/settings/work$"), lambda route: route.fulfill(json=work))
        await page.route("**/about/a/plans/p1", lambda route: route.abort())
        await open_settings(page)
        dialog = page.get_by_role("dialog", name="Settings")
        await dialog.get_by_role("tab", name="Your work").click()
        row = dialog.get_by_role("listitem").filter(has_text="call Ann")
        await row.get_by_role("button", name="Remove the plan call Ann").dblclick()
        await expect(row.get_by_role("alert")).to_contain_text("That could not be done just now.")
        await expect(page.locator(".toast")).to_have_count(0)
        await expect(dialog.get_by_text("One chat's memory")).to_be_visible()
        assert await violations(page) == []
        await page.route("**/about/a/plans/p1", lambda route: route.fulfill(json={}))
        await row.get_by_role("button", name="Remove the plan call Ann").dblclick()
        await expect(row).to_have_count(0)


async def test_older_chats_are_looked_through_by_keyboard(client: RedisClient, spawn: Spawn) -> None:
    """The focus stays at the button, also when that fails, and at the list above it when nothing is left."""
    work: dict[str, object] = {"plans": [], "jobs": [], "memories": []}
    async with page_of_fleet(spawn) as page:
        await page.route("**/settings/work", lambda route: route.fulfill(json={**work, "next": 50}))
        await page.route("**/settings/work?skip=50", lambda route: route.abort())
        await page.route("**/settings/work?skip=100", lambda route: route.fulfill(json={**work, "next": 0}))
        await open_settings(page)
        dialog = page.get_by_role("dialog", name="Settings")
        await dialog.get_by_role("tab", name="Your work").click()
        older = dialog.get_by_role("button", name="Look through older chats")
        await older.press("Enter")
        await expect(dialog.get_by_role("alert")).to_contain_text("That could not be read just now.")
        await expect(older).to_be_focused()
        await page.route("**/settings/work?skip=50", lambda route: route.fulfill(json={**work, "next": 100}))
        await page.keyboard.press("Enter")
        await expect(dialog.get_by_role("alert")).to_have_count(0)
        await expect(older).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(older).to_be_hidden()
        await expect(dialog.get_by_role("heading", name="Memory")).to_be_focused()
