"""A chat of two thousand lines at the page: scrolled to the very first one."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from shared.messages.codec import encode
from shared.messages.outbound import OutboundMessage, UserLine
from shared.settings import WebSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.log_pages import LogPages
from tests.e2e.test_chats_page import chats_page
from tests.e2e.test_page import PATIENCE_MS
from tests.gateway.harness import session_of
from tests.helpers.axe import violations

pytestmark = pytest.mark.usefixtures("browser")

LINES = 2000
SESSION = session_of("long")
ANSWER = "Answer {n}: **otters** hold `hands`.\n\n- one\n- two\n\n```python\nprint({n})\n```\n"
UP = """() => new Promise((done) => {
  const cards = document.querySelector("#transcript").children;
  const before = cards.length, oldest = cards[0];
  document.querySelector("#scroller").scrollTop = 0;
  const place = () => oldest.getBoundingClientRect().top;
  const was = place(), end = () => done(Math.abs(place() - was));
  const look = () => requestAnimationFrame(cards.length > before ? end : look);
  look();
})"""
"""Goes to the top. Returns, when older lines are there, by how much the reader's place moved."""


async def long_chat(client: RedisClient, first: int = 1) -> None:
    """Questions and answers, most of them in pages."""
    for start in range(first, LINES, 500):
        rows: list[tuple[str | int | bytes, ...]] = []
        for seq in range(start, min(start + 500, LINES + 1)):
            n = (seq + 1) // 2
            asked = UserLine(id=f"m{n}", text=f"Question {n}", at=1_700_000_000_000 + seq)
            answer = OutboundMessage(content=ANSWER.format(n=n), turn=n, in_reply_to=(f"m{n}",), at=asked.at)
            rows.append(("XADD", keys.outbox(SESSION), f"{seq}-0", "m", encode(asked if seq % 2 else answer)))
        await client.pipeline(rows)
    await client.command("HSET", keys.session(SESSION), "log", LINES, "n", LINES // 2, "title", "A long chat")
    await client.command("ZADD", keys.chats("web", "owner"), 1_700_000_000_000, "owner/long")
    web = WebSettings()
    await LogPages(client).page_out(SESSION, cap_bytes=web.log_bytes, keep_ms=86_400_000)


async def test_a_long_chat_is_scrolled_to_its_first_message(redis_url: str, client: RedisClient) -> None:
    """Every line is there once, and the reader's place stays."""
    await long_chat(client)
    assert await client.command("XLEN", keys.outbox(SESSION)) == 500
    async with chats_page(redis_url) as (page, port, _):
        await page.goto(f"http://127.0.0.1:{port}/c/long")
        await expect(page.locator(".card")).to_have_count(50, timeout=PATIENCE_MS)
        places: list[float] = []
        while not await page.locator('.card[data-seq="1"]').count():
            places.append(await page.evaluate(UP))
        assert await page.locator(".card").count() == LINES
        # With the last page the line that older ones are being loaded goes.
        assert max(places[:-1]) < 2, "the reader's place moved"
        await expect(page.locator("#older")).to_be_hidden()
        await expect(page.locator("#gone")).to_be_hidden()


async def test_the_page_says_where_a_chat_ends(redis_url: str, client: RedisClient) -> None:
    """A chat whose first lines are not kept any more does not look as if it began there."""
    await long_chat(client, first=LINES - 79)
    async with chats_page(redis_url) as (page, port, _):
        await page.goto(f"http://127.0.0.1:{port}/c/long")
        await expect(page.locator(".card")).to_have_count(50, timeout=PATIENCE_MS)
        await expect(page.locator("#gone")).to_be_hidden()
        await page.evaluate(UP)
        await expect(page.locator("#gone")).to_have_text("Messages before these are not kept any more.")
        assert await violations(page) == []
