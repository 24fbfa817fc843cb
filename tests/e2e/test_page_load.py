"""What a browser asks for when the page is opened again."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from shared.store.client.redis_client import RedisClient
from tests.e2e.test_page import PATIENCE_MS, page_at, start_gateway
from tests.gateway.harness import free_port
from tests.helpers.fleet_fixtures import Spawn

pytestmark = pytest.mark.usefixtures("browser")

FETCHED = """() => performance.getEntriesByType("resource").filter(one => one.name.includes("/static/"))
  .map(one => [one.transferSize, one.encodedBodySize, one.decodedBodySize])"""


async def test_a_reload_fetches_the_index_alone(client: RedisClient, spawn: Spawn) -> None:
    """Everything else is kept, and came compressed: together at most 60 kB."""
    port = free_port()
    start_gateway(spawn, port)
    async with page_at(port) as page:
        files = await page.evaluate(FETCHED)
        fetched = [file for file in files if file[0]]
        assert len(fetched) > 20
        assert sum(encoded for _, encoded, _ in fetched) < 60_000 < sum(decoded for *_, decoded in fetched)
        await page.reload()
        await expect(page.locator("#composer textarea")).to_be_visible(timeout=PATIENCE_MS)
        assert [file for file in await page.evaluate(FETCHED) if file[0]] == []
