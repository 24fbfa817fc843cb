"""What `redis.*` makes of an address, for every client the same."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from redis.asyncio.connection import parse_url

from shared.errors import SettingsError
from shared.settings import load, redis_url, shown


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
        ({"url": "rediss://h:1", "ca_file": "/nowhere/ca"}, "redis.ca_file '/nowhere/ca' cannot be read"),
    ],
)
def test_what_does_not_go_together_stops_the_start(keys: dict[str, str], words: str) -> None:
    """One line that names the key, and never the password."""
    with pytest.raises(SettingsError) as address:
        of(**keys)
    assert str(address.value).startswith(words)
    assert "\n" not in str(address.value)


def test_a_password_is_masked() -> None:
    """`shoal config show`."""
    settings = load({"SHOAL_REDIS__URL": "redis://h:1", "SHOAL_REDIS__PASSWORD": "hush-hush"}, path=Path("/dev/null"))
    assert "hush-hush" not in repr(shown(settings)) + repr(settings)
