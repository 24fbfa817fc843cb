"""`[channels.slack]`: one line a problem, and the examples of the page."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest

from gateway.channels.slack.channel import ABILITIES
from gateway.channels.slack.settings import read_slack
from shared.errors import SettingsError
from tests.deploy.test_docs import ROOT
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
GOOD = {"token": BOT_TOKEN, "app_token": APP_TOKEN}
HOOK = {"token": BOT_TOKEN, "run": "webhook", "signing_secret": SECRET}
PAGE = ROOT / "docs" / "channels" / "slack.md"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, "channels.slack.token"),
        ({**GOOD, "token": " "}, "channels.slack.token must be text, not empty"),
        ({**GOOD, "token": "xoxp-1234567890-user"}, "channels.slack.token is not a bot token"),
        ({"token": BOT_TOKEN}, "channels.slack.app_token is missing"),
        ({"token": BOT_TOKEN, "app_token": ""}, "channels.slack.app_token must be text, not empty"),
        ({"token": BOT_TOKEN, "app_token": BOT_TOKEN}, "channels.slack.app_token is not an app-level token"),
        ({"token": BOT_TOKEN, "run": "webhook"}, "channels.slack.signing_secret is missing"),
        ({**HOOK, "signing_secret": "  "}, "channels.slack.signing_secret must be text, not empty"),
        ({**HOOK, "signing_secret": "short"}, "channels.slack.signing_secret is none"),
        ({**GOOD, "run": "exclusively"}, "channels.slack.run"),
        ({**GOOD, "command": "shoal"}, "channels.slack.command"),
        ({**GOOD, "api": "slack.com/api"}, "channels.slack.api"),
        ({**GOOD, "api": "http://slack.example.org/api/"}, "channels.slack.api"),
        ({**GOOD, "api": "https://[::1"}, "channels.slack.api"),
        ({**GOOD, "allow_from": ["anna"]}, "channels.slack.allow_from has 'anna', which is no id"),
        ({**GOOD, "allow_from": ["D123"]}, "channels.slack.allow_from"),
        ({**GOOD, "allow_groups": ["#general"]}, "channels.slack.allow_groups"),
        ({**GOOD, "timeout_s": 0}, "channels.slack.timeout_s"),
        ({**GOOD, "tokn": "x"}, "channels.slack.tokn"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_its_name(table: dict[str, Any], problem: str) -> None:
    """And never with its secret."""
    with pytest.raises(SettingsError, match=re.escape(problem)) as caught:
        read_slack("slack", table)
    for secret in (BOT_TOKEN, APP_TOKEN, SECRET):
        assert secret not in str(caught.value)


def test_every_example_of_the_page_is_read() -> None:
    """As an operator would copy it."""
    examples = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 2
    secrets = {
        "${SLACK_BOT_TOKEN}": BOT_TOKEN,
        "${SLACK_APP_TOKEN}": APP_TOKEN,
        "${SLACK_SIGNING_SECRET}": SECRET,
    }
    for example in examples:
        table = tomllib.loads(example)["channels"]["slack"]
        read_slack("slack", {name: secrets.get(str(value), value) for name, value in table.items()})


def test_the_manifest_of_the_page_asks_for_what_is_used() -> None:
    """Whoever pastes it has every scope and event, and nothing that this channel does not use."""
    [manifest] = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    read = json.loads(manifest)
    assert set(read["settings"]["event_subscriptions"]["bot_events"]) == {
        "app_mention",
        "message.channels",
        "message.groups",
        "message.im",
        "message.mpim",
    }
    histories = {f"{kind}:history" for kind in ("channels", "groups", "im", "mpim")}
    used = {"app_mentions:read", "chat:write", "commands", "files:read", "files:write", *histories}
    assert set(read["oauth_config"]["scopes"]["bot"]) == used
    home = read["features"]["app_home"]
    assert (home["messages_tab_enabled"], home["messages_tab_read_only_enabled"]) == (True, False)
    assert read["features"]["slash_commands"][0]["command"] == "/shoal"
    assert read["settings"]["interactivity"]["is_enabled"]
    assert read["settings"]["socket_mode_enabled"]


def test_the_page_says_the_true_numbers() -> None:
    """Those that the code goes by."""
    page = PAGE.read_text()
    assert f"every {ABILITIES.edit_every_s:g} seconds" in page
    assert ABILITIES.sockets == 10
    assert "up to ten replicas" in page
