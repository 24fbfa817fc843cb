"""A real headless Chromium."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from playwright.async_api import Browser, Playwright, async_playwright

from tests.helpers.need import need

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--use-fake-device-for-media-stream",  # a microphone that beeps
    "--use-fake-ui-for-media-stream",
]


_kept: Final[dict[asyncio.AbstractEventLoop, Kept]] = {}


class Kept:
    """A browser for all tests of an event loop. It starts when the first of them asks for it."""

    def __init__(self, playwright: Playwright) -> None:
        self._playwright = playwright
        self._browser: Browser | None = None

    async def browser(self) -> Browser:
        """The browser, or a new one if it has crashed."""
        if self._browser is None or not self._browser.is_connected():
            self._browser = await _launch(self._playwright)
        return self._browser

    async def close(self) -> None:
        if self._browser is not None:
            await self._browser.close()


@asynccontextmanager
async def keeping_chromium() -> AsyncIterator[None]:
    """In this event loop, `chromium` gives the same browser again and again: a start takes a second of processor."""
    loop = asyncio.get_running_loop()
    async with async_playwright() as playwright:
        _kept[loop] = kept = Kept(playwright)
        try:
            yield
        finally:
            del _kept[loop]
            await kept.close()


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser that knows nothing of another test; skips (or, where everything is required, fails) without any on the
    machine."""
    if (kept := _kept.get(asyncio.get_running_loop())) is None:
        async with async_playwright() as playwright:
            browser = await _launch(playwright)
            try:
                yield browser
            finally:
                await browser.close()
        return
    browser = await kept.browser()
    before = browser.contexts
    try:
        yield browser
    finally:
        for context in browser.contexts:
            if context not in before:
                await context.close()


async def _launch(playwright: Playwright) -> Browser:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    need("chromium", found=path is not None)
    return await playwright.chromium.launch(executable_path=path, args=FLAGS)
