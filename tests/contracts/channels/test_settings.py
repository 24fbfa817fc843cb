"""Secrets: one that is blank, however it is given, stops the start with one line that names its key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.choice import problems_of
from gateway.platform.registry import Cursor, PlatformContext, make_platform
from shared.errors import SettingsError
from shared.settings import Secret, load
from tests.contracts.channels.bench import ChannelBench
from tests.contracts.channels.stage import toml


class NoCursor(Cursor):
    """Nothing was ever read."""

    def read(self) -> bytes:
        return b""

    async def save(self, value: bytes) -> None:
        pass


def secrets_of(bench: ChannelBench, folder: Path) -> list[str]:
    """The keys of its table that hold a secret."""
    (folder / "shoal.toml").write_text(toml({f"channels.{bench.name}": bench.table()}))
    settings = load({}, path=folder / "shoal.toml")
    given = PlatformContext(name=bench.name, table=settings.channels[bench.name], settings=settings, cursor=NoCursor())
    rules = make_platform(given).rules
    return [name for name in rules.__struct_fields__ if isinstance(getattr(rules, name), Secret)]


async def problems(
    bench: ChannelBench, folder: Path, table: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> list[str]:
    """What a gateway with this table says before it ends, line by line; nothing = it starts."""
    (folder / "shoal.toml").write_text(toml({f"channels.{bench.name}": table}))
    try:
        return await problems_of([bench.name], load(environ or {}, path=folder / "shoal.toml"))
    except SettingsError as exc:
        return str(exc).splitlines()


async def test_a_blank_secret_stops_the_start_and_is_named(bench: ChannelBench, tmp_path: Path) -> None:
    """Written blank, in the file or the environment; a blank file; a variable that is blank or not there. An empty one
    of the environment is as if it were not set: then what must be there is missing."""
    table, names = bench.table(), secrets_of(bench, tmp_path)
    assert names
    assert await problems(bench, tmp_path, table) == []
    (tmp_path / "blank").write_text(" \n")
    for name in names:
        key = f"channels.{bench.name}.{name}"
        others = {one: value for one, value in table.items() if one != name}
        variable = f"SHOAL_CHANNELS__{bench.name.upper()}__{name.upper()}"
        for given, environ in (
            *(({**others, name: blank}, {}) for blank in ("", " ", "\t\n")),
            ({**others, f"{name}_file": str(tmp_path / "blank")}, {}),
            ({**others, name: "${POND_SECRET}"}, {"POND_SECRET": ""}),
            ({**others, name: "${POND_SECRET}"}, {"POND_SECRET": "  "}),
            ({**others, name: "${POND_SECRET}"}, {}),
            (others, {variable: " "}),
        ):
            log_lines = await problems(bench, tmp_path, given, environ)
            assert [line for line in log_lines if line.startswith(key)], (given, environ, log_lines)
        assert await problems(bench, tmp_path, others, {variable: ""}) == await problems(bench, tmp_path, others)


@pytest.mark.modes("webhook")
async def test_a_webhook_is_not_opened_without_what_its_calls_are_known_by(bench: ChannelBench, tmp_path: Path) -> None:
    """Beside the token that we speak with there is at least one secret that the platform speaks with; none has a
    default."""
    table, missing = bench.table(), []
    for name in secrets_of(bench, tmp_path):
        log_lines = await problems(bench, tmp_path, {one: value for one, value in table.items() if one != name})
        missing += [name for line in log_lines if line.startswith(f"channels.{bench.name}.{name}")]
    assert len(set(missing)) >= 2
