"""The suite itself: which tests a bench may be left out of."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.platform.protocol import Abilities
from gateway.platform.registry import PlatformContext, make_platform
from shared.settings import load
from tests.contracts.channels.bench import ChannelBench
from tests.contracts.channels.conftest import ALL, SAME_WAY_OUT
from tests.contracts.channels.stage import toml
from tests.contracts.channels.test_settings import NoCursor


def abilities_of(bench: ChannelBench, folder: Path) -> Abilities:
    """What the channel of a bench can do."""
    (folder / "shoal.toml").write_text(toml({f"channels.{bench.name}": bench.table()}))
    settings = load({}, path=folder / "shoal.toml")
    table = settings.channels[bench.name]
    return make_platform(
        PlatformContext(name=bench.name, table=table, settings=settings, cursor=NoCursor())
    ).platform.abilities


@pytest.mark.benches(*SAME_WAY_OUT)
async def test_a_bench_without_tests_of_the_way_out_sends_as_another_one_of_its_platform(
    bench: ChannelBench, tmp_path: Path
) -> None:
    """The same limits, the same guard against doubles, the same faults."""
    [other] = [name for name in ALL if name.split(", ")[0] == bench.name and name not in SAME_WAY_OUT]
    async with ALL[other]() as kept:
        assert abilities_of(bench, tmp_path) == abilities_of(kept, tmp_path)
        assert bench.cannot == kept.cannot
