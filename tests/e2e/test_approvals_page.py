"""A person who is asked whether a tool may run: real Chromium, real gateway, real worker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from shared.store.client.redis_client import RedisClient
from tests.e2e.test_page import PATIENCE_MS, ask, page_at, start_gateway
from tests.gateway.harness import free_port
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.wait import eventually

pytestmark = pytest.mark.usefixtures("browser")

TOOLS = Path(__file__).parents[1] / "helpers" / "crash_tools"
NASTY = "<img src=x onerror=alert(1)>"


LONG = "\n".join(["wide " * 60, *(f"row {number:03d}" for number in range(200)), "tail \u202e" + NASTY])


def start(spawn: Spawn, model: ScriptedOpenAI, folder: Path, word: str = NASTY, **settings: str) -> int:
    port = free_port()
    start_gateway(spawn, port)
    env = {"MARKS": str(folder), "PYTHONPATH": str(TOOLS)}
    spawn("worker", env=env, **{"MODEL__CLIENT": "direct", "APPROVAL__TOOLS": "mark", **settings})
    model.script(
        Answer(match="go", role="tool", text="that is all", times=0),
        Answer(match="go", role="user", calls=[Call("mark", json.dumps({"word": word}), "mark1")], times=0),
    )
    return port


def card(page: Page) -> Locator:
    return page.locator(".card.approval")


async def seen_in(line: Locator, pre: Locator) -> bool:
    inner, outer = await line.bounding_box(), await pre.bounding_box()
    assert inner is not None
    assert outer is not None
    return outer["y"] <= inner["y"] and inner["y"] + inner["height"] <= outer["y"] + outer["height"]


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
        await expect(card(page).locator(".outcome")).to_have_text("You said yes on the page.", timeout=PATIENCE_MS)
        await expect(card(page).get_by_role("button", name="Yes")).to_be_hidden()


async def test_a_command_is_a_line_of_a_shell_and_a_yes_can_be_for_good(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """The card says what the call touches. Yes is not the button that invites; another page says where it was said."""
    port = start(spawn, model, tmp_path, APPROVAL__TOOLS="write_file")
    wrote = Call("write_file", json.dumps({"path": "notes/plan.md", "content": "# Plan\n\n- one"}), "w1")
    model.script(Answer(match="write", role="tool", text="written", times=0))
    model.script(Answer(match="write", role="user", calls=[wrote], times=0))
    async with page_at(port, width=390, height=800) as phone, page_at(port) as page:
        await ask(page, "write")
        await expect(card(page).locator(".touches")).to_have_text("writesnotes/plan.mdnetworknone", timeout=PATIENCE_MS)
        yes, no = (card(page).get_by_role("button", name=name, exact=True) for name in ("Yes", "No"))
        colours = [await one.evaluate("node => getComputedStyle(node).backgroundColor") for one in (yes, no)]
        assert colours[0] == colours[1], "neither is the filled one"
        await phone.goto(page.url)
        await expect(card(phone)).to_have_attribute("data-state", "open", timeout=PATIENCE_MS)
        await card(page).get_by_role("button", name="Always in this chat").click()
        here = "You said yes. From now on I do not ask about this in this chat."
        await expect(card(page).locator(".outcome")).to_have_text(here, timeout=PATIENCE_MS)
        elsewhere = here.replace("yes.", "yes on the page.")
        await expect(card(phone).locator(".outcome")).to_have_text(elsewhere, timeout=PATIENCE_MS)
        await expect(page.locator(".reply[data-state=done]").last).to_contain_text("written", timeout=PATIENCE_MS)
        await ask(page, "write")
        await expect(page.locator(".reply[data-state=done]")).to_have_count(2, timeout=PATIENCE_MS)
        await expect(card(page)).to_have_count(1)
        await card(page).get_by_role("button", name="Ask again from now on").click()
        await expect(page.locator(".reply").last).to_contain_text("I ask again about that.", timeout=PATIENCE_MS)
        await ask(page, "write")
        await expect(card(page)).to_have_count(2, timeout=PATIENCE_MS)


async def test_a_long_card_is_whole_and_its_end_is_reached_by_scrolling(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """With its size, a number at each line and every character visible; what was read is what ran."""
    port = start(spawn, model, tmp_path, LONG)
    async with page_at(port, width=480) as page:
        await ask(page, "go")
        pre, last = card(page).locator("pre"), card(page).locator("pre .line").last
        await expect(card(page).locator(".size")).to_have_text(re.compile(r"^203 lines, 2,\d{3} characters"))
        await expect(last).to_have_text(f"  tail ⟨U+202E⟩{NASTY}")
        assert await pre.locator(".line").count() == 203
        assert await pre.evaluate("pre => pre.scrollWidth <= pre.clientWidth"), "nothing is off to the right"
        assert not await seen_in(last, pre)
        await pre.focus()
        await page.keyboard.press("End")
        await eventually(lambda: seen_in(last, pre))
        await card(page).get_by_role("button", name="Yes").click()
        await expect(page.locator(".reply[data-state=done]").last).to_contain_text("that is all", timeout=PATIENCE_MS)
    assert (tmp_path / "marks").read_text() == f"{LONG}\n"


async def test_a_card_says_whose_text_was_read_before(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """The tool of a package may have read anything; what asks after it says so."""
    look, mark = Call("look", '{"word": "a"}', "look1"), Call("mark", '{"word": "b"}', "mark1")
    model.script(
        Answer(match="read", role="user", calls=[look]),
        Answer(match="read", role="tool", calls=[mark]),
    )
    port = start(spawn, model, tmp_path)
    async with page_at(port) as page:
        await ask(page, "read")
        title, asks = card(page).locator(".question"), "After reading tool look: may I run mark with exactly this?"
        await expect(title).to_have_text(asks, timeout=PATIENCE_MS)


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
