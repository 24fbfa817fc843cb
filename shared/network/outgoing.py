"""The proxy and the certificates of a call, and the process's own rules for both."""

from __future__ import annotations

import functools
import os
import ssl
from importlib.util import find_spec
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from shared.errors import SettingsError
from shared.network.environment import replace_variables
from shared.settings.secret import ProxyUrl
from shared.settings.sections.network import (
    DIRECT,
    EVERYTHING,
    SOCKS,
    NetworkSettings,
    NoProxyRule,
    parse_no_proxy,
)

SOCKS_LIBRARY: Final = "aiohttp_socks"
_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443}


class Outgoing(Struct, frozen=True):
    """Rules for outgoing calls: through the proxy at `proxy`, except to what `no_proxy` names.
    `ca_file` has authorities to trust in addition to the system's. Without both a call is made as
    ever."""

    proxy: ProxyUrl | None = None
    no_proxy: tuple[NoProxyRule, ...] = ()
    ca_file: Path | None = None

    @classmethod
    def from_settings(cls, settings: NetworkSettings) -> Outgoing:
        """Return the rules of the settings."""
        return cls(settings.proxy, tuple(map(parse_no_proxy, settings.no_proxy)), settings.ca_file)

    @property
    def socks(self) -> bool:
        """Whether the proxy is a SOCKS proxy."""
        return self.proxy is not None and urlsplit(self.proxy.reveal()).scheme in SOCKS

    def proxy_for(self, url: str) -> str | None:
        """Return the address of the proxy for a URL, its password included; None: connect
        directly."""
        if self.proxy is None:
            return None
        parts = urlsplit(url)
        return self.proxy_to(parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0))

    def proxy_to(self, host: str, port: int) -> str | None:
        """Return the address of the proxy for a host and port; None: connect directly."""
        if self.proxy is None or any(_matches(rule, host, port) for rule in self.no_proxy):
            return None
        return self.proxy.reveal()

    def tls_context(self) -> ssl.SSLContext | None:
        """Return a context that trusts `ca_file`, too; None: a library's own default is right."""
        return None if self.ca_file is None else _context(self.ca_file)


_current = Outgoing()


def start(settings: NetworkSettings) -> None:
    """Make these the rules of this process, before its first call. The standard variables of the
    environment are replaced, so that no library finds other ones. Raises SettingsError when
    `network.ca_file` cannot be used."""
    global _current
    rules = Outgoing.from_settings(settings)
    if rules.ca_file is not None:
        check_ca_file(rules.ca_file)
    replace_variables(settings)
    _current = rules


def current() -> Outgoing:
    """Return the rules of this process; before `start`: everything directly."""
    return _current


def for_channel(proxy: ProxyUrl | None) -> Outgoing:
    """Return the rules of a channel with a proxy of its own: it is used for all of the channel's
    calls, whatever `network.no_proxy` says; `direct` is none. None: the rules of the process.
    Raises SettingsError for a SOCKS proxy where its library is missing."""
    if proxy is None:
        return _current
    rules = Outgoing(None if proxy.reveal() == DIRECT else proxy, (), _current.ca_file)
    if rules.socks and find_spec(SOCKS_LIBRARY) is None:
        raise SettingsError(
            f"a SOCKS proxy needs the library {SOCKS_LIBRARY!r}, which is missing: "
            "run `make channels`, or install Shoal with its extra 'channels'"
        )
    return rules


def check_ca_file(file: Path) -> None:
    """Raise SettingsError if a file with authorities cannot be read or has none."""
    named = f"network.ca_file {str(file)!r}"
    if not os.access(file, os.R_OK):
        raise SettingsError(f"{named} cannot be read; mount it, or name another")
    try:
        _context(file)
    except (ssl.SSLError, OSError):
        raise SettingsError(f"{named} has no certificates in PEM form; name another") from None


@functools.cache
def _context(ca_file: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=ca_file)
    return context


def _matches(rule: NoProxyRule, host: str, port: int) -> bool:
    if rule.port is not None and rule.port != port:
        return False
    name = host.lower().removesuffix(".")
    try:
        address = ip_address(name)
    except ValueError:
        return rule.host == EVERYTHING or (bool(rule.host) and f".{name}".endswith(f".{rule.host}"))
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if rule.network is None:
        return rule.host == EVERYTHING
    return address in rule.network or (inner is not None and inner in rule.network)
