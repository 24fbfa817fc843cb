"""Only the public web, however an address is written; and what an operator allows beyond it."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from shared.errors import SettingsError, ToolFailed
from shared.guards.addresses import WebPolicy, check_address, network_kind, parse_target

PUBLIC = WebPolicy()


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("100.100.100.200", "cloud metadata"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("168.63.129.16", "cloud metadata"),
        ("169.254.1.1", "link-local"),
        ("169.254.169.254", "cloud metadata"),
        ("169.254.170.2", "cloud metadata"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.0.0.1", "reserved"),
        ("192.0.0.192", "cloud metadata"),
        ("192.0.2.1", "documentation"),
        ("192.88.99.1", "6to4 relay"),
        ("192.168.1.1", "private"),
        ("198.18.0.1", "benchmark"),
        ("198.19.255.255", "benchmark"),
        ("198.51.100.1", "documentation"),
        ("203.0.113.1", "documentation"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.250", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::7f00:1", "IPv4-compatible"),
        ("::ffff:127.0.0.1", "IPv4-mapped"),
        ("::ffff:8.8.8.8", "IPv4-mapped"),
        ("64:ff9b::7f00:1", "NAT64"),
        ("64:ff9b::808:808", "NAT64"),
        ("64:ff9b:1::a00:1", "NAT64"),
        ("100::1", "reserved"),
        ("2001::1", "Teredo"),
        ("2001:2::1", "reserved"),
        ("2001:10::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("2002:7f00:1::", "6to4"),
        ("2002:808:808::1", "6to4"),
        ("3ffe::1", "reserved"),
        ("3fff::1", "documentation"),
        ("5f00::1", "reserved"),
        ("fc00::1", "private"),
        ("fd00::1", "private"),
        ("fd00:ec2::254", "cloud metadata"),
        ("fd20:ce::254", "cloud metadata"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("ff0e::1", "multicast"),
    ],
)
def test_an_address_that_is_not_public_is_blocked(address: str, kind: str) -> None:
    """By its sort, also those that the standard library calls global; and never for a name either."""
    assert network_kind(ip_address(address)) == kind
    with pytest.raises(ToolFailed, match="blocked address") as failure:
        check_address(ip_address(address), "innocent.example", 443, PUBLIC)
    assert address not in str(failure.value), "what a name leads to inside stays private"


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00::1"])
def test_a_public_address_passes(address: str) -> None:
    """The networks are not drawn too wide."""
    assert network_kind(ip_address(address)) is None
    check_address(ip_address(address), "innocent.example", 443, PUBLIC)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0X7F.0.0.1", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("00000000177.0.0.1", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("0x", "0.0.0.0"),
        ("2852039166", "169.254.169.254"),
        ("0xa9.0xfe.0xa9.0xfe", "169.254.169.254"),
        ("0251.0376.0251.0376", "169.254.169.254"),
        ("１２７.0.0.1", "127.0.0.1"),
        ("127。0。0。1", "127.0.0.1"),
        ("①②⑦.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("[::ffff:127.0.0.1]", "::ffff:7f00:1"),
        ("[::ffff:7f00:1]", "::ffff:7f00:1"),
        ("[::127.0.0.1]", "::7f00:1"),
        ("[64:ff9b::169.254.169.254]", "64:ff9b::a9fe:a9fe"),
        ("[2002:a9fe:a9fe::]", "2002:a9fe:a9fe::"),
        ("[fe80::1%25eth0]", "fe80::1%25eth0"),
    ],
)
def test_every_spelling_of_a_blocked_address_is_blocked(host: str, address: str) -> None:
    """Decimal, octal, hex, short, full width, bracketed: the text names what it would lead to."""
    with pytest.raises(ToolFailed) as failure:
        parse_target(f"http://{host}/latest/meta-data", PUBLIC)
    assert str(failure.value).startswith("blocked address")
    if address.startswith("::ffff"):
        assert "IPv4-mapped" in str(failure.value)
    else:
        assert address in str(failure.value)


@pytest.mark.parametrize("host", ["134744072", "8.8.2056", "0x08080808", "010.8.8.8"])
def test_a_public_address_in_an_odd_spelling_is_refused_too(host: str) -> None:
    """Programs disagree on what these mean, so nobody shall have to guess."""
    with pytest.raises(ToolFailed, match=r"unusual way to write 8\.8\.8\.8"):
        parse_target(f"http://{host}/", PUBLIC)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org:80/",
        "javascript:alert(1)",
        "data:text/html,hi",
        "//example.org/",
        "example.org",
        "",
        "http://",
        "http:///path",
        "http://user@example.org/",
        "http://user:hunter2@example.org/",
        "http://example.org@127.0.0.1/",
        "http://127.0.0.1\\@example.org/",
        "http://example.org\t/",
        "http://exa mple.org/",
        "http://example.org:22/",
        "http://example.org:6379/",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://example.org:x/",
        "http://[::1/",
        "http://[v1.x]/",
        "http://exam%70le.org/",
        "http://1.2.3.4.5/",
        "http://example.0x/",
        "http://256.1.1.1/",
        "http://09.1.1.1/",
        "http://example..org/",
        "http://.example.org/",
        "http://example.org../",
        "http://-example.org/",
        "http://" + "a" * 64 + ".org/",
        "http://" + "a." * 130 + "org/",
        "http://example.org/" + "x" * 5000,
        "http://straße.example/",
        "http://\ud800.example/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.localhost/",
        "http://redis/",
        "http://printer.local/",
        "http://metadata.google.internal/",
        "http://router.home.arpa/",
        "http://localhost.localdomain/",
        "http://valkey.shoal.svc/",
        "http://kubernetes.default/",
        "http://valkey.shoal.svc.cluster.local/",
        "http://10-0-0-1.shoal.pod/",
        "http://vault.service.consul/",
    ],
)
def test_a_url_that_is_no_plain_web_address_is_refused(url: str) -> None:
    """Before anything is looked up, with a text for the model."""
    with pytest.raises(ToolFailed) as failure:
        parse_target(url, PUBLIC)
    assert "hunter2" not in str(failure.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (" https://example.org ", "https://example.org/"),
        ("HTTPS://EXAMPLE.org.:443/A?b=c#d", "https://example.org/A?b=c"),
        ("http://example.org:443/", "http://example.org:443/"),
        ("http://bücher.example/ä?ö=ü", "http://xn--bcher-kva.example/%C3%A4?%C3%B6=%C3%BC"),
        ("http://xn--bcher-kva.example/%C3%A4", "http://xn--bcher-kva.example/%C3%A4"),
        ("http://8.8.8.8/", "http://8.8.8.8/"),
        ("http://[2606:4700:0::1111]/x", "http://[2606:4700::1111]/x"),
        ("http://example.org/\ud800", "http://example.org/%3F"),
    ],
)
def test_a_url_is_rebuilt_from_the_parts_that_were_checked(url: str, place: str) -> None:
    """The request goes to what was checked: the original text is never parsed a second time."""
    assert parse_target(url, PUBLIC).url == place


def test_an_operator_can_allow_a_network_an_address_or_a_name() -> None:
    """Each on its own port or on the usual ones, and nothing beside it."""
    policy = WebPolicy.from_settings(["10.1.0.0/16", "127.0.0.1:8080", "[::1]:8080", "wiki.internal:8443", "intra"])
    parse_target("http://10.1.2.3/", policy)
    parse_target("http://127.0.0.1:8080/", policy)
    parse_target("http://[::1]:8080/", policy)
    check_address(ip_address("10.9.9.9"), parse_target("https://wiki.internal:8443/", policy).host, 8443, policy)
    check_address(ip_address("127.0.0.1"), parse_target("https://intra/", policy).host, 443, policy)
    for url in ("http://10.2.0.1/", "http://10.1.2.3:22/", "http://127.0.0.1/", "http://127.0.0.2:8080/"):
        with pytest.raises(ToolFailed, match="blocked"):
            parse_target(url, policy)
    with pytest.raises(ToolFailed, match="blocked port"):
        parse_target("https://wiki.internal/x:8443", WebPolicy.from_settings(["wiki.internal"], ports=(80,)))
    for host, port, address in [
        ("wiki.internal", 443, "10.9.9.9"),
        ("other.example", 8443, "10.9.9.9"),
        ("other.example", 8080, "8.8.8.8"),
        ("intra", 80, "169.254.1.1"),
        ("intra", 80, "ff02::1"),
    ]:
        with pytest.raises(ToolFailed, match="blocked"):
            check_address(ip_address(address), host, port, policy)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "64:ff9b::a9fe:a9fe", "::ffff:169.254.169.254", "fd00:ec2::254"]
)
def test_nobody_can_allow_a_metadata_service(address: str) -> None:
    """Not by a network around it, not by a name, not by a tunnel to it."""
    policy = WebPolicy.from_settings(["0.0.0.0/0", "::/0", "name.example"])
    with pytest.raises(ToolFailed, match="blocked"):
        check_address(ip_address(address), "name.example", 80, policy)


def test_an_allowed_tunnel_leads_to_public_addresses_only() -> None:
    """On a network that has nothing but NAT64, an operator may allow it without opening what is inside."""
    policy = WebPolicy.from_settings(["64:ff9b::/96"])
    check_address(ip_address("64:ff9b::808:808"), "a.example", 443, policy)
    with pytest.raises(ToolFailed, match="blocked"):
        check_address(ip_address("64:ff9b::7f00:1"), "a.example", 443, policy)


@pytest.mark.parametrize(
    "entry", ["", "10.0.0.0/33", "a b", "host:port", "http://host/", "10.0.0.1/8", "user@host", "127.1"]
)
def test_an_entry_that_allows_nothing_clear_stops_the_start(entry: str) -> None:
    """One line that names the key and says how to write it."""
    with pytest.raises(SettingsError, match=r"tools\.web_allow"):
        WebPolicy.from_settings([entry])


def test_an_engine_of_the_operator_is_the_one_place_that_its_policy_adds() -> None:
    """A private search server does not open its neighbours."""
    policy = WebPolicy.for_origin("http://searxng:8080/search")
    check_address(ip_address("10.0.0.7"), parse_target("http://searxng:8080/x", policy).host, 8080, policy)
    for url in ("http://redis:8080/", "http://searxng/", "http://10.0.0.7:8080/"):
        with pytest.raises(ToolFailed, match="blocked"):
            parse_target(url, policy)
    for url in ("http://user:hunter2@searxng/", "searxng:8080", "ftp://searxng/", "http://"):
        with pytest.raises(SettingsError, match=r"tools\.search_url") as failure:
            WebPolicy.for_origin(url)
        assert "hunter2" not in str(failure.value)
