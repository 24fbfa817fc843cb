"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from shared.console.children import Reaper
from shared.embedded import EmbeddedValkey
from shared.store.client import RedisClient
from tests.helpers import valkey as valkey_helper


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """One real Valkey for the whole run. A test may kill() or restart() it; the next one finds it running again."""
    reaper = Reaper()  # no server outlives a run that was killed
    server = EmbeddedValkey(
        tmp_path_factory.mktemp("valkey"), fsync="no", spawned=lambda pid: reaper.watch(step=0, pid=pid)
    )
    server.start()
    yield server
    server.stop()
    reaper.close()


@pytest.fixture
def redis_url(valkey: EmbeddedValkey) -> str:
    """The address of a Valkey that holds nothing."""
    return valkey_helper.fresh(valkey)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[RedisClient]:
    """A client of the test's own, on a Valkey that holds nothing."""
    made = RedisClient(redis_url)
    yield made
    await made.close()
