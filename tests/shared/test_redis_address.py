"""What `redis.*` makes of an address, for every client the same."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from redis.asyncio.connection import parse_url

from shared.errors import SettingsError
from shared.settings import RedisUrl, load, redis_url, shown
from shared.store.client.address import read_address


def of(**keys: str) -> str:
    """The address of these settings."""
    return redis_url(
        load({f"SHOAL_REDIS__{name.upper()}": value for name, value in keys.items()}, path=Path("/dev/null"))
    )


def test_user_password_and_ca_file_become_part_of_the_address(tmp_path: Path) -> None:
    """Whatever stands in them; read back by redis-py and by the standard library."""
    ca, secret = tmp_path / "a ca.crt", tmp_path / "password"
    ca.write_text("x")
    secret.write_text("p@ss:/w%rd?#\n")
    url = of(url="rediss://h:6380/0", user="gate way", password_file=str(secret), ca_file=str(ca))
    read = parse_url(url)
    assert (read["username"], read["password"]) == ("gate way", "p@ss:/w%rd?#")
    assert (read["host"], read["port"], read["db"]) == ("h", 6380, 0)
    assert dict(read)["ssl_ca_certs"] == str(ca)
    parts = urlsplit(url)
    assert unquote(parts.password or "") == "p@ss:/w%rd?#"


@pytest.mark.parametrize("url", ["redis://u:p@h:1/0", "unix:///run/redis.sock?db=1", "rediss://h:1"])
def test_an_address_that_says_it_all_stays_as_it_is(url: str) -> None:
    """Nothing is added that nobody asked for."""
    assert of(url=url) == url


def test_a_password_goes_to_a_socket_as_well() -> None:
    """Before its path."""
    read = parse_url(of(url="unix:///run/redis.sock", password="x"))
    assert (read["path"], read["password"]) == ("/run/redis.sock", "x")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"password": "x"}, "redis.password is of no use to the embedded server"),
        ({"url": "redis://h:1", "user": "a"}, "redis.user is set without redis.password"),
        ({"url": "redis://:p@h:1", "password": "x"}, "redis.password is set, and redis.url names"),
        ({"url": "redis://h:1", "ca_file": "/etc/ssl"}, "redis.ca_file is set, but redis.url is not encrypted"),
        ({"url": "redis://h:1", "sentinel_password": "x"}, "redis.sentinel_password is set, but redis.url names no"),
        ({"url": "redis+sentinel://h/s", "sentinel_user": "a"}, "redis.sentinel_user is set without"),
        ({"url": "rediss://h:1", "ca_file": "/nowhere/ca"}, "redis.ca_file '/nowhere/ca' cannot be read"),
    ],
)
def test_what_does_not_go_together_stops_the_start(keys: dict[str, str], words: str) -> None:
    """One line that names the key, and never the password."""
    with pytest.raises(SettingsError) as address:
        of(**keys)
    assert str(address.value).startswith(words)
    assert "\n" not in str(address.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+sentinel://h:1,i:2", "names no Sentinels or no primary"),
        ("redis+sentinel://h:1,:2/s", "names no Sentinels or no primary"),
        ("redis://h:1,i:2/0", "names several hosts; Sentinels are redis+sentinel://, a cluster is redis+cluster://"),
        ("redis+cluster://h:1,:2", "names no node of a cluster"),
        ("rediss+cluster://h:1/2", "names a database; a cluster has only one"),
        ("redis+other://h:1", "has the scheme 'redis+other'"),
    ],
)
def test_an_address_that_leads_nowhere_stops_the_start(url: str, words: str) -> None:
    """It says how to write it."""
    with pytest.raises(SettingsError, match=re.escape(words)):
        of(url=url)


def test_a_password_that_changes_is_read_at_each_connection(tmp_path: Path) -> None:
    """From its own file, from that of a whole address, and that of the Sentinels; what cannot be read stays."""
    password, url, third = tmp_path / "password", tmp_path / "url", tmp_path / "third"
    password.write_text("first\n")
    url.write_text("redis://u:first@h:1\n")
    third.write_text("first")
    made = [
        read_address(of(url="redis://h:1", user="u", password_file=str(password))),
        read_address(of(url_file=str(url))),
        read_address(of(url="redis+sentinel://h:1/s", sentinel_password_file=str(third))).sentinels[0],
    ]
    assert [one.with_login().password for one in made] == ["first"] * 3
    password.write_text("sec://ond\n")
    url.write_text("redis://v:sec%3A%2F%2Fond@h:1")
    third.write_text("sec://ond")
    assert [one.with_login().password for one in made] == ["sec://ond"] * 3
    assert [one.with_login().user for one in made] == ["u", "v", ""]
    password.unlink()
    url.write_text("nonsense")
    third.write_text("")
    assert [one.with_login().password for one in made] == ["first"] * 3


def test_passwords_of_sentinels_are_masked() -> None:
    """They stand in the address that processes hand on."""
    url = of(url="redis+sentinel://h:1,i:2/s/0", password="hush", sentinel_password="silence", sentinel_user="s")
    shown_url = str(RedisUrl(url))
    assert "hush" not in shown_url
    assert "silence" not in shown_url
    assert "h:1,i:2/s/0" in shown_url


def test_a_password_is_masked() -> None:
    """`shoal config show`."""
    settings = load({"SHOAL_REDIS__URL": "redis://h:1", "SHOAL_REDIS__PASSWORD": "hush-hush"}, path=Path("/dev/null"))
    assert "hush-hush" not in repr(shown(settings)) + repr(settings)
