"""`[channels.whatsapp]`: one line a problem, and the examples of the page."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from gateway.channels.whatsapp.settings import WhatsAppSettings, read_whatsapp
from shared.errors import SettingsError
from tests.deploy.test_docs import ROOT

TOKEN = "EAAGm0PX4ZCpsBAFakeTokenOfASystemUser"
SECRET = "0123456789abcdef0123456789abcdef"
GOOD: dict[str, Any] = {
    "access_token": TOKEN, "app_secret": SECRET, "verify_token": "our-own-word", "phone_number_id": "106540352242922",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"access_token": None}, "channels.whatsapp.access_token"),
        ({"access_token": " "}, "channels.whatsapp.access_token must be text, not empty"),
        ({"access_token": "hello"}, "channels.whatsapp.access_token is no access token"),
        ({"app_secret": None}, "channels.whatsapp.app_secret"),
        ({"app_secret": ""}, "channels.whatsapp.app_secret must be text, not empty"),
        ({"app_secret": TOKEN}, "channels.whatsapp.app_secret is none"),
        ({"verify_token": None}, "channels.whatsapp.verify_token"),
        ({"verify_token": ""}, "channels.whatsapp.verify_token must be text, not empty"),
        ({"verify_token": "short"}, "channels.whatsapp.verify_token is too short"),
        ({"phone_number_id": None}, "channels.whatsapp.phone_number_id"),
        ({"phone_number_id": "+1 555 078 3881"}, "channels.whatsapp.phone_number_id is '+1 555 078 3881'"),
        ({"run": "socket"}, "channels.whatsapp.run is 'socket'"),
        ({"api": "http://graph.facebook.com/v23.0"}, "channels.whatsapp.api"),
        ({"api": "graph.facebook.com"}, "channels.whatsapp.api"),
        ({"allow_from": ["+491701234567"]}, "channels.whatsapp.allow_from has '+491701234567'"),
        ({"allow_from": ["Anna"]}, "channels.whatsapp.allow_from has 'Anna'"),
        ({"allow_groups": ["120363"]}, "channels.whatsapp.allow_groups has '120363'"),
        ({"acess_token": "x"}, "channels.whatsapp.acess_token"),
        ({"timeout_s": 0}, "channels.whatsapp.timeout_s"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_its_name(change: dict[str, Any], problem: str) -> None:
    """And never with its secret."""
    table = {name: value for name, value in (GOOD | change).items() if value is not None}
    with pytest.raises(SettingsError, match=re.escape(problem)) as caught:
        read_whatsapp("whatsapp", table)
    assert TOKEN not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_numbers_may_be_written_without_quotes() -> None:
    """As they are copied."""
    settings = read_whatsapp("whatsapp", GOOD | {"phone_number_id": 106540352242922, "allow_from": [491701234567]})
    assert (settings.phone_number_id, settings.allow_from) == ("106540352242922", ("491701234567",))


def test_every_example_of_the_page_is_read() -> None:
    """As an operator would copy it."""
    text = (ROOT / "docs" / "channels" / "whatsapp.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 1
    for example in examples:
        table = tomllib.loads(example)["channels"]["whatsapp"]
        secrets = {f"${{WHATSAPP_{name.upper()}}}": value for name, value in GOOD.items()}
        for name, value in table.items():
            if isinstance(value, str) and value.startswith("${"):
                table[name] = secrets[value]
        read_whatsapp("whatsapp", table)


def test_every_setting_is_on_the_page() -> None:
    """With its default."""
    text = (ROOT / "docs" / "channels" / "whatsapp.md").read_text()
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", text, re.MULTILINE)
    page = {name for names, _ in rows for name in re.findall(r"`(\w+)`", names)}
    own = set(WhatsAppSettings.__struct_fields__) - set(WhatsAppSettings.__mro__[1].__struct_fields__)  # type: ignore[attr-defined]
    assert own <= page
