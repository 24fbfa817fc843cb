"""Addresses of Redis are read as redis-py reads them, which arq uses beside us."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as some
from redis.asyncio.connection import parse_url

from shared.store.client.address import Address, Tls, read_address

WORDS = some.text(some.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


@given(WORDS, WORDS, some.integers(1, 65535), some.integers(0, 15), some.booleans())
def test_what_redis_py_makes_of_an_address_is_what_we_make_of_it(
    user: str, password: str, port: int, db: int, tls: bool
) -> None:
    """Whatever stands in a name or a password."""
    scheme = "rediss" if tls else "redis"
    url = f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@some-host:{port}/{db}"
    parsed = parse_url(url)
    read = read_address(url)
    assert (read.user, read.password) == (parsed["username"], parsed["password"]) == (user, password)
    assert (read.host, read.port, read.db) == (parsed["host"], parsed["port"], parsed["db"])
    assert (read.tls is not None) == tls


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://", Address()),
        ("redis://h", Address(host="h")),
        ("redis://h:1/?db=3", Address(host="h", port=1, db=3)),
        ("redis://:secret@[::1]:7", Address(host="::1", port=7, password="secret")),
        ("unix:///run/redis.sock?db=2", Address(path="/run/redis.sock", db=2)),
        ("unix://u:p@/run/a%20b.sock", Address(path="/run/a b.sock", user="u", password="p")),
        ("rediss://h", Address(host="h", tls=Tls())),
        (
            "rediss://h?ssl_ca_certs=%2Fca&ssl_certfile=c&ssl_keyfile=k&ssl_cert_reqs=none",
            Address(host="h", tls=Tls("/ca", "c", "k", "none")),
        ),
    ],
)
def test_every_form_of_an_address(url: str, address: Address) -> None:
    """What is not said is as usual."""
    assert read_address(url) == address


@pytest.mark.parametrize(
    "url", ["http://h", "h:6379", "", "redis://h:port", "redis://h/x", "rediss://h?ssl_cert_reqs=no"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    """With a ValueError."""
    with pytest.raises(ValueError):
        read_address(url)


def test_a_certificate_is_for_a_host_unless_nobody_looks_at_it(tmp_path: Path) -> None:
    """A file that is not there is told as what it is."""
    strict, lax = Tls().context(), Tls(verify="none").context()
    assert (strict.check_hostname, strict.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (lax.check_hostname, lax.verify_mode) == (False, ssl.CERT_NONE)
    with pytest.raises(OSError, match="No such file"):
        Tls(ca_file=str(tmp_path / "none")).context()
