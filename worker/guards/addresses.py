"""The network addresses that a tool may reach: the public web, and what the operator adds. Pure:
nothing is looked up here. A caller passes the URL to `parse_target` and every address of its host
to `check_address`, and connects to those addresses only."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from shared.errors import SettingsError, ToolFailed

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# `is_global` alone is not enough: it is true for NAT64, multicast and Azure's metadata address, and
# its value for 6to4 and others has changed between patch releases of Python.
_NETWORKS: Final[dict[str, tuple[str, ...]]] = {
    "unspecified": ("0.0.0.0/8", "::/128"),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
    "carrier-grade NAT": ("100.64.0.0/10",),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
    "site-local": ("fec0::/10",),
    "benchmark": ("198.18.0.0/15",),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "6to4 relay": ("192.88.99.0/24",),
    "IPv4-mapped": ("::ffff:0:0/96",),
    "IPv4-compatible": ("::/96",),
    "NAT64": ("64:ff9b::/96", "64:ff9b:1::/48"),
    "Teredo": ("2001::/32",),
    "6to4": ("2002::/16",),
    "documentation": (*("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),),
    "reserved": ("192.0.0.0/24", "240.0.0.0/4", "2001::/23", "3ffe::/16"),
}
_BLOCKED: Final = tuple((ip_network(one), kind) for kind, all in _NETWORKS.items() for one in all)
_PUBLIC_IPV6: Final = IPv6Network("2000::/3")
# Addresses at which clouds hand out the credentials of a machine. Some are public addresses.
METADATA: Final = frozenset(
    ip_address(address)
    for address in (
        *("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200"),
        *("168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
    )
)
_TUNNELS: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))

WEB_PORTS: Final = frozenset({80, 443})
URL_LIMIT_CHARS: Final = 4096
_ONLY: Final = "Only the public web can be reached"

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*")
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+")
# Endings of names that networks and clusters give out themselves. No public name has one of them.
_LOCAL_NAMES: Final = (
    *("localhost", "localdomain", "localdomain6", "local", "internal", "intranet", "private", "lan", "home", "corp"),
    *("home.arpa", "onion", "svc", "pod", "consul", "mail", "default", "kube-system"),
)
# The idna codec below maps these to another host's name
_DEVIATIONS: Final = frozenset("ßς\u200c\u200d")

_LIFTED_BY_NAME: Final = frozenset({"private", "loopback", "carrier-grade NAT"})


class WebTarget(msgspec.Struct, frozen=True):
    """The target of a URL. `url` is rebuilt from the checked parts, in ASCII and without a
    fragment, so that no parser can read it differently. `address` is set if the host is one."""

    url: str
    host: str
    port: int
    address: Address | None = None


class AllowRule(msgspec.Struct, frozen=True):
    """An entry of the operator's list: a host or a network, on one port or on the usual ones."""

    host: str = ""
    network: Network | None = None
    port: int | None = None


class WebPolicy(msgspec.Struct, frozen=True):
    """Public addresses on `ports`, and what `allowed` adds. Cloud metadata is never reachable."""

    ports: frozenset[int] = WEB_PORTS
    allowed: tuple[AllowRule, ...] = ()

    @classmethod
    def from_settings(cls, allow: Iterable[str], ports: Iterable[int] = WEB_PORTS) -> WebPolicy:
        """Parse settings such as `10.1.2.0/24`, `127.0.0.1:8080`, `[::1]:8080`, `wiki.example` or
        `wiki.example:8443`. A name lifts the block of private, loopback and carrier-grade NAT
        addresses for that host alone, a network lifts every block for its addresses. A port in an
        entry is allowed there alone. Raises SettingsError."""
        return cls(frozenset(ports), tuple(map(_parse_rule, allow)))

    @classmethod
    def for_origin(cls, url: str) -> WebPolicy:
        """Return the policy for one server that the operator names, such as a search engine. It may
        be private, on its own port. Raises SettingsError."""
        try:
            parts = urlsplit(url)
            host = _parse_host(parts)
            port = _parse_port(parts)
            if parts.scheme not in _DEFAULT_PORTS:
                raise ValueError("it must begin with http:// or https://")
        except (ValueError, ToolFailed) as exc:
            raise SettingsError(f"tools.search_url: {exc}; write it as 'https://host/path'") from None
        return cls(frozenset({port}), (AllowRule(host=host, port=port),))


PUBLIC_WEB: Final = WebPolicy()


def parse_target(url: str, policy: WebPolicy) -> WebTarget:
    """Return the target of a URL if it may be requested at all; the addresses of a name are left to
    `check_address`. Raises ToolFailed, with a text for the model."""
    url = url.strip()
    if len(url) > URL_LIMIT_CHARS:
        raise ToolFailed(f"the URL has {len(url)} characters; at most {URL_LIMIT_CHARS} are allowed")
    shown = repr(url[:80])
    if any(char <= " " or char in "\\\x7f" for char in url):
        raise ToolFailed(f"{shown} has blanks, control characters or backslashes in it; percent-encode them")
    try:
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS:
            raise ToolFailed(f"{shown} is not a web address; write one that begins with https:// or http://")
        host = _parse_host(parts)
        port = _parse_port(parts)
    except ValueError:
        raise ToolFailed(f"{shown} is not a valid URL; correct it") from None
    address = _parse_address(host)
    named = any(rule.host == host for rule in policy.allowed)
    if address is None and _is_local(host) and not named:
        raise ToolFailed(f"blocked address {host!r}: a name of a local network. {_ONLY}")
    if port not in policy.ports and not any(
        rule.port == port and _rule_names_host(rule, host, address) for rule in policy.allowed
    ):
        usual = ", ".join(map(str, sorted(policy.ports)))
        raise ToolFailed(f"blocked port {port} of {host!r}: only {usual} can be reached")
    if address is not None:
        check_address(address, host, port, policy)
    where = f"[{address}]" if isinstance(address, IPv6Address) else host
    if port != _DEFAULT_PORTS[parts.scheme]:
        where += f":{port}"
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._", errors="replace")
    query = quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]|", errors="replace")
    query = f"?{query}" if query else ""
    return WebTarget(f"{parts.scheme}://{where}{path}{query}", host, port, address)


def check_address(address: Address, host: str, port: int, policy: WebPolicy) -> None:
    """Raise ToolFailed if this address of `host` must not be connected to. The text names it only
    if the URL did: a model must not learn how names resolve in the operator's network."""
    kind = network_kind(address)
    if kind is None and (port in policy.ports or _is_allowed(address, host, port, policy)):
        return
    if kind is not None and _is_allowed(address, host, port, policy):
        return
    reason = kind or f"port {port} is not allowed there"
    if _parse_address(host) is not None:
        raise ToolFailed(f"blocked address {address} ({reason}). {_ONLY}")
    raise ToolFailed(f"blocked address: {host!r} does not lead to the public web, which alone can be reached")


def network_kind(address: Address) -> str | None:
    """Return the kind of a non-public address, such as `loopback`; None for a public one."""
    if address in METADATA:
        return "cloud metadata"
    for network, kind in _BLOCKED:
        if address in network:
            return kind
    if isinstance(address, IPv6Address):
        return None if address in _PUBLIC_IPV6 else "reserved"
    return None if address.is_global else "reserved"


def embedded_ipv4(address: Address) -> IPv4Address | None:
    """Return the IPv4 address inside a mapped or tunnelled one; None for any other."""
    if isinstance(address, IPv4Address) or int(address) < 2:  # :: and ::1 carry nothing
        return None
    if any(address in network for network in _TUNNELS):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo


def _is_allowed(address: Address, host: str, port: int, policy: WebPolicy) -> bool:
    inner = embedded_ipv4(address)
    if address in METADATA:
        return False
    for rule in policy.allowed:
        if port not in (policy.ports if rule.port is None else {rule.port}):
            continue
        if rule.network is not None and address in rule.network:
            return inner is None or network_kind(inner) is None
        if rule.host and rule.host == host and network_kind(address) in {None, *_LIFTED_BY_NAME}:
            return True
    return False


def _rule_names_host(rule: AllowRule, host: str, address: Address | None) -> bool:
    """Return whether a rule is about this host. The addresses of a name are compared later."""
    if rule.network is None:
        return rule.host == host
    return address is None or address in rule.network


def _parse_host(parts: SplitResult) -> str:
    """Return the host in its canonical spelling: lower case, ASCII, no brackets, no final dot."""
    if "@" in parts.netloc:
        raise ToolFailed("a URL with a user name or password in it is not fetched; leave that part out")
    host = parts.hostname or ""
    if parts.netloc.startswith("["):
        if "%" in host:
            raise ToolFailed(f"blocked address {host[:80]!r}: an address with a zone is local")
        return str(IPv6Address(host))
    if not host.isascii():
        if _DEVIATIONS & set(host) or len(host) > 253:
            raise ToolFailed(f"write the host {host[:80]!r} in its ASCII form, which begins with 'xn--'")
        host = host.encode("idna").decode("ascii").lower()
    host = host.removesuffix(".")
    if not _HOST.fullmatch(host):
        raise ToolFailed(f"{host[:80]!r} is not a host name; correct the URL")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return _canonical_ipv4(host)
    return host


def _canonical_ipv4(host: str) -> str:
    """Return an IPv4 address in its usual spelling. Refuse spellings that programs read differently
    (octal, hex, short forms), naming the address they could lead to."""
    try:
        # A bare `0x` is nothing here, and 0 on some systems.
        address = IPv4Address(socket.inet_aton(re.sub(r"0x(?=\.|$)", "0x0", host)))
    except OSError:
        raise ToolFailed(f"{host!r} is not an IPv4 address; correct the URL") from None
    if str(address) == host:
        return host
    if kind := network_kind(address):
        raise ToolFailed(f"blocked address {address} ({kind}), written as {host!r}. {_ONLY}")
    raise ToolFailed(f"blocked address: {host!r} is an unusual way to write {address}; write it so")


def _parse_port(parts: SplitResult) -> int:
    return _DEFAULT_PORTS.get(parts.scheme, 0) if parts.port is None else parts.port


def _parse_address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_local(host: str) -> bool:
    """Return whether a name is local. It is not even looked up: nothing is learned of it."""
    return "." not in host or any(f".{host}".endswith(f".{name}") for name in _LOCAL_NAMES)


def _parse_rule(entry: str) -> AllowRule:
    try:
        if "/" in entry:
            return AllowRule(network=ip_network(entry.strip()))
        parts = urlsplit(f"//{entry.strip()}")
        host = _parse_host(parts)
        address = _parse_address(host)
        port = parts.port
        if parts.path or parts.query or parts.fragment:
            raise ValueError("a path has no meaning here")
    except (ValueError, ToolFailed) as exc:
        raise SettingsError(
            f"tools.web_allow: {entry!r} is not a host, address or network ({exc}); "
            "write one such as 'wiki.example:8443', '127.0.0.1:8080' or '10.1.2.0/24'"
        ) from None
    network = None if address is None else ip_network(address)
    return AllowRule(host="" if network else host, network=network, port=port)
