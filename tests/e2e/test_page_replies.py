"""What replies look like on the chat page: real Chromium, real gateway, real worker, a scripted model over HTTP."""

from __future__ import annotations

import base64

import pytest
from playwright.async_api import expect

from shared.store.client.redis_client import RedisClient
from tests.e2e.test_page import PATIENCE_MS, ask, page_of_fleet
from tests.helpers.axe import violations
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.media_files import png
from tests.helpers.openai_server import Answer, ScriptedOpenAI

pytestmark = pytest.mark.usefixtures("browser")

REPLY = rf"""Euler: $e^{{i\pi}} + 1 = 0$, and

$$\int_0^1 x^2\,dx = \frac{{1}}{{3}}$$

- [ ] buy rope
- [x] feed the otters

| name | metres |
|:-----|-------:|
| pond | 3 |

```python
def otters(count: int = 2) -> str:
    # they hold hands
    return f"{{count}} otters"
```

```mermaid
graph TD; A-->B
```

They sleep[^1].

![a fish](data:image/png;base64,{base64.b64encode(png()).decode()})

[^1]: On their backs.
"""
OF_THE_RIGHT = f"""שלום

- אחת
- שתיים

> ציטוט

| {" | ".join(f"column {number}" for number in range(30))} |
|{"---|" * 30}
| {" | ".join("value" for _ in range(30))} |
"""
COLOUR = "node => getComputedStyle(node).color"


async def test_code_formulas_tasks_notes_tables_and_pictures_are_shown(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """In both themes, without a fault that axe finds, and after a reload as well."""
    model.script(Answer(text=REPLY))
    async with page_of_fleet(spawn) as page:
        await ask(page, "show me everything")
        done = page.locator('.card.reply[data-state="done"]')
        await expect(done).to_be_visible(timeout=PATIENCE_MS)
        for _ in range(2):
            keyword = done.locator(".hl-k").first
            await expect(keyword).to_have_text("def ")
            assert await keyword.evaluate(COLOUR) != await done.locator("pre code").first.evaluate(COLOUR)
            await expect(done.locator("math")).to_have_count(2)
            fraction = await done.locator("math mfrac").bounding_box()
            assert fraction is not None
            assert fraction["height"] > 20, "it is drawn as a fraction"
            await expect(done.locator("li.task")).to_have_text(["☐ buy rope", "☑ feed the otters"])
            await expect(done.locator("td").last).to_have_css("text-align", "right")
            await expect(done.locator(".code header span").nth(2)).to_have_text("mermaid")
            await expect(done.locator(".code").last.locator("button.copy")).to_have_count(1)
            await expect(done.locator("ol.notes")).to_contain_text("On their backs.")
            await expect(done.get_by_role("img", name="a fish")).to_have_js_property("naturalWidth", 3)
            await page.emulate_media(color_scheme="light")
            assert await violations(page) == []
            await page.emulate_media(color_scheme="dark")
            assert await violations(page) == []
            await page.reload()


async def test_what_is_read_from_the_right_has_its_marks_at_the_right(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Bullets and the bar of a quotation; a table that is too wide has a shadow at the edge where it goes on."""
    model.script(Answer(text=OF_THE_RIGHT))
    async with page_of_fleet(spawn) as page:
        await ask(page, "in Hebrew")
        done = page.locator('.card.reply[data-state="done"]')
        await expect(done).to_be_visible(timeout=PATIENCE_MS)
        await expect(done.locator(".body ul")).to_have_css("padding-left", "0px")
        await expect(done.locator(".body blockquote")).to_have_css("border-right-width", "3px")
        table = done.locator(".table")
        assert await table.evaluate("node => node.scrollWidth > node.clientWidth")
        await expect(table).to_have_css("background-attachment", "local, local, scroll, scroll")
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert await violations(page) == []


async def test_a_growing_answer_shows_no_marks_that_it_loses_at_its_end(
    client: RedisClient, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """Items have bullets, and what has begun to be bold is bold; a power of two is not."""
    begun = "So 2 ** 8 is 256:\n\n- one\n- **two words"
    model.script(Answer(text=f"{begun} and more** of it, and so on.", held_after=len(begun.split())))
    async with page_of_fleet(spawn) as page:
        await ask(page, "a list")
        growing = page.locator('.card.reply[data-state="streaming"] .body')
        await expect(growing.locator("strong")).to_have_text("two words", timeout=PATIENCE_MS)
        await expect(growing.locator("p").last).to_have_text("• one\n• two words")
        await expect(growing.locator("p").first).to_have_text("So 2 ** 8 is 256:")
        model.release()
        done = page.locator('.card.reply[data-state="done"]')
        await expect(done.locator("li").last).to_have_text("two words and more of it, and so on.", timeout=PATIENCE_MS)
