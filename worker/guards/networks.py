"""The networks that are not the public internet, by kind."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# `is_global` alone is not enough: it is true for NAT64, multicast and Azure's metadata address, and its
# value for 6to4 and others has changed between patch releases of Python.
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
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
