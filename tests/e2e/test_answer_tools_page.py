"""What a person does with one answer at the page: a branch that begins with it, and a rating that stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Locator, Page, WebSocketRoute, expect

from gateway.channels.web.http.auth import Principals
from shared.store.client.redis_client import RedisClient
from tests.e2e.test_chats_page import row
from tests.e2e.test_page import PATIENCE_MS, TOKEN, ask, noted, page_at, page_of_fleet
from tests.gateway.harness import gateway
from tests.helpers.axe import violations
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.shared.store.answers.test_branches import turn

pytestmark = pytest.mark.usefixtures("browser")


@asynccontextmanager
async def two_pages(redis_url: str, client: RedisClient, *, width: int = 1280) -> AsyncIterator[tuple[Page, Page]]:
    """Two devices of one person, at a chat with two answers."""
    for text in ("How do otters sleep?", "And seals?"):
        await turn(client, text)
    async with gateway(redis_url, principals=Principals({"owner": TOKEN})) as running:
        port = int(running.address.rpartition(":")[2])
        async with page_at(port, width=width) as desk, page_at(port) as other:
            for page in (desk, other):
                await page.goto(f"http://127.0.0.1:{port}/c/a")
                await expect(answers(page)).to_have_count(2, timeout=PATIENCE_MS)
            yield desk, other


def answers(page: Page) -> Locator:
    return page.locator('.card.reply[data-kind="reply"]')


def tool(card: Locator, name: str) -> Locator:
    return card.get_by_role("button", name=name)


async def test_a_branch_opens_and_goes_on_while_the_other_chat_stays(spawn: Spawn, model: ScriptedOpenAI) -> None:
    """The model sees what came along and not what was said after it; the link leads back."""
    model.script(
        Answer(text="Holding hands."), Answer(text="On the ice."), Answer(text="In kelp."), Answer(text="Alone.")
    )
    async with page_of_fleet(spawn) as page:
        await ask(page, "How do otters sleep?")
        await expect(answers(page)).to_have_count(1, timeout=PATIENCE_MS)
        await ask(page, "And seals?")
        await expect(answers(page)).to_have_count(2, timeout=PATIENCE_MS)
        await answers(page).first.hover()
        await tool(answers(page).first, "Branch from here").click()
        await expect(page.locator("#title")).to_have_text("How do otters sleep? (branch)", timeout=PATIENCE_MS)
        await expect(answers(page).locator(".body")).to_have_text(["Holding hands."], timeout=PATIENCE_MS)
        await expect(page.locator(".reply").first).to_contain_text("branch of “How do otters sleep?”")
        await ask(page, "Where?")
        await expect(answers(page).last).to_contain_text("In kelp.", timeout=PATIENCE_MS)
        await page.reload()
        await expect(answers(page)).to_have_count(2, timeout=PATIENCE_MS)
        await page.get_by_role("link", name="Open that chat").click()
        await expect(page.locator("#title")).to_have_text("How do otters sleep?")
        await expect(answers(page).last).to_contain_text("On the ice.")
        await expect(page.locator(".own .text")).to_have_text(["How do otters sleep?", "And seals?"])
        await page.go_back()
        await expect(answers(page).last).to_contain_text("In kelp.")
    asked = str(model.requests()[-1].body["messages"])
    assert "Holding hands." in asked
    assert "seals" not in asked


async def test_a_branch_is_on_all_open_pages_and_its_link_goes_with_the_other_chat(
    client: RedisClient, redis_url: str
) -> None:
    """Other devices show it in their lists, unopened; without the other chat there is no link to it."""
    async with two_pages(redis_url, client) as (desk, other):
        await tool(answers(desk).last, "Branch from here").click()
        await expect(desk.locator("#title")).to_have_text("How do otters sleep? (branch)", timeout=PATIENCE_MS)
        await expect(row(other, "(branch)")).to_be_visible(timeout=PATIENCE_MS)
        await expect(other.locator("#title")).to_have_text("How do otters sleep?")
        await expect(other.locator("#chats .unread")).to_have_count(0)
        await expect(desk.get_by_role("link", name="Open that chat")).to_be_visible()
        assert await violations(desk) == []
        origin = desk.locator('#chats li[data-chat="a"]')
        await origin.hover()
        await origin.locator(".more").click()
        await desk.get_by_role("menuitem", name="Delete").click()
        await expect(desk.get_by_role("link", name="Open that chat")).to_have_count(0)
        await expect(desk.locator("#title")).to_have_text("How do otters sleep? (branch)")
        await expect(answers(desk)).to_have_count(2)


async def test_a_page_that_lost_its_connection_asks_again_for_the_same_branch(
    client: RedisClient, redis_url: str
) -> None:
    """The gateway made it, and its answer was lost: there is one branch, and the page opens it."""
    asked: list[str] = []

    def cut_at_first(route: WebSocketRoute) -> None:
        server = route.connect_to_server()

        async def forward(frame: str | bytes) -> None:
            server.send(frame)
            if '"branch"' in str(frame):
                asked.append(str(frame))
                if len(asked) == 1:
                    await route.close()

        route.on_message(forward)

    async with two_pages(redis_url, client) as (desk, other):
        await desk.route_web_socket("**/ws", cut_at_first)
        await desk.reload()
        await tool(answers(desk).last, "Branch from here").click(timeout=PATIENCE_MS)
        await expect(desk.locator("#title")).to_have_text("How do otters sleep? (branch)", timeout=PATIENCE_MS)
        await expect(row(other, "(branch)")).to_have_count(1, timeout=PATIENCE_MS)
        await expect(other.locator("#chats li")).to_have_count(2)
    assert len(asked) == 2
    assert asked[0] == asked[1]


async def test_a_branch_that_is_being_made_is_not_asked_for_again(client: RedisClient, redis_url: str) -> None:
    """The button waits for the answer, keeps the focus, and says so; a refused one can be pressed again."""
    asked: list[str] = []
    routes: list[WebSocketRoute] = []

    def hold(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        routes.append(route)

        def forward(frame: str | bytes) -> None:
            if '"branch"' in str(frame):
                asked.append(str(frame))
            else:
                server.send(frame)

        route.on_message(forward)

    async with two_pages(redis_url, client) as (desk, _):
        await desk.route_web_socket("**/ws", hold)
        await desk.reload()
        await expect(answers(desk)).to_have_count(2, timeout=PATIENCE_MS)
        button = tool(answers(desk).last, "Branch from here")
        await button.dblclick(timeout=PATIENCE_MS)
        await expect(button).to_have_attribute("aria-disabled", "true")
        await expect(answers(desk).last.get_by_role("status")).to_have_text("Making the branch …")
        await expect(button).to_be_focused()
        assert await violations(desk) == []
        assert len(asked) == 1
        routes[-1].send('{"type":"error","code":"not_found","message":"gone","chat":"a"}')
        await expect(button).to_have_attribute("aria-disabled", "false")
        await button.press("Enter")
        await expect(button).to_have_attribute("aria-disabled", "true")
    assert len(asked) == 2


async def test_a_rating_shows_on_every_device_and_stays(client: RedisClient, redis_url: str) -> None:
    """With the keyboard, too; pressed again it is taken back, and another one takes its place."""
    async with two_pages(redis_url, client) as (desk, other):
        good, bad = tool(answers(desk).first, "Good answer"), tool(answers(desk).first, "Bad answer")
        there = tool(answers(other).first, "Good answer")
        await answers(desk).first.hover()
        await good.click()
        for one in (good, there):
            await expect(one).to_have_attribute("aria-pressed", "true", timeout=PATIENCE_MS)
        await expect(tool(answers(desk).last, "Good answer")).to_have_attribute("aria-pressed", "false")
        await expect(row(other, "otters")).not_to_have_class("unread")
        await bad.focus()
        await desk.keyboard.press("Enter")
        await expect(bad).to_have_attribute("aria-pressed", "true", timeout=PATIENCE_MS)
        await expect(there).to_have_attribute("aria-pressed", "false", timeout=PATIENCE_MS)
        await other.reload()
        await expect(tool(answers(other).first, "Bad answer")).to_have_attribute(
            "aria-pressed", "true", timeout=PATIENCE_MS
        )
        assert await violations(desk) == []
        await desk.keyboard.press("Space")
        for page in (desk, other):
            await expect(page.locator('[aria-pressed="true"]')).to_have_count(0, timeout=PATIENCE_MS)
        await desk.reload()
        await expect(answers(desk)).to_have_count(2, timeout=PATIENCE_MS)
        await expect(desk.locator('[aria-pressed="true"]')).to_have_count(0)


async def test_a_refused_branch_says_why(client: RedisClient, redis_url: str) -> None:
    """The page stays where it is, and the answer can be tried again."""
    async with two_pages(redis_url, client) as (desk, _):
        # What the model knew is gone, as after the time for which it is kept.
        await client.command("DEL", "shoal:{0ax}:history:web:owner/a")
        await tool(answers(desk).last, "Branch from here").click()
        await noted(desk, "I do not know this part of the conversation any more")
        await expect(desk.locator("#title")).to_have_text("How do otters sleep?")
        await expect(desk.locator("#chats li")).to_have_count(1)


async def test_only_answers_have_these_tools(client: RedisClient, redis_url: str) -> None:
    """Not commands; on a phone they fit in the row, large enough for a finger."""
    async with two_pages(redis_url, client, width=390) as (phone, _):
        await ask(phone, "/help")
        await expect(phone.locator('.reply[data-kind="command"]')).to_be_visible(timeout=PATIENCE_MS)
        assert await phone.locator('.reply[data-kind="command"] .tool').count() == 0
        boxes = [await one.bounding_box() for one in await answers(phone).last.locator(".tool").all()]
        assert len(boxes) == 3
        assert all(box and box["width"] >= 24 and box["height"] >= 24 for box in boxes)
        assert len({box["y"] for box in boxes if box}) == 1
        assert await phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await violations(phone) == []
