"""The decision on each outgoing call: through the proxy or not, and whom to trust."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SettingsError
from shared.network import outgoing
from shared.network.outgoing import Outgoing, for_channel
from shared.settings import NetworkSettings, ProxyUrl
from tests.helpers.certificates import authority
from tests.helpers.egress_proxy import outgoing_by

PROXY = "http://proxy.example:3128"


def goes_direct(url: str, *no_proxy: str) -> bool:
    """Whether a URL is not led through the proxy."""
    return Outgoing.from_settings(NetworkSettings(ProxyUrl(PROXY), no_proxy)).proxy_for(url) is None


@pytest.mark.parametrize(
    ("entry", "direct", "proxied"),
    [
        ("example.org", ("http://example.org", "https://a.b.example.org:8443/x"), ("https://badexample.org",)),
        (".example.org", ("https://example.org", "wss://a.example.org"), ("https://example.org.evil.net",)),
        ("*.example.org", ("https://a.example.org",), ("https://example.com",)),
        ("Example.ORG.", ("https://EXAMPLE.org./",), ("https://org",)),
        ("example.org:8443", ("https://example.org:8443",), ("https://example.org", "http://example.org:80")),
        ("example.org:443", ("https://a.example.org", "wss://example.org"), ("http://example.org",)),
        ("bücher.example", ("https://xn--bcher-kva.example",), ("https://b.example",)),
        ("10.0.0.0/8", ("http://10.1.2.3:8000/v1", "http://[::ffff:10.1.2.3]/"), ("http://11.0.0.1", "http://ten")),
        ("10.1.2.3", ("http://10.1.2.3",), ("http://10.1.2.34", "http://110.1.2.3")),
        ("10.1.2.3:8000", ("http://10.1.2.3:8000",), ("http://10.1.2.3",)),
        ("fd00::/8", ("http://[fd12::1]:80/",), ("http://[fe80::1]/",)),
        ("::1", ("http://[::1]:8080",), ("http://127.0.0.1",)),
        ("[::1]:8080", ("http://[::1]:8080",), ("http://[::1]",)),
        ("*", ("https://anything.example", "http://10.0.0.1"), ()),
        ("localhost", ("http://localhost:11434",), ("http://127.0.0.1:11434",)),
    ],
)
def test_no_proxy_means_what_it_means_to_curl(entry: str, direct: tuple[str, ...], proxied: tuple[str, ...]) -> None:
    """A name with all below it, an address, a network, each with a port or without."""
    for url in direct:
        assert goes_direct(url, "other.example", entry), url
    for url in proxied:
        assert not goes_direct(url, "other.example", entry), url


def test_loopback_alone_is_excepted_at_first() -> None:
    """No proxy can reach this machine's own services; everything else goes through it."""
    rules = Outgoing.from_settings(NetworkSettings(ProxyUrl(PROXY)))
    assert rules.proxy_for("http://127.0.0.1:11434/v1") is None
    assert rules.proxy_for("http://localhost/") is None
    assert rules.proxy_for("http://10.0.0.1/") == rules.proxy_for("https://api.example") == PROXY


_LABEL = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8).filter(lambda one: not one.isdigit())
_NAME = st.lists(_LABEL, min_size=2, max_size=4).map(".".join)


@given(_NAME, _NAME)
def test_a_name_excepts_itself_and_what_is_below_it(name: str, entry: str) -> None:
    """Whatever the names are."""
    assert goes_direct(f"https://{name}/", name)
    assert goes_direct(f"https://sub.{name}/", name)
    assert goes_direct(f"https://{name}/", entry) == f".{name}".endswith(f".{entry}")


@given(st.ip_addresses(), st.integers(0, 32))
def test_a_network_excepts_its_addresses(address: object, bits: int) -> None:
    """Of both families, in the spelling of a URL."""
    text = str(address)
    assert goes_direct(f"http://{f'[{text}]' if ':' in text else text}:81/", f"{text}/{bits}")


def test_without_a_proxy_everything_is_direct() -> None:
    """The default: nothing changes for who has none."""
    assert Outgoing().proxy_for("https://api.example") is None
    assert Outgoing().tls_context() is None


def test_a_channel_may_have_a_way_of_its_own() -> None:
    """It then is used for all of the channel's calls; `direct` is none at all."""
    with outgoing_by(NetworkSettings(ProxyUrl(PROXY))):
        assert for_channel(None).proxy_for("https://api.example") == PROXY
        own = for_channel(ProxyUrl("socks5://socks.example:1080"))
        assert own.socks
        assert own.proxy_for("http://127.0.0.1/") == "socks5://socks.example:1080"
        assert for_channel(ProxyUrl("direct")).proxy_for("https://api.example") is None


def test_a_socks_proxy_without_its_library_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the slim image, where WhatsApp and Matrix need no library of their own."""
    monkeypatch.setattr("shared.network.outgoing.SOCKS_LIBRARY", "aiohttp_sockz")
    with pytest.raises(SettingsError, match="'aiohttp_sockz', which is missing: run `make channels`"):
        for_channel(ProxyUrl("socks5://a:1"))


def test_authorities_are_added_to_the_systems(tmp_path: Path) -> None:
    """Who names the company's own still trusts everybody else's."""
    ours = Outgoing(ca_file=authority(tmp_path)).tls_context()
    assert ours is not None
    assert ours.verify_mode is ssl.CERT_REQUIRED
    assert len(ours.get_ca_certs()) == len(ssl.create_default_context().get_ca_certs()) + 1


@pytest.mark.parametrize("text", [None, "", "nothing of that kind"])
def test_a_file_without_certificates_ends_the_start(tmp_path: Path, text: str | None) -> None:
    """It would otherwise show as one failed call after the other."""
    file = tmp_path / "ca.crt"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=r"network\.ca_file .*ca\.crt' (cannot be read|has no certificates)"):
        outgoing.start(NetworkSettings(ca_file=file))


def test_libraries_find_the_operators_proxy_in_the_environment_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of providers and packages read it by themselves, in either spelling."""
    names = ("HTTP_PROXY", "https_proxy", "ALL_PROXY", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    every = {*names, *(name.lower() for name in names), *(name.upper() for name in names), "http_proxy", "HTTPS_PROXY"}
    for name in every:
        monkeypatch.setenv(name, "http://theirs.example:1")
    with outgoing_by(NetworkSettings()):
        outgoing.start(NetworkSettings(ProxyUrl(PROXY), ("a.example", "10.0.0.0/8")))
        assert {os.environ[name] for name in ("HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy")} == {PROXY}
        assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == "a.example,10.0.0.0/8"
        assert not {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"} & set(os.environ)
        outgoing.start(NetworkSettings())
        assert not [name for name in os.environ if "proxy" in name.lower()]
