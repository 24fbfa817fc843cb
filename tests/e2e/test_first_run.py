"""The first run: the page's owner chooses a model instead of the demo, and all starts again with it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import expect
from websockets import WebSocketException

from tests.e2e.test_page import PATIENCE_MS, TOKEN, page_at
from tests.e2e.test_up import READY
from tests.gateway.harness import client, free_port
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.processes import ROOT, Process
from tests.helpers.wait import eventually

pytestmark = pytest.mark.usefixtures("browser")

KEY = "sk-a-key-that-nobody-may-read"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


async def choose(address: str, token: str, **choice: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", "Origin": f"http://{address.rstrip('/')}"}
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(f"http://{address}/first-run", json=choice, headers=headers)


async def test_the_owner_chooses_a_model_and_it_answers(folder: Path, model: ScriptedOpenAI) -> None:
    """A model that does not answer is refused with its reason, and nothing is written. The key is in no log."""
    model.script(Answer(match="Say OK", text="OK"), Answer(match="hello", text="I am real."))
    env = {
        "SHOAL_DATA__DIR": str(folder / "data"),
        "SHOAL_WEB__PORT": str(free_port()),
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    shoal = Process("console", "up", env=env, log=folder / "up.log", root=folder)
    try:
        [(address, token)] = await eventually(lambda: READY.findall(shoal.log), within_s=60)
        wanted = {"provider": "own", "model": "m", "key": KEY}
        refused = await choose(address, token, **wanted, api_base="http://127.0.0.1:9/v1")
        assert (refused.status_code, "no connection" in refused.json()["detail"]) == (422, True)
        assert not (folder / "shoal.toml").exists()
        assert (await choose(address, "not the token", **wanted)).status_code == 401
        assert (await choose(address, token, **wanted, api_base=model.base_url)).status_code == 200
        assert stat.S_IMODE((folder / "secrets/model.key").stat().st_mode) == 0o600
        await eventually(lambda: shoal.log.count("worker") and "settings were written" in shoal.log)

        async def answered() -> bool:
            async with client(address, token) as person:
                await person.say("first", "hello")
                return bool((await person.next("reply", chat="first"))["text"] == "I am real.")

        async def real() -> bool:
            try:
                return await answered()
            except (OSError, AssertionError, WebSocketException):
                return False  # it starts again

        await eventually(real, within_s=60)
        assert (await choose(address, token, **wanted, api_base=model.base_url)).status_code == 404
        os.kill(shoal.pid, signal.SIGINT)
        assert await asyncio.to_thread(shoal.wait, 30) == 0
        assert KEY not in shoal.log
    finally:
        if shoal.alive:
            shoal.kill_group()


async def test_the_owner_kills_a_worker_and_the_answer_goes_on(folder: Path) -> None:
    """The button of the demo's page: the text stays and grows, and a line says who took over, after a reload too."""
    env = {
        "SHOAL_DATA__DIR": str(folder / "data"),
        "SHOAL_WEB__PORT": str(free_port()),
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    shoal = Process("console", "up", env=env, log=folder / "up.log", root=folder)
    try:
        [(address, token)] = await eventually(lambda: READY.findall(shoal.log), within_s=60)
        async with page_at(int(address.rpartition(":")[2]), token=token) as page:
            kill = page.get_by_role("button", name="Kill the worker")
            await expect(kill).to_be_hidden()
            await page.get_by_role("button", name="Tell me a long story").click()
            await expect(page.locator(".reply .body")).to_contain_text("Part 1.", timeout=PATIENCE_MS)
            await kill.click()
            line = page.locator(".reply .takeovers p")
            await expect(line).to_have_text(
                re.compile(r"Worker \w{4} died; \w{4} went on after \d+ m?s"), timeout=PATIENCE_MS
            )
            await expect(page.locator(".reply[data-state=done]")).to_contain_text("And that is the end", timeout=60_000)
            assert (await page.locator(".reply .body").inner_text()).count("Part 1.") == 1
            await expect(kill).to_be_hidden()
            await page.reload()
            await expect(line).to_have_count(1, timeout=PATIENCE_MS)
        os.kill(shoal.pid, signal.SIGINT)
        assert await asyncio.to_thread(shoal.wait, 30) == 0
    finally:
        if shoal.alive:
            shoal.kill_group()


async def test_the_card_says_why_a_model_is_refused_and_can_wait(spawn: Spawn) -> None:
    """By keyboard and on a telephone; once it was put off, it stays away."""
    port = free_port()
    demo = {"SHOAL_MODEL__NAME": "demo", "SHOAL_MODEL__API_BASE": "", "SHOAL_MODEL__API_KEY": ""}
    spawn("gateway", WEB__PORT=str(port), WEB__TOKEN=TOKEN, WEB__FIRST_RUN="true", env=demo)
    async with page_at(port, width=390) as page:
        card = page.get_by_role("form", name="Choose a model")
        await expect(page.locator("#prompts button").first).to_be_in_viewport(timeout=PATIENCE_MS)
        await page.get_by_text("Use a real model").click()
        await expect(card).to_be_visible(timeout=PATIENCE_MS)
        await card.get_by_label("Provider").select_option("own")
        await card.get_by_label("Model", exact=True).fill("m")
        await card.get_by_label("Address").fill("http://127.0.0.1:9/v1")
        await card.get_by_role("button", name="Test and use it").press("Enter")
        await expect(card.get_by_role("status")).to_contain_text("no connection", timeout=PATIENCE_MS)
        await expect(card.get_by_role("button", name="Test and use it")).to_be_focused()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await card.get_by_role("button", name="Not now").click()
        await expect(card).to_have_count(0)
        await page.reload()
        await expect(page.locator("#empty h2")).to_be_visible(timeout=PATIENCE_MS)
        await expect(card).to_have_count(0)
