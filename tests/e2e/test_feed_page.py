"""Two pages of one person: what happens in any chat shows on both, and what was read on one is read on the other."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Page, expect

from gateway.channels.web.http.auth import Principals
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.e2e.test_chats_page import choose, row, time_to_undo, written
from tests.e2e.test_page import PATIENCE_MS, TOKEN, ask, page_at
from tests.e2e.test_page_keys import AWAY
from tests.gateway.harness import Worker, gateway, worker
from tests.helpers.axe import violations
from tests.helpers.build import message
from tests.helpers.questions import ask_for_approval
from tests.helpers.wait import eventually

__all__ = ["time_to_undo"]
pytestmark = pytest.mark.usefixtures("browser", "time_to_undo")

HIDE = """() => {
  Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true });
  Object.defineProperty(document, 'hidden', { value: true, configurable: true });
}"""


LATER = "() => { const now = Date.now; Date.now = () => now() + 30000; }"


@asynccontextmanager
async def desk_and_phone(redis_url: str) -> AsyncIterator[tuple[Page, Page, Worker]]:
    """Two pages of the owner, one of them as on a phone, and a worker that answers when it is told to."""
    async with gateway(redis_url, principals=Principals({"owner": TOKEN})) as running, worker(redis_url) as answering:
        port = int(running.address.rpartition(":")[2])
        async with page_at(port) as desk, page_at(port, width=390, height=760) as phone:
            yield desk, phone, answering


async def remind(client: RedisClient, chat: str, text: str) -> None:
    """A message that no person wrote, as a schedule's."""
    await Inbox(client).ingest(message(text, id=f"{text}:1", chat=f"owner/{chat}"), internal=True)


async def notified(page: Page, times: int) -> None:
    """Wait until the page has shown this many notifications."""

    async def enough() -> bool:
        return bool(await page.evaluate("told.length") >= times)

    await eventually(enough, within_s=PATIENCE_MS / 1000, what="a notification")


async def test_a_chat_made_in_another_tab_is_listed_at_once(redis_url: str) -> None:
    """With its title, as answering, then as unread with a count; renamed, pinned and deleted there, so it is here."""
    async with desk_and_phone(redis_url) as (desk, phone, answering):
        await ask(phone, "How are otters?")
        await expect(row(desk, "How are otters?")).to_have_class(re.compile("running"), timeout=PATIENCE_MS)
        await expect(desk).to_have_title(re.compile("^New chat"))
        await phone.locator("#open-side").click()
        await phone.locator("#new-chat").click()
        await answering.run_once()
        await expect(row(desk, "How are otters?")).to_have_class("unread", timeout=PATIENCE_MS)
        await expect(desk).to_have_title(re.compile(r"^\(1\) New chat"))
        await choose(desk, "How are otters?", "Pin")
        await phone.locator("#open-side").click()
        await expect(phone.locator("#chats h2").first).to_have_text("Pinned", timeout=PATIENCE_MS)
        await choose(desk, "How are otters?", "Delete")
        await expect(row(phone, "How are otters?")).to_have_count(0, timeout=PATIENCE_MS)
        await expect(desk.locator(".toast")).to_contain_text("How are otters?")
        await desk.get_by_role("button", name="Undo").click()
        await expect(row(phone, "How are otters?")).to_be_visible(timeout=PATIENCE_MS)


async def test_a_reminder_marks_its_chat_moves_it_up_and_is_read_once(redis_url: str, client: RedisClient) -> None:
    """On all pages; read on the phone, it is read on the desktop, also after a reload."""
    for days, title in ((0, "otters"), (2, "seals"), (3, "crabs")):
        await written(client, title, title, days)
    async with desk_and_phone(redis_url) as (desk, phone, answering):
        await answering.run_once()
        for page in (desk, phone):
            await expect(page).to_have_title(re.compile(r"^\(3\) "), timeout=PATIENCE_MS)
        for title in ("otters", "seals", "crabs"):
            await row(desk, title).locator("a").click()
            await expect(desk.locator(".card.reply")).to_have_count(1)
        await expect(phone).to_have_title(re.compile("^New chat"), timeout=PATIENCE_MS)
        await row(desk, "otters").locator("a").click()
        await desk.wait_for_url("**/c/otters")
        await remind(client, "crabs", "stretch")
        await answering.run_once()
        await expect(row(desk, "crabs")).to_have_class("unread", timeout=PATIENCE_MS)
        await expect(desk.locator("#chats li").first).to_contain_text("crabs")
        await expect(desk).to_have_title(re.compile(r"^\(1\) otters"))
        assert await violations(desk) == []
        await phone.locator("#open-side").click()
        await row(phone, "crabs").locator("a").click()
        await expect(phone.locator(".card.reply").last).to_contain_text("stretch")
        await expect(row(desk, "crabs")).not_to_have_class(re.compile("unread"), timeout=PATIENCE_MS)
        await expect(desk).to_have_title(re.compile("^otters"))
        await desk.reload()
        await expect(row(desk, "crabs")).to_be_visible(timeout=PATIENCE_MS)
        await expect(desk).to_have_title(re.compile("^otters"))


async def test_a_page_that_was_cut_off_shows_what_it_missed(redis_url: str, client: RedisClient) -> None:
    """Its socket comes back and goes on from the last fact that it had."""
    await written(client, "a", "otters")
    async with desk_and_phone(redis_url) as (desk, _, answering):
        await expect(row(desk, "otters")).to_be_visible(timeout=PATIENCE_MS)
        await desk.context.set_offline(True)
        await desk.evaluate("dispatchEvent(new Event('offline'))")
        await answering.run_once()
        await written(client, "b", "seals")
        await desk.context.set_offline(False)
        await expect(row(desk, "seals")).to_be_visible(timeout=PATIENCE_MS)
        await expect(row(desk, "otters")).to_have_class("unread")


async def test_a_question_shows_in_the_list_until_somebody_answers(redis_url: str, client: RedisClient) -> None:
    """A mark of its own, and words for those who do not see it; in both themes."""
    await written(client, "a", "otters")
    async with desk_and_phone(redis_url) as (desk, phone, _):
        await ask_for_approval(client)
        asked = row(desk, "otters")
        await expect(asked).to_have_class(re.compile("asks"), timeout=PATIENCE_MS)
        await expect(asked.locator(".unseen")).to_have_text("needs your yes")
        await expect(desk).to_have_title(re.compile(r"^\(1\) "))
        for scheme in ("light", "dark"):
            await desk.emulate_media(color_scheme=scheme)
            assert await violations(desk) == []
        await phone.locator("#open-side").click()
        await row(phone, "otters").locator("a").click()
        await phone.get_by_role("button", name="No", exact=True).click()
        await expect(asked).not_to_have_class(re.compile("asks"), timeout=PATIENCE_MS)


async def test_a_hidden_page_notifies_of_what_comes_by_itself_or_took_long(redis_url: str, client: RedisClient) -> None:
    """A reminder, a question, an answer after half a minute; whoever asks on the phone reads a quick answer there."""
    await written(client, "a", "otters")
    async with desk_and_phone(redis_url) as (desk, phone, answering):
        await answering.run_once()
        await desk.add_init_script(f"({AWAY})()")
        await desk.reload()
        await desk.locator("#notify").click()
        await expect(row(desk, "otters")).to_be_visible(timeout=PATIENCE_MS)
        await desk.evaluate(HIDE)
        await ask(phone, "quick")
        await expect(row(desk, "quick")).to_have_class("running", timeout=PATIENCE_MS)
        await answering.run_once()
        await expect(phone.locator(".card.reply")).to_have_count(1, timeout=PATIENCE_MS)  # and so it is read
        await remind(client, "a", "stretch")
        await answering.run_once()
        await notified(desk, 1)
        assert await desk.evaluate("told") == [["otters", "you said: stretch"]]
        await written(client, "b", "seals")
        await expect(row(desk, "seals")).to_have_class("running", timeout=PATIENCE_MS)
        await ask_for_approval(client)
        await notified(desk, 2)
        assert await desk.evaluate("told[1]") == ["seals", "May I run exec? Please answer yes or no."]
        await written(client, "c", "crabs")
        await expect(row(desk, "crabs")).to_have_class("running", timeout=PATIENCE_MS)
        await desk.evaluate(LATER)
        await answering.run_once()
        await notified(desk, 3)
        assert await desk.evaluate("told[2]") == ["crabs", "you said: crabs"]
