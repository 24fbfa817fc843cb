"""Another key for the model, written into the settings of the page: `shoal up` starts all again with it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.e2e.test_page import PATIENCE_MS, ask, page_at
from tests.e2e.test_settings_page import open_settings
from tests.e2e.test_up import READY
from tests.gateway.harness import free_port
from tests.helpers.axe import violations
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.processes import ROOT, Process
from tests.helpers.wait import eventually

pytestmark = pytest.mark.usefixtures("browser")

OLD, NEW = "sk-old-key-that-nobody-may-read", "sk-new-key-that-nobody-may-read"


async def test_the_owner_replaces_the_key(tmp_path: Path, model: ScriptedOpenAI) -> None:
    """One that is refused changes nothing; the next one is used by the next answer, and is in no log."""
    model.script(Answer(match="Say OK", status=401), Answer(match="Say OK", text="OK"), Answer(text="Here I am."))
    folder = tmp_path / "folder"
    (folder / "secrets").mkdir(parents=True)
    key = folder / "secrets" / "model.key"
    key.write_text(f"{OLD}\n")
    lines = ["[model]", 'name = "custom/m"', f'api_base = "{model.base_url}"', 'api_key_file = "secrets/model.key"']
    (folder / "shoal.toml").write_text("\n".join([*lines, "[agent]", "titles = false"]))
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
            await open_settings(page)
            panel = page.get_by_role("dialog", name="Settings").get_by_role("tabpanel")
            await page.get_by_role("tab", name="Models").click()
            await panel.get_by_text("Replace the key").click()
            field = panel.get_by_label("New key for custom/m")
            await field.fill(NEW)
            await field.press("Enter")
            await expect(panel).to_contain_text("Nothing is written", timeout=PATIENCE_MS)
            assert await violations(page) == []
            assert key.read_text() == f"{OLD}\n"
            await field.press("Enter")
            await expect(panel).to_contain_text("It answers. Shoal starts again", timeout=PATIENCE_MS)
            await expect(field).to_have_value("")
            assert key.read_text() == f"{NEW}\n"
            await eventually(lambda: "key was replaced" in shoal.log)
            await page.keyboard.press("Escape")
            await ask(page, "hello")
            await expect(page.locator(".reply")).to_contain_text("Here I am.", timeout=60_000)
        assert model.requests()[-1].headers["authorization"] == f"Bearer {NEW}"
        os.kill(shoal.pid, signal.SIGINT)
        assert await asyncio.to_thread(shoal.wait, 30) == 0
        assert NEW not in shoal.log
        assert OLD not in shoal.log
    finally:
        if shoal.alive:
            shoal.kill_group()
