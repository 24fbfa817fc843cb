"""What is done with messages that come while a turn runs, as settings have it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shared.errors import SettingsError
from shared.settings import Settings, load, read_section
from shared.store.turns.inbox import InboxLimits


def loaded(tmp_path: Path, text: str, **environ: str) -> Settings:
    path = tmp_path / "shoal.toml"
    path.write_text(text)
    return load(environ, path=path)


def test_a_channel_has_its_own_policy_or_that_of_all(tmp_path: Path) -> None:
    """`channels.<name>.busy` from the file or the environment beats `inbox.busy`."""
    text = '[inbox]\nbusy = "merge"\nmerge_s = 0.5\n[channels.web]\nbusy = "steer"\n[channels.slack]\nteam = "t"\n'
    limits = InboxLimits.of(loaded(tmp_path, text, SHOAL_CHANNELS__TELEGRAM__BUSY="reject"))
    assert (limits.busy, limits.merge_ms) == ("merge", 500)
    assert limits.busy_by_channel == {"web": "steer", "telegram": "reject"}


@pytest.mark.parametrize(
    ("text", "key"),
    [('[inbox]\nbusy = "later"\n', "inbox.busy"), ('[channels.web]\nbusy = "later"\n', "channels.web.busy")],
)
def test_an_unknown_policy_stops_the_start_with_a_line_that_names_it(tmp_path: Path, text: str, key: str) -> None:
    """And that says which there are."""
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, text)
    [line] = str(refused.value).splitlines()
    assert line.startswith(key)
    assert "'later'" in line
    assert "steer" in line


class ChannelSettings(msgspec.Struct, frozen=True):
    team: str


def test_a_channel_that_reads_its_own_table_need_not_know_of_it() -> None:
    """The key belongs to every channel."""
    assert read_section(ChannelSettings, {"team": "t", "busy": "steer"}, "channels.x") == ChannelSettings("t")
