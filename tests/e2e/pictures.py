"""The pictures of README and docs, taken of a running `shoal up` in a real Chromium: `make pictures`.

Look at them before you commit them. `test_pictures.py` takes them all anew, so that no change of the page breaks this.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.async_api import Locator, Page, expect

from tests.e2e.test_page import PATIENCE_MS, page_at
from tests.e2e.test_up import READY
from tests.gateway.harness import free_port
from tests.helpers.processes import ROOT, Process
from tests.helpers.wait import eventually

FOLDER: Final = ROOT / "docs" / "pictures"
KILL: Final = "kill.gif"
FRAME_MS: Final = 125
_WIDTH, _HEIGHT = 760, 560
_REST: Final = (_WIDTH * 0.6, _HEIGHT * 0.4)
_COLOURS: Final = 48
_LAST_MS: Final = 4000
_ASKED: Final = "Tell me a long story"
# A headless browser draws no pointer; this one follows the mouse.
_POINTER: Final = """() => {
  const svg = '<svg width="22" height="22" viewBox="0 0 22 22"><path d="M4 2v16l4-4 3 6 3-1.5-3-6h6z" ' +
    'fill="#111" stroke="#fff" stroke-width="1.5"/></svg>';
  const pointer = document.body.appendChild(document.createElement("div"));
  pointer.innerHTML = svg;
  pointer.style.cssText = "position:fixed;left:60%;top:40%;z-index:99;pointer-events:none";
  addEventListener("mousemove", ({ clientX, clientY }) => {
    Object.assign(pointer.style, { left: `${clientX - 4}px`, top: `${clientY - 2}px` });
  });
}"""


async def take(folder: Path) -> None:
    """Write every picture into a folder."""
    async with _shoal() as (port, token):
        async with page_at(port, width=_WIDTH, height=_HEIGHT, token=token) as page:
            await _kill(page, folder / KILL)
        async with page_at(port, width=1000, height=680, token=token) as page:
            await _new_chat(page)
            await page.get_by_text("Use a real model").click()
            await page.set_viewport_size({"width": 1000, "height": 800})
            await page.locator("#new-chat").focus()
            await page.wait_for_timeout(500)
            _write(await page.screenshot(), folder / "first-run.png")
            await _ask(page, "What time is it in Tokyo?")
            await _new_chat(page)
            await _ask(page, "Remind me every weekday at 9 to plan the day")
            await _new_chat(page)
            await _ask(page, "Write some code")
            await page.set_viewport_size({"width": 1000, "height": 860})
            _write(await page.screenshot(), folder / "page.png")
            await page.set_viewport_size({"width": 1000, "height": 560})
            await _new_chat(page)
            await _ask(page, "Write a packing list")
            await _say(page, "Change the list")
            await expect(page.locator(".card.approval")).to_be_visible(timeout=PATIENCE_MS)
            await page.wait_for_timeout(500)  # the card comes with an animation
            _write(await page.screenshot(), folder / "approval.png")


async def _kill(page: Page, file: Path) -> None:
    """A film: the question, a text that grows, the worker that is killed, and the text that goes on."""
    frames, stop = list[bytes](), asyncio.Event()
    await _new_chat(page)
    await page.mouse.move(*_REST)
    await page.evaluate(_POINTER)
    filming = asyncio.create_task(_film(page, frames, stop))
    await page.wait_for_timeout(700)
    await _press(page, page.locator("#prompts button").first)
    await expect(page.locator(".reply .body")).to_contain_text("Part 1.", timeout=PATIENCE_MS)
    await page.mouse.move(*_REST)
    await page.wait_for_timeout(2500)
    await _press(page, page.get_by_role("button", name="Kill the worker"))
    await expect(page.locator(".takeovers p")).to_have_text(re.compile("went on after"), timeout=PATIENCE_MS)
    await page.wait_for_timeout(4000)
    stop.set()
    await filming
    await page.get_by_role("button", name="Stop the answer").click()
    # One palette for all: then a frame holds only what changed since the one before.
    both = Image.new("RGB", (2 * _WIDTH, _HEIGHT))
    both.paste(_picture(frames[0]), (0, 0))
    both.paste(_picture(frames[-1]), (_WIDTH, 0))
    palette = both.quantize(_COLOURS, dither=Image.Dither.NONE)
    first, *others = [_picture(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [FRAME_MS] * len(others) + [_LAST_MS]
    first.save(file, save_all=True, append_images=others, duration=times, loop=0, optimize=True)


async def _film(page: Page, frames: list[bytes], stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        begun = loop.time()
        frames.append(await page.screenshot())
        await asyncio.sleep(max(0.0, FRAME_MS / 1000 - (loop.time() - begun)))


async def _press(page: Page, button: Locator) -> None:
    """Move the pointer to a button, slowly enough to be followed, and press it."""
    box = await button.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for step in range(1, 9):
        await page.mouse.move(*[start + (end - start) * step / 8 for start, end in zip(_REST, (x, y), strict=True)])
        await page.wait_for_timeout(60)
    await page.mouse.click(x, y)


async def _new_chat(page: Page) -> None:
    await page.locator("#new-chat:visible, #new-chat-top:visible").first.click()
    await expect(page.locator("#empty")).to_be_visible(timeout=PATIENCE_MS)
    await expect(page.locator("#prompts button").first).to_have_text(_ASKED)


async def _say(page: Page, text: str) -> None:
    await page.locator("#composer textarea").fill(text)
    await page.locator("#composer textarea").press("Enter")


async def _ask(page: Page, text: str) -> None:
    done = page.locator(".reply[data-state=done]")
    before = await done.count()
    await _say(page, text)
    await expect(done).to_have_count(before + 1, timeout=30_000)


@asynccontextmanager
async def _shoal() -> AsyncIterator[tuple[int, str]]:
    """A `shoal up` of its own, with the demo model: port and token of its page."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        env = {
            "SHOAL_DATA__DIR": str(folder / "data"),
            "SHOAL_WEB__PORT": str(port),
            "HOME": name,
            "PYTHONPATH": str(ROOT),
        }
        shoal = Process("console", "up", env=env, log=folder / "up.log", root=folder)
        try:
            [(_, token)] = await eventually(lambda: READY.findall(shoal.log), within_s=30)
            yield port, token
            os.kill(shoal.pid, signal.SIGINT)
            await asyncio.to_thread(shoal.wait, 30)
        finally:
            if shoal.alive:
                shoal.kill_group()


def _picture(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def _write(png: bytes, file: Path) -> None:
    _picture(png).quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(target))
