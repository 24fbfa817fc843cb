"""The model of a chat is chosen at the head of the page, among the presets of the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.e2e.test_page import PATIENCE_MS, TOKEN, ask, page_at, start_gateway
from tests.gateway.harness import free_port
from tests.helpers.axe import violations
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI

pytestmark = pytest.mark.usefixtures("browser")

PRESETS = '[model.presets.quick]\nname = "openai/quick"\n'


async def test_the_model_of_a_chat_is_chosen_and_shown(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """For this chat alone, also after a reload; the last answer can then be had again from the other model."""
    model.script(Answer(text="One."), Answer(text="Two."))
    port = free_port()
    (tmp_path / "shoal.toml").write_text(PRESETS)
    env = {"SHOAL_CONFIG": str(tmp_path / "shoal.toml")}
    spawn("gateway", env=env, WEB__PORT=str(port), WEB__TOKEN=TOKEN)
    spawn("worker", env=env)
    async with page_at(port) as page:
        picker = page.get_by_label("Model of this chat")
        replies = page.locator('.card.reply[data-state="done"]:not([data-kind="command"])')
        await expect(picker).to_have_value("")
        await ask(page, "count")
        await expect(replies).to_have_count(1, timeout=PATIENCE_MS)
        await picker.select_option("quick")
        await expect(page.locator('.card.reply[data-kind="command"]')).to_contain_text("quick", timeout=PATIENCE_MS)
        await page.get_by_role("button", name="Answer again").click()
        await expect(replies).to_have_count(2, timeout=PATIENCE_MS)
        assert await violations(page) == []
        await page.reload()
        await expect(picker).to_have_value("quick", timeout=PATIENCE_MS)
        await page.get_by_role("button", name="New chat").first.click()
        await expect(picker).to_have_value("")
    [key] = await client.command("KEYS", keys.session("web:owner/*"))
    assert await client.command("HGET", key, "preset") == b"quick"
    assert [request.body["model"] for request in model.requests()][-1] == "quick"


async def test_without_presets_there_is_nothing_to_choose(client: RedisClient, spawn: Spawn) -> None:
    """The head of the page shows the title alone."""
    port = free_port()
    start_gateway(spawn, port)
    async with page_at(port) as page:
        await expect(page.get_by_label("Model of this chat")).to_be_hidden()
