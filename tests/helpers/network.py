"""Who may reach whom by the NetworkPolicies: what a cluster's network does with them, for pods and addresses.

Source: https://kubernetes.io/docs/concepts/services-networking/network-policies/. A pod that no policy selects for a
direction is open in it; selected ones may do what any of their policies allows. Both ends must allow.
"""

from __future__ import annotations

import ipaddress
from functools import cache
from typing import Any, NamedTuple

from tests.helpers.manifests import Object, of_kind


class End(NamedTuple):
    """A pod (its labels, and those of its namespace) or an address outside."""

    labels: dict[str, str] | None = None
    namespace: str = "shoal"
    address: str = ""

    @property
    def ours(self) -> bool:
        """Whether our policies are about it."""
        return self.labels is not None and self.namespace == "shoal"


def reaches(objects: list[Object], source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    """Whether a connection comes about."""
    policies = of_kind(objects, "NetworkPolicy")
    return _allows(policies, source, "Egress", target, port, protocol) and _allows(
        policies, target, "Ingress", source, port, protocol
    )


def _allows(policies: list[Object], pod: End, direction: str, peer: End, port: int, protocol: str) -> bool:
    if not pod.ours:
        return True
    spec = [one["spec"] for one in policies if direction in one["spec"]["policyTypes"]]
    about = [one for one in spec if _selects(one["podSelector"], pod.labels or {})]
    if not about:
        return True
    rules = [rule for one in about for rule in one.get(direction.lower(), ())]
    return any(_rule(rule, direction, peer, port, protocol) for rule in rules)


def _rule(rule: dict[str, Any], direction: str, peer: End, port: int, protocol: str) -> bool:
    ports = rule.get("ports")
    if ports and not any(one.get("protocol", "TCP") == protocol and one.get("port", port) == port for one in ports):
        return False
    peers = rule.get("to" if direction == "Egress" else "from")
    return not peers or any(_peer(one, peer) for one in peers)


def _peer(rule: dict[str, Any], peer: End) -> bool:
    if (block := rule.get("ipBlock")) is not None:
        if not peer.address:
            return False
        return _inside(peer.address, block["cidr"]) and not any(
            _inside(peer.address, one) for one in block.get("except", ())
        )
    if peer.labels is None:
        return False
    if (selector := rule.get("namespaceSelector")) is not None:
        if not _selects(selector, {"kubernetes.io/metadata.name": peer.namespace}):
            return False
    elif peer.namespace != "shoal":
        return False
    return _selects(rule.get("podSelector", {}), peer.labels)


@cache
def _inside(address: str, block: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(block)


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    for name, value in selector.get("matchLabels", {}).items():
        if labels.get(name) != value:
            return False
    for one in selector.get("matchExpressions", ()):
        assert one["operator"] == "In", "this evaluator knows no other"
        if labels.get(one["key"]) not in one["values"]:
            return False
    return True
