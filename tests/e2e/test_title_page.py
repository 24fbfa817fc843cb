"""Titles of chats on open pages."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.e2e.test_chats_page import choose, row
from tests.e2e.test_page import PATIENCE_MS, ask, page_at, start_gateway
from tests.gateway.harness import free_port
from tests.helpers.fleet import warm
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI

pytestmark = pytest.mark.usefixtures("browser")


async def test_a_title_shows_on_every_open_page_at_once(spawn: Spawn, model: ScriptedOpenAI) -> None:
    """In the list and at the head; `/forget` takes it on both, and the next answer brings another."""
    model.script(
        Answer(match=r"\[chat \w+\](?s:.)*seals", text="<b>Seals</b>"),
        Answer(match=r"\[chat \w+\]", text='"Sleep of otters"'),
    )
    port = free_port()
    start_gateway(spawn, port)
    await warm(spawn("worker", AGENT__TITLES="true", MODEL__CLIENT="direct"))
    async with page_at(port) as desk, page_at(port) as other:
        await ask(desk, "How do otters sleep?")
        for page in (desk, other):
            await expect(row(page, "Sleep of otters")).to_be_visible(timeout=PATIENCE_MS)
            await expect(row(page, "How do otters sleep?")).to_have_count(0)
        await expect(desk.locator("#title")).to_have_text("Sleep of otters")
        await expect(desk).to_have_title(re.compile("Sleep of otters"))
        await ask(desk, "/forget")
        for page in (desk, other):
            await expect(row(page, "Sleep of otters")).to_have_count(0, timeout=PATIENCE_MS)
        await expect(desk.locator("#title")).to_have_text("New chat")
        await ask(desk, "And seals?")
        for page in (desk, other):
            await expect(row(page, "<b>Seals</b>")).to_be_visible(timeout=PATIENCE_MS)
        await choose(desk, "<b>Seals</b>", "Rename")
        await desk.keyboard.type("Mine")
        await desk.keyboard.press("Enter")
        await expect(row(other, "Mine")).to_be_visible(timeout=PATIENCE_MS)
