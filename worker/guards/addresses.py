"""The network addresses that a tool may reach: the public web, and what the operator adds. Pure:
nothing is looked up here. A caller passes the URL to `parse_target` and every address of its host
to `check_address`, and connects to those addresses only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from shared.errors import SettingsError, ToolFailed
from worker.guards.networks import METADATA, Address, Network, embedded_ipv4, network_kind

WEB_PORTS: Final = frozenset({80, 443})
URL_LIMIT_CHARS: Final = 4096

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*")
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+")
_LOCAL_NAMES: Final = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "home.arpa", "onion")
_DEVIATIONS: Final = frozenset("ßς\u200c\u200d")  # the idna codec below maps these to another host's name

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
            host, port = _parse_host(parts), _parse_port(parts)
            if parts.scheme not in _DEFAULT_PORTS:
                raise ValueError("it must begin with http:// or https://")
        except (ValueError, ToolFailed) as exc:
            raise SettingsError(f"tools.search_url: {exc}; write it as 'https://host/path'") from None
        return cls(frozenset({port}), (AllowRule(host=host, port=port),))


def parse_target(url: str, policy: WebPolicy) -> WebTarget:
    """Return the target of a URL if it may be requested at all; the addresses of a name are left to
    `check_address`. Raises ToolFailed, with a text for the model."""
    url = url.strip()
    if len(url) > URL_LIMIT_CHARS:
        raise ToolFailed(f"the URL has {len(url)} characters; at most {URL_LIMIT_CHARS} are allowed")
    if any(char <= " " or char in "\\\x7f" for char in url):
        raise ToolFailed(f"{url[:80]!r} has blanks, control characters or backslashes in it; percent-encode them")
    try:
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS:
            raise ToolFailed(f"{url[:80]!r} is not a web address; write one that begins with https:// or http://")
        host, port = _parse_host(parts), _parse_port(parts)
    except ValueError:
        raise ToolFailed(f"{url[:80]!r} is not a valid URL; correct it") from None
    address = _parse_address(host)
    if address is None and _is_local(host) and not any(rule.host == host for rule in policy.allowed):
        raise ToolFailed(f"blocked address {host!r}: a name of a local network. Only the public web can be reached")
    if port not in policy.ports and not any(
        rule.port == port and _rule_names_host(rule, host, address) for rule in policy.allowed
    ):
        usual = ", ".join(map(str, sorted(policy.ports)))
        raise ToolFailed(f"blocked port {port} of {host!r}: only {usual} can be reached")
    if address is not None:
        check_address(address, host, port, policy)
    shown = f"[{address}]" if isinstance(address, IPv6Address) else host
    where = shown if port == _DEFAULT_PORTS[parts.scheme] else f"{shown}:{port}"
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._", errors="replace")
    query = "?" + quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]|", errors="replace") if parts.query else ""
    return WebTarget(f"{parts.scheme}://{where}{path}{query}", host, port, address)


def check_address(address: Address, host: str, port: int, policy: WebPolicy) -> None:
    """Raise ToolFailed if this address of `host` must not be connected to. The text names the
    address only if the URL did: the model must not learn how names resolve inside the operator's
    network."""
    kind = network_kind(address)
    if kind is None and (port in policy.ports or _is_allowed(address, host, port, policy)):
        return
    if kind is not None and _is_allowed(address, host, port, policy):
        return
    reason = kind or f"port {port} is not allowed there"
    if _parse_address(host) is not None:
        raise ToolFailed(f"blocked address {address} ({reason}). Only the public web can be reached")
    raise ToolFailed(f"blocked address: {host!r} does not lead to the public web, which alone can be reached")


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
    """Return whether a rule is about this host. A name may also lead into an allowed network; its
    addresses decide that later."""
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
    address = _parse_inet_aton(host)
    if address is None:
        raise ToolFailed(f"{host!r} is not an IPv4 address; correct the URL")
    if str(address) == host:
        return host
    if kind := network_kind(address):
        raise ToolFailed(f"blocked address {address} ({kind}), written as {host!r}. Only the public web can be reached")
    raise ToolFailed(f"blocked address: {host!r} is an unusual way to write {address}; write it so")


def _parse_inet_aton(host: str) -> IPv4Address | None:
    """Parse an address as inet_aton does: 1 to 4 numbers, decimal, octal (0...) or hex (0x...), the
    last one filling the remaining bytes."""
    parts = host.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) and len(part) <= 40 for part in parts):
        return None
    try:
        *high, last = (
            int(part[2:] or "0", 16) if part.startswith("0x") else int(part, 8 if part[0] == "0" else 10)
            for part in parts
        )
    except ValueError:
        return None
    if any(number > 255 for number in high) or last >= 256 ** (4 - len(high)):
        return None
    return IPv4Address(sum(number << (24 - 8 * index) for index, number in enumerate(high)) + last)


def _parse_port(parts: SplitResult) -> int:
    return _DEFAULT_PORTS.get(parts.scheme, 0) if parts.port is None else parts.port


def _parse_address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_local(host: str) -> bool:
    """Return whether a name has a meaning in a local network only. It is not even looked up, so
    that nothing is learned about what exists inside."""
    return "." not in host or any(host == name or host.endswith(f".{name}") for name in _LOCAL_NAMES)


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
