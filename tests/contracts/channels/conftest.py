"""Every test of the suite, on every bench."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.contracts.channels.bench import ChannelBench, all_benches
from tests.contracts.channels.stage import Stage

ALL = all_benches()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*what): skipped on a platform that has no form of it, by its bench")
    config.addinivalue_line("markers", "modes(*names): only in these run modes of a channel")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test on every bench, in the run modes that it is about."""
    if "bench" in metafunc.fixturenames:
        modes = {mode for mark in metafunc.definition.iter_markers("modes") for mode in mark.args}
        names = [name for name in sorted(ALL) if not modes or name.split(", ")[1] in modes]
        metafunc.parametrize("bench", names, indirect=True)


@pytest.fixture
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[ChannelBench]:
    """A platform; a test marked `needs` is skipped where it has no form of that."""
    async with ALL[request.param]() as opened:
        assert request.param.split(", ")[:2] == [opened.name, opened.run_mode]
        for mark in request.node.iter_markers("needs"):
            for what in mark.args:
                if what in opened.cannot:
                    pytest.skip(f"{opened.name} has no form of {what!r}")
        yield opened


@pytest.fixture
async def stage(bench: ChannelBench, redis_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    """The bench, a worker that answers, and no gateway yet."""
    async with aiohttp.ClientSession() as http:
        made = Stage(bench, redis_url, tmp_path, http)
        made.worker.start()
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture
async def played(stage: Stage) -> Stage:
    """The same with one gateway."""
    await stage.gateway()
    return stage
