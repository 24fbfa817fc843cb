"""`[channels.discord]`: one line a problem, and the examples of the page."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from gateway.channels.discord.settings import read_discord
from shared.errors import SettingsError
from tests.deploy.test_docs import ROOT
from tests.fakes.discord import TOKEN


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, "channels.discord.token"),
        ({"token": " "}, "channels.discord.token must be text, not empty"),
        ({"token": "hello"}, "channels.discord.token is not a bot token"),
        ({"token": f"Bot {TOKEN}"}, "channels.discord.token is not a bot token"),
        ({"token": TOKEN, "run": "poll"}, "channels.discord.run"),
        ({"token": TOKEN, "api": "discord.com"}, "channels.discord.api has 'discord.com'"),
        ({"token": TOKEN, "files_from": ["cdn"]}, "channels.discord.files_from has 'cdn'"),
        ({"token": TOKEN, "allow_from": ["anna"]}, "channels.discord.allow_from has 'anna', which is no id"),
        ({"token": TOKEN, "allow_groups": ["#pond"]}, "channels.discord.allow_groups has '#pond', which is no id"),
        ({"token": TOKEN, "groups": "open", "message_content": False}, "channels.discord.groups is 'open'"),
        ({"token": TOKEN, "shards": -1}, "channels.discord.shards"),
        ({"token": TOKEN, "tokn": "x"}, "channels.discord.tokn"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_its_name(table: dict[str, Any], problem: str) -> None:
    """And never with its secret."""
    with pytest.raises(SettingsError, match=re.escape(problem)) as caught:
        read_discord("discord", table)
    assert TOKEN not in str(caught.value)


def test_ids_may_be_numbers() -> None:
    """As people copy them."""
    settings = read_discord("discord", {"token": TOKEN, "allow_from": [234567890123456789]})
    assert settings.allow_from == ("234567890123456789",)


def test_every_example_of_the_page_is_read() -> None:
    """As an operator would copy it."""
    text = (ROOT / "docs" / "channels" / "discord.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        table = tomllib.loads(example)["channels"]["discord"]
        assert table["token"] == "${DISCORD_TOKEN}"
        read_discord("discord", {**table, "token": TOKEN})


def test_the_page_names_every_key_and_its_default() -> None:
    """Nothing has to be looked up in the code."""
    text = (ROOT / "docs" / "channels" / "discord.md").read_text()
    settings = read_discord("discord", {"token": TOKEN})
    for key, default in (
        ("message_content", "true"),
        ("shards", settings.shards),
        ("history_s", int(settings.history_s)),
        ("api", f"`{settings.api}`"),
        ("timeout_s", int(settings.timeout_s)),
    ):
        assert f"| `{key}` | {default} |" in text
    assert "| `files_from` |" in text
