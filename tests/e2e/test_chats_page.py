"""The list of chats at the page: rename, pin, delete, groups by day, an address for each chat."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Locator, Page, expect

from gateway.channels.web.http.auth import Principals
from shared.messages.outbound import UserLine
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.e2e.test_page import PATIENCE_MS, TOKEN, ask, page_at
from tests.gateway.harness import gateway, session_of
from tests.helpers.axe import violations
from tests.helpers.build import message

pytestmark = pytest.mark.usefixtures("browser", "time_to_undo")

DAY_MS = 86_400_000


@pytest.fixture
def time_to_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute to take a deletion back: ten seconds are short for a page on a machine that stalls."""
    monkeypatch.setattr("gateway.channels.web.socket.chat_keeper.UNDO_MS", 60_000)


@asynccontextmanager
async def chats_page(
    redis_url: str, *, width: int = 1280, height: int = 800
) -> AsyncIterator[tuple[Page, int, RedisClient]]:
    """The page on a gateway of this process; nobody answers."""
    async with gateway(redis_url, principals=Principals({"owner": TOKEN})) as running:
        port = int(running.address.rpartition(":")[2])
        async with page_at(port, width=width, height=height) as page:
            yield page, port, running.client


async def written(client: RedisClient, chat: str, text: str, days_ago: float = 0) -> None:
    """A chat whose person wrote a message some days ago."""
    at = int(float((await client.command("TIME"))[0])) * 1000 - int(days_ago * DAY_MS)
    sent = message(text, chat=f"owner/{chat}")
    await Inbox(client).ingest(sent, log_line=UserLine(id=sent.id, text=text, at=at), principal="owner")
    await client.command("ZADD", keys.chats("web", "owner"), at, f"owner/{chat}")
    await client.command("HSET", keys.session(session_of(chat)), "updated", at)


def row(page: Page, title: str) -> Locator:
    return page.locator("#chats li[data-chat]", has_text=title)


async def choose(page: Page, title: str, action: str) -> None:
    """Choose an action of the menu of a chat, with the mouse."""
    await row(page, title).hover()
    await row(page, title).get_by_role("button", name=f"Actions for {title}").click()
    await page.get_by_role("menuitem", name=action).click()


async def test_chats_are_grouped_by_day_and_the_page_keeps_to_axe(redis_url: str, client: RedisClient) -> None:
    """Pinned ones first; the groups have headings, and menu, field and note are accessible."""
    for days, title in ((0, "otters"), (1, "seals"), (3, "crabs"), (20, "whales"), (100, "squids")):
        await written(client, title, title, days)
    async with chats_page(redis_url) as (page, _, _):
        heads = page.locator("#chats h2")
        await expect(heads).to_have_count(5, timeout=PATIENCE_MS)
        assert (await heads.all_inner_texts())[:4] == ["Today", "Yesterday", "Previous 7 days", "Previous 30 days"]
        await choose(page, "crabs", "Pin")
        await expect(heads.first).to_have_text("Pinned")
        await expect(page.locator("#chats section").first.locator("li")).to_contain_text(["crabs"])
        await expect(heads).to_have_count(5)
        assert await violations(page) == []
        await row(page, "crabs").hover()
        await row(page, "crabs").locator(".more").click()
        await expect(page.get_by_role("menuitem", name="Unpin")).to_be_visible()
        assert await violations(page) == []
        await page.get_by_role("menuitem", name="Rename").click()
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await choose(page, "squids", "Delete")
        await expect(page.locator(".toast")).to_be_visible()
        assert await violations(page) == []
        await page.emulate_media(color_scheme="dark")
        assert await violations(page) == []


async def test_a_chat_is_renamed_with_the_keyboard_alone(redis_url: str, client: RedisClient) -> None:
    """Enter keeps the title, Escape does not; another device and a reload show it."""
    await written(client, "a", "otters")
    async with chats_page(redis_url) as (page, port, _), page_at(port) as device:
        await row(page, "otters").locator("a").focus()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
        await page.keyboard.press("ArrowUp")
        await expect(page.get_by_role("menuitem", name="Delete")).to_be_focused()
        await page.keyboard.press("Home")
        await page.keyboard.press("Enter")
        field = page.get_by_role("textbox", name="Title of the chat")
        await field.fill("Sea otters")
        await page.keyboard.press("Enter")
        await expect(row(page, "Sea otters")).to_be_visible()
        await expect(row(page, "Sea otters").locator("a")).to_be_focused()
        await choose(page, "Sea otters", "Rename")
        await field.fill("nonsense")
        await page.keyboard.press("Escape")
        await expect(row(page, "Sea otters")).to_be_visible()
        await page.reload()
        await expect(row(page, "Sea otters")).to_be_visible(timeout=PATIENCE_MS)
        await device.reload()
        await expect(row(device, "Sea otters")).to_be_visible(timeout=PATIENCE_MS)


async def test_a_deletion_is_undone_while_its_note_stands(
    redis_url: str, client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves list and screen at once, on other devices with their next look."""
    await written(client, "a", "otters")
    await written(client, "b", "seals")
    async with chats_page(redis_url) as (page, port, _), page_at(port) as device:
        await row(page, "otters").locator("a").click()
        await expect(page.locator(".card.own")).to_have_text(re.compile("otters"))
        await choose(page, "otters", "Delete")
        await expect(row(page, "otters")).to_have_count(0)
        await expect(page.locator(".card")).to_have_count(0)
        await expect(page).to_have_url(re.compile(r"/$"))
        await page.get_by_role("button", name="Undo").click()
        await expect(row(page, "otters")).to_be_visible()
        monkeypatch.setattr("gateway.channels.web.socket.chat_keeper.UNDO_MS", 1_000)
        await choose(page, "otters", "Delete")
        await expect(row(page, "otters")).to_have_count(0)
        await expect(row(device, "seals")).to_be_visible(timeout=PATIENCE_MS)
        await device.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await expect(row(device, "otters")).to_have_count(0)
        await expect(page.locator(".toast")).to_have_count(0)
    assert await client.command("ZCARD", keys.EPHEMERAL) == 1


async def test_every_chat_has_an_address(redis_url: str, client: RedisClient) -> None:
    """A new one from its first message on. It opens in a tab of its own, and "back" goes to the chat before."""
    await written(client, "a", "otters")
    async with chats_page(redis_url) as (page, port, _):
        await row(page, "otters").locator("a").click()
        await expect(page).to_have_url(f"http://127.0.0.1:{port}/c/a")
        await page.locator("#new-chat").click()
        await expect(page).to_have_url(f"http://127.0.0.1:{port}/")
        await ask(page, "seals")
        await expect(page).to_have_url(re.compile(r"/c/[\w-]{12}$"))
        await page.go_back()
        await expect(page).to_have_url(f"http://127.0.0.1:{port}/c/a")
        await expect(page.locator(".card.own")).to_have_text(re.compile("otters"))
        async with page.context.expect_page() as opened:
            await row(page, "seals").locator("a").click(modifiers=["Control"])
        tab = await opened.value
        await expect(tab.locator(".card.own")).to_have_text(re.compile("seals"), timeout=PATIENCE_MS)
        await expect(page.locator(".card.own")).to_have_text(re.compile("otters"))
        await tab.goto(f"http://127.0.0.1:{port}/c/gone")
        await expect(tab.locator("#empty h2")).to_have_text("There is nothing in this chat", timeout=PATIENCE_MS)


@pytest.mark.parametrize("width", [320, 390])
async def test_on_a_phone_the_actions_of_a_chat_fit(redis_url: str, client: RedisClient, width: int) -> None:
    """The menu lies within the window, and a chat can be deleted from the drawer."""
    await written(client, "a", "otters and their long, long names in every language of the sea")
    async with chats_page(redis_url, width=width, height=640) as (page, _, _):
        await page.locator("#open-side").click()
        await page.locator("#chats .more").click()
        box = await page.locator(".menu").bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= width - box["width"]
        assert await violations(page) == []
        await page.get_by_role("menuitem", name="Delete").click()
        await expect(page.locator("#chats li")).to_have_count(0)


async def test_ctrl_k_finds_a_chat_by_its_text(redis_url: str, client: RedisClient) -> None:
    """With the keyboard alone; Escape closes the search, and axe finds nothing wrong in it."""
    await written(client, "a", "Where do otters sleep?")
    await written(client, "b", "Seals", days_ago=2)
    async with chats_page(redis_url) as (page, port, _):
        await expect(row(page, "Seals")).to_be_visible(timeout=PATIENCE_MS)
        await page.keyboard.press("Control+k")
        field = page.get_by_role("searchbox", name="Search titles and messages")
        await expect(field).to_be_focused()
        await field.fill("OTTERS")
        await expect(page.locator("#search li")).to_have_count(1)
        await expect(page.locator("#search p")).to_have_text("1 chat")
        assert await violations(page) == []
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"http://127.0.0.1:{port}/c/a")
        await expect(page.locator("#search")).to_be_hidden()
        await page.keyboard.press("Control+k")
        await page.keyboard.press("Escape")
        await expect(page.locator("#search")).to_be_hidden()


@pytest.mark.parametrize(("name", "ending", "begins"), [("Markdown", "md", "# Seals"), ("JSON", "json", "{")])
async def test_a_chat_is_saved_as_a_file(
    redis_url: str, client: RedisClient, name: str, ending: str, begins: str
) -> None:
    """Named after the chat."""
    await written(client, "a", "Seals")
    async with chats_page(redis_url) as (page, _, _):
        await row(page, "Seals").hover(timeout=PATIENCE_MS)
        async with page.expect_download() as saving:
            await choose(page, "Seals", f"Save as {name}")
        download = await saving.value
        assert download.suggested_filename == f"Seals.{ending}"
        assert (await download.path()).read_text().startswith(begins)
