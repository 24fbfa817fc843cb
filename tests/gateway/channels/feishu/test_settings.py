"""`[channels.feishu]`: one line a problem, and the examples of the page."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from gateway.channels.feishu.settings import FeishuSettings, read_feishu
from gateway.platform.access import AccessSettings
from shared.errors import SettingsError
from tests.deploy.test_docs import ROOT

SECRET = "0123456789abcdefghijABCDEFGHIJ01"
KEY = "our-own-encrypt-key"
TOKEN = "v1wSQnPzPYFZcZeNoiSDYX8nCoU2UL0J"
GOOD: dict[str, Any] = {"app_id": "cli_a1b2c3d4e5f60001", "app_secret": SECRET}
CALLED: dict[str, Any] = {"run": "webhook", "encrypt_key": KEY, "verification_token": TOKEN}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"app_id": None}, "channels.feishu.app_id"),
        ({"app_id": "a1b2c3d4"}, "channels.feishu.app_id is 'a1b2c3d4'"),
        ({"app_secret": None}, "channels.feishu.app_secret"),
        ({"app_secret": ""}, "channels.feishu.app_secret must be text, not empty"),
        ({"app_secret": " "}, "channels.feishu.app_secret must be text, not empty"),
        ({"app_secret": "a b c d e f g h"}, "channels.feishu.app_secret is none"),
        ({"domain": "feishu.cn"}, "channels.feishu.domain"),
        ({"run": "exclusive"}, "channels.feishu.run is 'exclusive'"),
        ({"run": "polling"}, "channels.feishu.run"),
        ({**CALLED, "encrypt_key": None}, "channels.feishu.encrypt_key is missing"),
        ({**CALLED, "encrypt_key": ""}, "channels.feishu.encrypt_key must be text, not empty"),
        ({**CALLED, "encrypt_key": "short"}, "channels.feishu.encrypt_key is too short"),
        ({**CALLED, "verification_token": None}, "channels.feishu.verification_token is missing"),
        ({**CALLED, "verification_token": "\t"}, "channels.feishu.verification_token must be text, not empty"),
        ({**CALLED, "verification_token": "two words here"}, "channels.feishu.verification_token is too short or has"),
        ({"api": "http://open.feishu.cn"}, "channels.feishu.api"),
        ({"api": "open.feishu.cn"}, "channels.feishu.api"),
        ({"api": "https://[::1"}, "channels.feishu.api"),
        ({"allow_from": ["on_94a1ee5551019f18cd73d9f111898cf2"]}, "channels.feishu.allow_from has 'on_94"),
        ({"allow_from": ["Anna"]}, "channels.feishu.allow_from has 'Anna'"),
        ({"admins": ["e33ggbyz"]}, "channels.feishu.admins has 'e33ggbyz'"),
        ({"allow_groups": ["ou_1"]}, "channels.feishu.allow_groups has 'ou_1'"),
        ({"app_secrt": "x"}, "channels.feishu.app_secrt"),
        ({"timeout_s": 0}, "channels.feishu.timeout_s"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_its_name(change: dict[str, Any], problem: str) -> None:
    """And never with a secret."""
    table = {name: value for name, value in (GOOD | change).items() if value is not None}
    with pytest.raises(SettingsError, match=re.escape(problem)) as caught:
        read_feishu("feishu", table)
    assert not any(secret in str(caught.value) for secret in (SECRET, KEY, TOKEN))


def test_all_problems_are_reported_at_once() -> None:
    """A line each."""
    with pytest.raises(SettingsError) as caught:
        read_feishu("feishu", {"app_id": "x", "app_secret": "y", "run": "webhook"})
    assert len(str(caught.value).splitlines()) == 4


@pytest.mark.parametrize(
    ("table", "server"),
    [
        ({}, "https://open.feishu.cn"),
        ({"domain": "lark"}, "https://open.larksuite.com"),
        ({"domain": "lark", "api": "https://feishu.example.org/"}, "https://feishu.example.org"),
    ],
)
def test_the_server_goes_with_the_domain(table: dict[str, Any], server: str) -> None:
    """Unless another one is named."""
    assert read_feishu("feishu", GOOD | table).server == server


def test_every_example_of_the_page_is_read() -> None:
    """As an operator would copy it."""
    text = (ROOT / "docs" / "channels" / "feishu.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    secrets = {"APP_SECRET": SECRET, "ENCRYPT_KEY": KEY, "VERIFICATION_TOKEN": TOKEN}
    for example in examples:
        table = tomllib.loads(example)["channels"]["feishu"]
        for name, value in table.items():
            if isinstance(value, str) and value.startswith("${FEISHU_"):
                table[name] = secrets[value.removeprefix("${FEISHU_").removesuffix("}")]
        read_feishu("feishu", table)


def test_every_setting_is_on_the_page() -> None:
    """With its default."""
    text = (ROOT / "docs" / "channels" / "feishu.md").read_text()
    page = {
        name for names in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", names)
    }
    assert set(FeishuSettings.__struct_fields__) - set(AccessSettings.__struct_fields__) <= page


def test_the_example_file_has_this_channel() -> None:
    """deploy/shoal.example.toml, without its marks, with secrets."""
    text = (ROOT / "deploy" / "shoal.example.toml").read_text()
    [block] = re.findall(r"^(# \[channels\.feishu\].*?)\n\n", text, re.MULTILINE | re.DOTALL)
    table = tomllib.loads(re.sub(r"^# ", "", block, flags=re.MULTILINE))["channels"]["feishu"]
    read_feishu("feishu", table | {"app_secret": SECRET, "encrypt_key": KEY, "verification_token": TOKEN})
