"""The work log under an answer: real Chromium, gateway and worker; after a reload the steps come from the store."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from tests.e2e.test_page import PATIENCE_MS, ask, page_at, sessions
from tests.e2e.test_page_media import fleet
from tests.helpers.axe import violations
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI

pytestmark = pytest.mark.usefixtures("browser")


SUMMARY_OF = """async (work) => {
  const { workLog } = await import("/static/chat/work-log.js");
  return workLog({ ms: 1000, ...work }).querySelector("summary").textContent;
}"""


async def test_a_window_that_is_nearly_full_is_named_before_the_log_is_opened(
    client: RedisClient, spawn: Spawn, tmp_path: Path
) -> None:
    """From 70 % on."""
    async with page_at(fleet(spawn, tmp_path)) as page:
        for tokens, text in ((69_999, "1.0 s"), (70_000, "1.0 s · context 70 % full")):
            assert await page.evaluate(SUMMARY_OF, {"context": tokens, "window": 100_000}) == text
        assert await page.evaluate(SUMMARY_OF, {"context": tokens}) == "1.0 s"


async def test_thoughts_stand_folded_in_the_log(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Of a turn without tools, too, and after a reload; `/forget` erases them."""
    model.script(Answer(text="Four.", reasoning="Two and two.", times=0))
    async with page_at(fleet(spawn, tmp_path)) as page:
        await ask(page, "sum")
        log = page.locator(".reply > details")
        await expect(log).to_have_count(1, timeout=PATIENCE_MS)
        await page.reload()
        await log.locator("> summary").click(timeout=PATIENCE_MS)
        thoughts = log.locator(".thoughts")
        await expect(thoughts).to_be_hidden()
        await log.locator(".steps summary").click()
        await expect(thoughts).to_be_visible()
        await expect(thoughts).to_have_text("Two and two.")
        assert await violations(page) == []
        [session] = await sessions(client)
        assert b"Two and two." in b"".join(await client.command("LRANGE", keys.history(session), 0, -1))
        await ask(page, "/forget")
        await expect(page.locator(".reply").last).to_contain_text("I have forgotten", timeout=PATIENCE_MS)
        assert not await client.command("EXISTS", keys.history(session))


async def test_tools_model_and_tokens_stand_under_an_answer_after_a_reload(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI, tmp_path: Path
) -> None:
    """Folded; opened, each call has its arguments and its result. What is not kept any more says so."""
    write = Call("write_file", json.dumps({"path": "plan.md", "content": "Buy milk."}))
    model.script(
        Answer(match="plan", text="I write it down.", calls=[write]),
        Answer(match="plan", calls=[Call("read_file", json.dumps({"path": "none.md"}))]),
        Answer(text="Done.", times=0),
    )
    async with page_at(fleet(spawn, tmp_path, MODEL__CONTEXT_TOKENS="1000000")) as page:
        await ask(page, "plan")
        log = page.locator(".reply details")
        await expect(log.locator("summary")).to_contain_text("2 tools", timeout=PATIENCE_MS)
        await page.reload()
        summary = log.locator("summary")
        await expect(summary).to_contain_text("2 tools", timeout=PATIENCE_MS)
        await expect(summary).to_contain_text(" s")
        await summary.click()
        steps = log.locator(".steps > li")
        await expect(steps).to_have_count(3)
        await expect(log).to_contain_text("Model ")
        await expect(log).to_contain_text("tokens")
        await expect(log).to_contain_text(re.compile(r"context \d % full: [\d,]+ of 1,000,000 tokens"))
        await expect(summary).not_to_contain_text("context")
        await expect(steps.nth(0)).to_have_text("I write it down.")
        await expect(steps.nth(1)).to_contain_text('"path": "plan.md"')
        await expect(steps.nth(2)).to_contain_text("read_file failed")
        assert await violations(page) == []
        # A turn without tools has no steps to ask for.
        await ask(page, "hello")
        await expect(page.locator(".reply")).to_have_count(2, timeout=PATIENCE_MS)
        await expect(page.locator(".reply").last.locator("summary")).not_to_contain_text("tool")
        [session] = await sessions(client)
        await client.command("DEL", keys.history(session))
        await page.reload()
        await summary.first.click(timeout=PATIENCE_MS)
        await expect(log.first).to_contain_text("not kept any more")
        assert await violations(page) == []
