"""The newest answer is had again, its message changed, and an answer that was stopped continued."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from shared.store.client.redis_client import RedisClient
from tests.e2e.test_page import PATIENCE_MS, ask, page_of_fleet
from tests.helpers.axe import violations
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI

pytestmark = pytest.mark.usefixtures("browser")


async def test_the_newest_answer_again_and_its_message_changed(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """What was replaced stays and is marked, also after a reload; the model does not see it."""
    model.script(Answer(text="Sevn."), Answer(text="Seven."), Answer(text="Eight."))
    async with page_of_fleet(spawn) as page:
        own, replies = page.locator(".own .text"), page.locator('.card.reply[data-state="done"]')
        await ask(page, "three and four")
        await expect(replies).to_have_count(1, timeout=PATIENCE_MS)
        await page.get_by_role("button", name="Answer again").click()
        await expect(replies).to_have_count(2, timeout=PATIENCE_MS)
        await expect(replies.last).to_contain_text("Seven.")
        await expect(own).to_have_text(["three and four", "three and four"])
        await expect(page.locator(".replaced")).to_have_count(2)
        await page.get_by_role("button", name="Edit").click()
        area = page.locator("#composer textarea")
        await expect(area).to_have_value("three and four")
        assert await violations(page) == []
        await area.press("Escape")
        await expect(area).to_have_value("")
        await expect(page.locator("#editing")).to_be_hidden()
        await page.get_by_role("button", name="Edit").click()
        await area.fill("three and five")
        await area.press("Enter")
        await expect(replies).to_have_count(3, timeout=PATIENCE_MS)
        await page.reload()
        await expect(own).to_have_text(["three and four", "three and four", "three and five"], timeout=PATIENCE_MS)
        await expect(page.locator(".replaced")).to_have_count(4)
        await expect(page.get_by_role("button", name="Answer again")).to_have_count(1)
        await expect(page.get_by_role("button", name="Edit")).to_have_count(1)
        assert await violations(page) == []
    asked = [str(request) for request in model.requests()]
    assert "Sevn." not in asked[1]
    assert "Seven." not in asked[2]
    assert "three and four" not in asked[2]


async def test_an_answer_that_was_stopped_is_continued(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """With a message of its own, which the model answers after what it had written."""
    model.script(Answer(text="word " * 400, stall_after=5), Answer(text="And that was it."))
    async with page_of_fleet(spawn) as page:
        await ask(page, "a long story")
        streaming = page.locator('.card.reply[data-state="streaming"] .body')
        await expect(streaming).to_contain_text("word word", timeout=PATIENCE_MS)
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Continue").click(timeout=PATIENCE_MS)
        replies = page.locator('.card.reply[data-state="done"]')
        await expect(replies.last).to_contain_text("And that was it.", timeout=PATIENCE_MS)
        await expect(page.get_by_role("button", name="Continue")).to_have_count(0)
    assert "word word" in str(model.requests()[-1])
