"""Every test of the suite, on every bench that it is about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.contracts.channels.bench import ChannelBench, all_benches
from tests.contracts.channels.stage import Stage

ALL = all_benches()

SAME_WAY_OUT: Final = ("email, exclusive, polling", "feishu, webhook", "slack, webhook", "telegram, webhook")
"""Benches of platforms that have another one, which differs in nothing but the way in."""

WAITS: Final = {
    "gateway.delivery.chat_delivery.TYPING_AFTER_S": 0.05,
    "gateway.delivery.line_delivery.FIRST_S": 0.1,
    "gateway.delivery.streamed_message.AFTER_S": 0.1,
    "gateway.delivery.streamed_message.RETRY_S": 0.3,
    "gateway.platform.listening.AGAIN_FIRST_S": 0.05,
    "gateway.channels.whatsapp.refusals.PAIR_S": 1.0,
}
"""Waits of Shoal's own before it shows that a turn runs and before it tries again, the last where the platform does not
say for how long: nothing here depends on how long they are, and they would be most of what a test takes."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*what): skipped on a platform that has no form of it, by its bench")
    config.addinivalue_line("markers", "modes(*names): only in these run modes of a channel")
    config.addinivalue_line("markers", "benches(*names): only on these; the test says why they are enough")
    config.addinivalue_line("markers", "way_out: about what goes out alone, so not on benches that send as others do")
    config.addinivalue_line("markers", "both_ways: in a file that is marked way_out, about what comes in, too")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test on every bench, in the run modes that it is about."""
    if "bench" in metafunc.fixturenames:
        metafunc.parametrize("bench", [name for name in sorted(ALL) if _is_about(metafunc, name)], indirect=True)


def _is_about(metafunc: pytest.Metafunc, bench: str) -> bool:
    marks = {mark.name: mark.args for mark in metafunc.definition.iter_markers()}
    if "way_out" in marks and "both_ways" not in marks and bench in SAME_WAY_OUT:
        return False
    run_mode = bench.split(", ")[1]
    return bench in marks.get("benches", [bench]) and run_mode in marks.get("modes", [run_mode])


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that only tests would wait for."""
    for name, seconds in WAITS.items():
        monkeypatch.setattr(name, seconds)


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
