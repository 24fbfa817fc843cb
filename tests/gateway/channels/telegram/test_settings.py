"""`[channels.telegram]`: one line a problem, and the examples of the page."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from gateway.channels.telegram.settings import read_telegram
from shared.errors import SettingsError
from tests.deploy.test_docs import ROOT

TOKEN = "123456789:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, "channels.telegram.token"),
        ({"token": " "}, "channels.telegram.token"),
        ({"token": "hello"}, "channels.telegram.token is not a bot token"),
        ({"token": TOKEN, "run": "poll"}, "channels.telegram.run"),
        ({"token": TOKEN, "run": "webhook"}, "channels.telegram.webhook_secret is missing"),
        ({"token": TOKEN, "run": "webhook", "webhook_secret": ""}, "channels.telegram.webhook_secret"),
        ({"token": TOKEN, "run": "webhook", "webhook_secret": "short"}, "16 to 256"),
        (
            {"token": TOKEN, "run": "webhook", "webhook_secret": "s" * 20, "public_url": "http://x"},
            "channels.telegram.public_url",
        ),
        ({"token": TOKEN, "api": "api.telegram.org"}, "channels.telegram.api"),
        ({"token": TOKEN, "allow_from": ["@anna"]}, "channels.telegram.allow_from"),
        ({"token": TOKEN, "tokn": "x"}, "channels.telegram.tokn"),
        ({"token": TOKEN, "poll_s": 500}, "channels.telegram.poll_s"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_its_name(table: dict[str, Any], problem: str) -> None:
    """And never with its secret."""
    with pytest.raises(SettingsError, match=re.escape(problem)) as caught:
        read_telegram("telegram", table)
    assert TOKEN not in str(caught.value)


def test_every_example_of_the_page_is_read() -> None:
    """As an operator would copy it."""
    text = (ROOT / "docs" / "channels" / "telegram.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        table = tomllib.loads(example)["channels"]["telegram"]
        for name, value in table.items():
            if isinstance(value, str) and value.startswith("${"):
                table[name] = {"${TELEGRAM_TOKEN}": TOKEN, "${TELEGRAM_WEBHOOK_SECRET}": "s" * 32}[value]
        read_telegram("telegram", table)
