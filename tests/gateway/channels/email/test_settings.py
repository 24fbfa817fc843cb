"""`[channels.email]`: one line a problem, and every example that people copy."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.channels.email.settings import read_email
from shared.errors import SettingsError
from tests.deploy.test_docs import ROOT

PASSWORD = "correct horse battery"
GOOD = {
    "imap_host": "imap.example.org", "smtp_host": "smtp.example.org", "user": "shoal@example.org",
    "password": PASSWORD, "authserv_id": "mx.example.org",
}  # fmt: skip
KEY = "channels.email"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({**GOOD, "imap_host": ""}, f"{KEY}.imap_host is ''"),
        ({**GOOD, "smtp_host": "https://smtp.example.org"}, f"{KEY}.smtp_host"),
        (
            {**GOOD, "user": "shoal"},
            f"{KEY}.user is 'shoal', which is not a mail address; write one into {KEY}.address",
        ),
        ({**GOOD, "address": "Shoal <shoal@example.org>"}, f"{KEY}.address"),
        ({**GOOD, "password": " "}, f"{KEY}.password"),
        ({**GOOD, "authserv_id": ""}, f"{KEY}.authserv_id is missing"),
        ({**GOOD, "authserv_id": "mx; dmarc=pass"}, f"{KEY}.authserv_id is"),
        ({**GOOD, "imap_tls": "off"}, f"{KEY}.imap_tls is off, and 'imap.example.org' is not this machine"),
        ({**GOOD, "smtp_tls": "off"}, f"{KEY}.smtp_tls is off"),
        ({**GOOD, "smtp_tls": "ssl"}, f"{KEY}.smtp_tls"),
        ({**GOOD, "imap_tls": "starttls"}, f"{KEY}.imap_port 993"),
        ({**GOOD, "smtp_tls": "starttls"}, f"{KEY}.smtp_port 465"),
        ({**GOOD, "smtp_user": "x"}, f"{KEY}.smtp_password is missing"),
        ({**GOOD, "smtp_password": "x"}, f"{KEY}.smtp_user is missing"),
        ({**GOOD, "smtp_user": "x", "smtp_password": "x", "smtp_login": False}, f"{KEY}.smtp_login"),
        ({**GOOD, "ca_file": "/nowhere/ca.crt"}, f"{KEY}.ca_file '/nowhere/ca.crt' cannot be read"),
        ({**GOOD, "allow_from": ["Anna"]}, f"{KEY}.allow_from has 'anna'"),
        ({**GOOD, "allow_from": ["*@example.org"]}, f"{KEY}.allow_from has '*@example.org'"),
        ({**GOOD, "allow_groups": ["x@example.org"]}, f"{KEY}.allow_groups"),
        ({**GOOD, "run": "socket"}, f"{KEY}.run"),
        ({**GOOD, "idle_s": 1740}, f"{KEY}.idle_s"),
        ({**GOOD, "per_s": 0}, f"{KEY}.per_s"),
        ({**GOOD, "imap_port": 0}, f"{KEY}.imap_port"),
        ({**GOOD, "passwrd": "x"}, f"{KEY}.passwrd"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_its_name(table: dict[str, Any], problem: str) -> None:
    """And never with its secret."""
    with pytest.raises(SettingsError, match=re.escape(problem)) as caught:
        read_email("email", table)
    assert PASSWORD not in str(caught.value)


def test_missing_settings_are_reported() -> None:
    """All of it at once."""
    with pytest.raises(SettingsError) as caught:
        read_email("email", {})
    for name in ("imap_host", "smtp_host", "user", "password"):
        assert f"{KEY}.{name}" in str(caught.value)


def test_who_may_speak_is_written_in_any_letters() -> None:
    """No mail server tells Anna@ from anna@."""
    settings = read_email("email", {**GOOD, "allow_from": ["Anna@Example.org", "*"], "admins": ["BOSS@example.org"]})
    assert (settings.allow_from, settings.admins) == (("anna@example.org", "*"), ("boss@example.org",))


def test_out_of_the_box_nobody_is_believed_and_strangers_get_no_answer() -> None:
    """A From must be found true, unless somebody says that it need not be; pairing is off."""
    settings = read_email("email", GOOD)
    assert (settings.believe_from, settings.pairing, settings.allow_from) == (False, False, ())
    assert (settings.imap_tls, settings.smtp_tls) == ("tls", "tls")
    believing = {name: value for name, value in GOOD.items() if name != "authserv_id"} | {"believe_from": True}
    assert read_email("email", believing).believe_from


def test_our_address_is_the_users_or_another(tmp_path: Path) -> None:
    """In lower case."""
    assert read_email("email", GOOD).me == "shoal@example.org"
    other = read_email("email", {**GOOD, "user": "shoal", "address": "Bot@Pond.example"})
    assert other.me == "bot@pond.example"


@pytest.mark.parametrize("page", ["docs/channels/email.md", "deploy/shoal.example.toml"])
def test_every_example_is_read(page: str, tmp_path: Path) -> None:
    """As an operator would copy it."""
    text = (ROOT / page).read_text()
    if page.endswith(".toml"):
        [block] = re.findall(r"# \[channels\.email\].*?(?=\n\n)", text, re.DOTALL)
        examples = [re.sub(r"^# ", "", block, flags=re.MULTILINE)]
    else:
        examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
        assert len(examples) == 3
    for example in examples:
        table = tomllib.loads(example)["channels"]["email"]
        for name, value in table.items():
            if isinstance(value, str) and value.startswith("${"):
                table[name] = PASSWORD
        if "ca_file" in table:
            table["ca_file"] = str(tmp_path)
        read_email("email", table)


def test_every_setting_is_on_the_page() -> None:
    """With the default that it has."""
    text = (ROOT / "docs" / "channels" / "email.md").read_text()
    settings, page = read_email("email", GOOD), dict[str, str]()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            names = re.findall(r"`(\w+)`", cells[0])
            defaults = [one.strip().strip("`") for one in cells[1].split(",")]
            page |= dict(zip(names, defaults * (len(names) if len(defaults) == 1 else 1), strict=True))
    own = set(settings.__struct_fields__) - {"on", "run", "allow_from", "admins", "groups", "allow_groups"}
    assert page.keys() == own - {"group_rules", "sender_per_minute", "proxy"}
    for name, default in page.items():
        if default:
            value = getattr(settings, name)
            shown = (
                str(value).lower()
                if isinstance(value, bool)
                else f"{value:g}"
                if isinstance(value, float)
                else str(value)
            )
            assert shown == default, name
