"""`[channels.matrix]`: one line a problem, and the examples of the page."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from gateway.channels.matrix.channel import MatrixChannel
from gateway.channels.matrix.settings import read_matrix
from gateway.platform.listening import ListenerCursor
from shared.errors import SettingsError
from tests.deploy.test_docs import ROOT

TOKEN = "syt_c2hvYWw_abcdefghijklmnopqrst_0aBcDe"
HOME = {"homeserver": "https://matrix.pond.example"}
GOOD = {**HOME, "access_token": TOKEN}


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"access_token": TOKEN}, "channels.matrix.homeserver"),
        ({**GOOD, "homeserver": "pond.example"}, "channels.matrix.homeserver is 'pond.example'"),
        ({**GOOD, "homeserver": "https://pond.example/?x"}, "channels.matrix.homeserver"),
        (HOME, "channels.matrix.access_token is missing"),
        ({**HOME, "access_token": " "}, "channels.matrix.access_token must"),
        ({**HOME, "password": "x"}, "channels.matrix.user is missing"),
        ({**HOME, "user": "@a:b", "password": ""}, "channels.matrix.password must"),
        ({**GOOD, "password": "x", "user": "@a:b"}, "one of the two ways"),
        ({**GOOD, "run": "webhook?"}, "channels.matrix.run"),
        ({**GOOD, "allow_from": ["anna"]}, "channels.matrix.allow_from"),
        ({**GOOD, "allow_groups": ["#pond:pond.example"]}, "channels.matrix.allow_groups"),
        ({**GOOD, "join": "always"}, "channels.matrix.join"),
        ({**GOOD, "per_s": 0}, "channels.matrix.per_s"),
        ({**GOOD, "tokn": "x"}, "channels.matrix.tokn"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_its_name(table: dict[str, Any], problem: str) -> None:
    """And never with its secret."""
    with pytest.raises(SettingsError, match=re.escape(problem)) as caught:
        read_matrix("matrix", table)
    assert TOKEN not in str(caught.value)


def test_what_follows_from_the_settings() -> None:
    """A transaction id is known for one device alone; the homeserver's limit is the pace of everything."""
    by_password = {**HOME, "user": "@a:b", "password": "x", "per_s": 10}
    token, password = (
        MatrixChannel("matrix", read_matrix("matrix", table), ListenerCursor()).abilities
        for table in (GOOD, by_password)
    )
    assert (token.resend_guard, password.resend_guard) == ("key", "look-up")
    assert (token.rates[0].per_s, token.rates[0].burst, token.edit_every_s) == (0.2, 10, 5.0)
    assert (password.rates[0].per_s, password.edit_every_s) == (10, 1.5)


def test_every_example_of_the_page_is_read() -> None:
    """As an operator would copy it."""
    text = (ROOT / "docs" / "channels" / "matrix.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        table = tomllib.loads(example)["channels"]["matrix"]
        for name, value in table.items():
            if isinstance(value, str) and value.startswith("${"):
                table[name] = {"${MATRIX_TOKEN}": TOKEN, "${MATRIX_PASSWORD}": "correct horse"}[value]
        read_matrix("matrix", table)
