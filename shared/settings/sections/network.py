"""Settings of the ways out of the building, `[network]`: the proxy, its exceptions, and
certificates."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from shared.settings.secret import ProxyUrl

DIRECT: Final = "direct"
PROXY_KEY: Final = "proxy"  # of a channel's table, too; its value may hold a password
LOOPBACK: Final = ("localhost", "127.0.0.0/8", "::1")
SOCKS: Final = ("socks5", "socks5h")
EVERYTHING: Final = "*"

PROXY_VARIABLES: Final = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
NO_PROXY_VARIABLE: Final = "NO_PROXY"
CA_VARIABLE: Final = "SSL_CERT_FILE"

_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


class NetworkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The way of every outgoing call, but to Redis. `proxy` is an HTTP proxy
    (`http://user:password@host:3128`), which all calls go through, except to the hosts in
    `no_proxy`: names (with all names below them), addresses and networks, each with or without a
    port, or `*`. `ca_file` has authorities that are trusted in addition to the system's. With
    `from_environment` the variables HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY and SSL_CERT_FILE
    fill in what is not set here; without it they are ignored."""

    proxy: ProxyUrl | None = None
    no_proxy: tuple[str, ...] = LOOPBACK
    ca_file: Path | None = None
    from_environment: bool = False


class NoProxyRule(Struct, frozen=True):
    """One entry of `network.no_proxy`: a name or a network, at one port or at all."""

    host: str = ""
    network: IPv4Network | IPv6Network | None = None
    port: int | None = None


def parse_no_proxy(entry: str) -> NoProxyRule:
    """Parse an entry such as `example.org`, `.example.org`, `10.0.0.0/8`, `[::1]:8080` or `*`.
    Raises ValueError."""
    text = entry.strip().lower()
    if text == EVERYTHING:
        return NoProxyRule(EVERYTHING)
    if "/" in text or (text.count(":") > 1 and not text.startswith("[")):
        return NoProxyRule(network=ip_network(text, strict=False))
    parts = urlsplit(f"//{text}")
    host = (parts.hostname or "").removeprefix("*").removeprefix(".").removesuffix(".")
    if parts.path or parts.query or parts.fragment or "@" in text or not host:
        raise ValueError("it is not a host")
    try:
        return NoProxyRule(network=ip_network(host), port=parts.port)
    except ValueError:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    if not _NAME.fullmatch(name):
        raise ValueError("it is not a host")
    return NoProxyRule(name, port=parts.port)


def channel_proxy_problem(value: ProxyUrl) -> str | None:
    """Return what is wrong with the proxy of a channel, as the end of a sentence that begins with
    its key."""
    return None if value.reveal() == DIRECT else proxy_problem(value, ("http", *SOCKS))


def proxy_problem(value: ProxyUrl, schemes: Collection[str] = ("http",)) -> str | None:
    """Return what is wrong with the address of a proxy, as the end of a sentence that begins with
    its key. The address is never quoted: it may hold a password."""
    url = value.reveal()
    advice = "write one such as http://proxy.example:3128"
    try:
        parts = urlsplit(url)
        if not parts.scheme or not parts.netloc:
            return f"is not a whole address; {advice}"
        if parts.scheme in SOCKS and parts.scheme not in schemes:
            return "is a SOCKS proxy, which only a channel can use: write it as channels.<name>.proxy"
        if parts.scheme not in schemes:
            known = " or ".join(schemes)
            return f"begins with {parts.scheme!r}, and a proxy is reached by {known}; {advice}"
        if not parts.hostname or not parts.port or any(char <= " " or char > "~" for char in url):
            return f"needs a host and a port; {advice}"
    except ValueError:
        return f"is not an address; {advice}"
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        return f"has something after its port (a / in a password is written %2F); {advice}"
    return None


def no_proxy_problem(entries: Iterable[str]) -> str | None:
    """Return what is wrong with `network.no_proxy`, as the end of a sentence that begins with the
    key."""
    for entry in entries:
        try:
            parse_no_proxy(entry)
        except (ValueError, UnicodeError):
            return f"has {entry!r}; write hosts and networks such as 'example.org', '10.0.0.0/8' or 'wiki:8080'"
    return None


def with_variables(
    network: NetworkSettings,
    environ: Mapping[str, str],
    problems: list[str],
) -> NetworkSettings:
    """Return the settings with what the standard variables add, where `from_environment` says so;
    what is wrong with a variable is added to `problems`."""
    if not network.from_environment:
        return network
    found = dict(_variables(environ))
    changes: dict[str, object] = {}
    named = {found[name] for name in PROXY_VARIABLES[:2] if name in found}
    if network.proxy is None and len(named) > 1:
        problems.append("HTTP_PROXY and HTTPS_PROXY name different proxies; write one of them as network.proxy")
    elif network.proxy is None and (proxies := [found[name] for name in PROXY_VARIABLES if name in found]):
        proxy = proxies[0]
        url = ProxyUrl(proxy if "://" in proxy else f"http://{proxy}")
        if trouble := proxy_problem(url):
            problems.append(f"network.proxy (from the environment) {trouble}")
        changes["proxy"] = url
    if network.no_proxy == LOOPBACK and (text := found.get(NO_PROXY_VARIABLE)):
        entries = tuple(dict.fromkeys((*LOOPBACK, *filter(None, re.split(r"[\s,]+", text)))))
        if trouble := no_proxy_problem(entries):
            problems.append(f"network.no_proxy (from NO_PROXY) {trouble}")
        changes["no_proxy"] = entries
    if network.ca_file is None and (file := environ.get(CA_VARIABLE)):
        changes["ca_file"] = Path(file)
    return msgspec.structs.replace(network, **changes)


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that are set. The lower-case spelling wins, as in curl."""
    for name in (*PROXY_VARIABLES, NO_PROXY_VARIABLE):
        if value := environ.get(name.lower()) or environ.get(name):
            yield name, value.strip()
