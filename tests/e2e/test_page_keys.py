"""Keys that stop an answer and bring a message back, another try, and a word when one is away."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from gateway.channels.web.http.auth import Principals
from shared.store.client.redis_client import RedisClient
from tests.e2e.test_page import PATIENCE_MS, TOKEN, ask, noted, page_at, page_of_fleet
from tests.gateway.harness import gateway
from tests.helpers.axe import violations
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.wait import eventually

pytestmark = pytest.mark.usefixtures("browser")

AWAY = """() => {
  window.told = [];
  window.Notification = class { constructor(title, { body }) { told.push([title, body]); } };
  Notification.permission = "granted";
  Notification.requestPermission = async () => "granted";
}"""
HIDE = "() => Object.defineProperty(document, 'visibilityState', { value: 'hidden' })"


async def test_escape_stops_an_answer_and_arrow_up_brings_the_message_back(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """In an empty line alone: what is being written is not touched."""
    model.script(Answer(text="word " * 400, stall_after=5))
    async with page_of_fleet(spawn) as page:
        await ask(page, "a long story")
        await expect(page.locator('.card.reply[data-state="streaming"] .body')).to_contain_text(
            "word", timeout=PATIENCE_MS
        )
        await page.keyboard.press("Escape")
        stopped = page.locator('.card.reply[data-state="done"]')
        await expect(stopped).to_have_attribute("data-kind", "stopped", timeout=PATIENCE_MS)
        area = page.locator("#composer textarea")
        await page.keyboard.press("ArrowUp")
        await expect(area).to_have_value("a long story")
        await area.fill("else")
        await page.keyboard.press("ArrowUp")
        await expect(area).to_have_value("else")


async def test_who_has_no_mouse_comes_to_the_message_with_one_key(redis_url: str) -> None:
    """By the first link of the page, or by a slash, which begins a command; not while they write elsewhere."""
    async with gateway(redis_url, principals=Principals({"owner": TOKEN})) as running:
        async with page_at(int(running.address.rpartition(":")[2])) as page:
            area, find = page.locator("#composer textarea"), page.locator("#search input")
            await expect(area).to_be_focused(timeout=PATIENCE_MS)
            assert await page.evaluate("document.querySelector('#app :is(a, button, input)').id") == "skip"
            skip = page.get_by_role("link", name="Write a message")
            await skip.focus()
            await expect(skip).to_be_in_viewport(ratio=1)
            assert await violations(page) == []
            await page.keyboard.press("Enter")
            await expect(area).to_be_focused()
            await page.locator("#new-chat").focus()
            await page.keyboard.press("/")
            await expect(area).to_be_focused()
            await expect(area).to_have_value("/")
            await page.locator("#find").click()
            await page.keyboard.type("a/b")
            await expect(find).to_have_value("a/b")


async def test_a_misspelt_command_is_not_sent_at_once(redis_url: str) -> None:
    """The page names the nearest one; the same text once more is a message. A path is one from the beginning."""
    async with gateway(redis_url, principals=Principals({"owner": TOKEN})) as running:
        async with page_at(int(running.address.rpartition(":")[2])) as page:
            area, own = page.locator("#composer textarea"), page.locator(".own")
            await ask(page, "/modle fast")
            advice = "There is no command /modle. Did you mean /model? Send it again to say it as a message."
            await noted(page, advice)
            await expect(area).to_have_value("/modle fast")
            await ask(page, "/undo")
            await noted(page, "There is no command /undo. Send it again")
            await expect(own).to_have_count(0)
            await area.press("Enter")
            await expect(own).to_have_text([re.compile("/undo")])
            await ask(page, "/etc/hosts is broken")
            await expect(own).to_have_count(2)


async def test_a_message_that_is_refused_says_why_in_a_sentence(redis_url: str) -> None:
    """It stays in the chat, to be sent again or thrown away."""
    async with gateway(redis_url, principals=Principals({"owner": TOKEN})) as running:
        async with page_at(int(running.address.rpartition(":")[2])) as page:
            await ask(page, "y" * 70_000)
            reason = page.locator(".own [role=alert]")
            await expect(reason).to_have_text(re.compile(r"^Not sent\. [A-Z].*70,000 bytes.*\.$"), timeout=PATIENCE_MS)
            await expect(page.locator(".own").get_by_role("button", name="Discard")).to_be_visible()


async def test_a_message_that_waits_is_withdrawn_to_be_changed(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """It gets no answer then; one whose turn has begun stays."""
    model.script(Answer(text="word " * 400, stall_after=5))
    async with page_of_fleet(spawn) as page:
        await ask(page, "first")
        await expect(page.locator('.card.reply[data-state="streaming"]')).to_be_visible(timeout=PATIENCE_MS)
        await ask(page, "secnod")
        await expect(page.locator("#queue")).to_contain_text("secnod", timeout=PATIENCE_MS)
        await page.keyboard.press("ArrowUp")
        await expect(page.locator("#composer textarea")).to_have_value("secnod")
        await expect(page.locator('.own[data-state="withdrawn"]')).to_have_count(1, timeout=PATIENCE_MS)


async def test_what_could_not_be_answered_is_tried_again(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The same words as a new message, also after a reload."""
    model.script(Answer(status=400), Answer(text="Now it works."))
    async with page_of_fleet(spawn) as page:
        await ask(page, "what is new?")
        again = page.get_by_role("button", name="Try again")
        await expect(again).to_be_visible(timeout=PATIENCE_MS)
        apology = page.locator('.card.reply[data-kind="apology"]')
        await expect(apology).to_contain_text("Sorry")
        await expect(apology.locator(".mark")).to_have_count(0)
        await page.reload()
        await again.click()
        await expect(page.locator(".card.reply").last).to_contain_text("Now it works.", timeout=PATIENCE_MS)
        await expect(page.locator(".own .text")).to_have_text(["what is new?", "what is new?"])


async def test_notifications_come_while_the_page_is_hidden(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Not before they asked for it, and not while they look."""
    model.script(*(Answer(text=f"Answer {number}.") for number in range(3)))
    async with page_of_fleet(spawn) as page:
        await page.add_init_script(f"({AWAY})()")
        await page.reload()
        replies, button = page.locator('.card.reply[data-state="done"]'), page.locator("#notify")
        await ask(page, "one")
        await expect(replies).to_have_count(1, timeout=PATIENCE_MS)
        await expect(button).to_have_text("Notify me of news")
        await expect(button).to_have_attribute("title", re.compile("^Reminders, questions, and answers"))
        await button.click()
        await expect(button).to_have_attribute("aria-pressed", "true")
        assert await violations(page) == []
        await ask(page, "two")
        await expect(replies).to_have_count(2, timeout=PATIENCE_MS)
        assert await page.evaluate("told") == []
        await page.evaluate(HIDE)
        await ask(page, "three")
        await expect(replies).to_have_count(3, timeout=PATIENCE_MS)
        await eventually(lambda: page.evaluate("told.length"), what="a notification")
        assert await page.evaluate("told") == [["one", "Answer 2."]]
        await page.reload()
        await expect(button).to_have_attribute("aria-pressed", "true")
