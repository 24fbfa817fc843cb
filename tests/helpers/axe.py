"""Accessibility of a page by axe-core, run inside of it."""

from __future__ import annotations

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

_RESTS = "() => document.getAnimations().every((one) => one.effect.getTiming().iterations === Infinity)"


async def violations(page: Page) -> list[str]:
    """What axe finds wrong: the rule and the first element that breaks it."""
    # Colours of text that still fades in are not what a person reads.
    await page.wait_for_function(_RESTS)
    found = (await Axe().run(page)).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]
