"""The stores on a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.store.client import RedisClient


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[RedisClient]:
    """A connected client on an empty server."""
    made = RedisClient(redis_url)
    yield made
    await made.close()
