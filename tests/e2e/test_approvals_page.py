"""A person who is asked whether a tool may run: real Chromium, real gateway, real worker."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import Locator, Page, expect

from shared.store.client.redis_client import RedisClient
from tests.e2e.test_page import PATIENCE_MS, ask, page_at, start_gateway
from tests.gateway.harness import free_port
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI

TOOLS = Path(__file__).parents[1] / "helpers" / "crash_tools"
NASTY = "<img src=x onerror=alert(1)>"


def start(spawn: Spawn, model: ScriptedOpenAI, folder: Path, **settings: str) -> int:
    port = free_port()
    start_gateway(spawn, port)
    env = {"MARKS": str(folder), "PYTHONPATH": str(TOOLS)}
    spawn("worker", env=env, MODEL__CLIENT="direct", APPROVAL__TOOLS="mark", **settings)
    model.script(
        Answer(match="go", role="tool", text="that is all", times=0),
        Answer(match="go", role="user", calls=[Call("mark", f'{{"word": "{NASTY}"}}', "mark1")], times=0),
    )
    return port


def card(page: Page) -> Locator:
    return page.locator(".card.approval")


def marks(folder: Path) -> list[str]:
    file = folder / "marks"
    return file.read_text().splitlines() if file.exists() else []


async def test_a_card_shows_exactly_what_would_run_and_yes_runs_it(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Escaped, with a countdown; it is there after a reload; its outcome stays; another device sees it, too."""
    port = start(spawn, model, tmp_path)
    async with page_at(port) as page:
        await ask(page, "go")
        await expect(card(page)).to_have_count(1, timeout=PATIENCE_MS)
        await expect(card(page).locator("pre")).to_contain_text(NASTY)
        assert await card(page).locator("pre img").count() == 0
        await expect(card(page)).to_contain_text("mark")
        await expect(card(page).locator(".left")).to_have_text(re.compile(r"^(10:00|9:\d\d) left$"))
        await page.reload()
        await expect(card(page).get_by_role("button", name="Yes")).to_be_enabled(timeout=PATIENCE_MS)
        assert marks(tmp_path) == []
        await card(page).get_by_role("button", name="Yes").click()
        await expect(card(page).locator(".outcome")).to_have_text("You said yes.", timeout=PATIENCE_MS)
        await expect(page.locator(".reply[data-state=done]").last).to_contain_text("that is all", timeout=PATIENCE_MS)
        assert marks(tmp_path) == [NASTY]
        await page.reload()
        await expect(card(page).locator(".outcome")).to_have_text("You said yes.", timeout=PATIENCE_MS)
        await expect(card(page).get_by_role("button", name="Yes")).to_be_hidden()


async def test_the_keyboard_says_no_and_the_tool_does_not_run(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Tab reaches the buttons; n on the card is a no."""
    port = start(spawn, model, tmp_path)
    async with page_at(port) as page:
        await ask(page, "go")
        await card(page).get_by_role("button", name="Yes").focus(timeout=PATIENCE_MS)
        await page.keyboard.press("n")
        await expect(card(page).locator(".outcome")).to_contain_text("You said no", timeout=PATIENCE_MS)
        await expect(page.locator(".reply[data-state=done]").last).to_contain_text("that is all", timeout=PATIENCE_MS)
        assert marks(tmp_path) == []


async def test_a_card_that_nobody_answers_says_so(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """When its time is over, by the page's own clock; the turn goes on."""
    port = start(spawn, model, tmp_path, APPROVAL__WAIT_S="2")
    async with page_at(port) as page:
        await ask(page, "go")
        await expect(card(page).first).to_have_attribute("data-state", "expired", timeout=PATIENCE_MS)
        await expect(page.locator(".reply[data-state=done]").last).to_contain_text("that is all", timeout=PATIENCE_MS)
        await expect(card(page)).to_have_attribute("data-state", "expired")
        await page.reload()
        await expect(card(page)).to_have_attribute("data-state", "expired", timeout=PATIENCE_MS)
        assert marks(tmp_path) == []


async def test_a_text_answers_and_stop_closes_a_card(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """`/stop` ends the turn that waits; `/yes` is as good as the button."""
    port = start(spawn, model, tmp_path)
    async with page_at(port) as page:
        await ask(page, "go")
        await expect(card(page)).to_have_attribute("data-state", "open", timeout=PATIENCE_MS)
        await ask(page, "/stop")
        await expect(card(page)).to_have_attribute("data-state", "over", timeout=PATIENCE_MS)
        await ask(page, "go")
        await expect(card(page).last).to_have_attribute("data-state", "open", timeout=PATIENCE_MS)
        await ask(page, "/yes")
        await expect(card(page).last).to_have_attribute("data-state", "yes", timeout=PATIENCE_MS)
        await expect(page.locator(".reply[data-state=done]").last).to_contain_text("that is all", timeout=PATIENCE_MS)
        assert marks(tmp_path) == [NASTY]
