"""A fleet for every test here. They share an event loop, because those of the page share a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from shared.store.client.redis_client import RedisClient
from tests.helpers import left_open
from tests.helpers.chromium import keeping_chromium
from tests.helpers.fleet_fixtures import KeptFleet, kept_fleet, model, model_server, spawn
from tests.helpers.wait import PATIENCE_S

__all__ = ["kept_fleet", "model", "model_server", "spawn"]

# What a page comes to show, it shows at its own time: Playwright's five seconds are short for a machine that stalls.
expect.set_options(timeout=PATIENCE_S * 1000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One event loop for all."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("asyncio"):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def nothing_is_left_open() -> AsyncIterator[None]:
    """In the event loop: it goes on after the test."""
    async with left_open.in_shared_loop():
        yield


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[None]:
    """What `chromium` gives is the same browser for all tests; each has contexts of its own."""
    async with keeping_chromium():
        yield


@pytest_asyncio.fixture(loop_scope="session")
async def client(redis_url: str) -> AsyncIterator[RedisClient]:
    """A client of the test's own, on a Redis that holds nothing, in the loop that is shared."""
    made = RedisClient(redis_url)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def kept_client(kept_fleet: KeptFleet) -> AsyncIterator[RedisClient]:
    """The same on the Redis of the fleet that is kept."""
    made = RedisClient(kept_fleet.redis_url)
    yield made
    await made.close()
