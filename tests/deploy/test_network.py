"""Who may reach whom in the cluster. The policies are evaluated here; no cluster's network is tried."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.helpers.manifests import (
    EVERYTHING,
    OVERLAYS,
    PLATFORMS,
    WORKLOADS,
    Object,
    copied_to,
    of_kind,
    overlay,
    variant,
    with_all_platforms,
)
from tests.helpers.network import End, reaches

OURS = ("gateway-web", "worker-turns", "worker-jobs", "shoal-redis", "console")
OUTSIDE = {
    "ingress": End({"app.kubernetes.io/name": "ingress-nginx"}, "ingress-nginx"),
    "prometheus": End({"app.kubernetes.io/name": "prometheus"}, "monitoring"),
    "names": End({"k8s-app": "kube-dns"}, "kube-system"),
    "other pod of kube-system": End({"k8s-app": "other"}, "kube-system"),
    "stranger": End({"app": "stranger"}, "elsewhere"),
    "pretender": End({"shoal/role": "worker", "app.kubernetes.io/component": "worker-turns"}, "elsewhere"),
    "unlabelled": End({}, "shoal"),
    "internet": End(address="93.184.216.34"),
    "internet v6": End(address="2606:2800:220:1::1"),
    "private 10": End(address="10.1.2.3"),
    "private 172": End(address="172.20.0.1"),
    "private 192": End(address="192.168.1.1"),
    "carrier": End(address="100.64.0.1"),
    "metadata": End(address="169.254.169.254"),
    "metadata v6": End(address="fd00:ec2::254"),
    "loopback": End(address="127.0.0.1"),
    "multicast": End(address="224.0.0.1"),
    "unique local": End(address="fd12::1"),
    "link local": End(address="fe80::1"),
    "6to4 of a private one": End(address="2002:a01:203::1"),
}
PORTS = {
    "http": 8080,
    "gateway metrics": 9464,
    "worker metrics": 9465,
    "redis": 6379,
    "dns": 53,
    "https": 443,
    "80": 80,
    "hooks": 8090,
    "imaps": 993,
    "smtps": 465,
    "submission": 587,
}

WORKERS = ("worker-turns", "worker-jobs")
ALLOWED = {
    *((who, "shoal-redis", "redis") for who in ("gateway-web", *WORKERS, "console")),
    *((who, "names", "dns") for who in (*OURS, "unlabelled")),
    *((who, where, port) for who in WORKERS for where in ("internet", "internet v6") for port in ("https", "80")),
    ("ingress", "gateway-web", "http"),
}
GATEWAYS = tuple(f"gateway-{name}" for name in PLATFORMS)
OF_PLATFORMS = {
    *((who, "shoal-redis", "redis") for who in GATEWAYS),
    *((who, "names", "dns") for who in GATEWAYS),
    *(
        (who, where, port)
        for who in GATEWAYS
        for where in ("internet", "internet v6")
        for port in (("imaps", "smtps", "submission") if who == "gateway-email" else ("https",))
    ),
    ("ingress", "gateway-whatsapp", "hooks"),
}
"""Beside that, where there are gateways of chat platforms."""


def monitored(pods: tuple[str, ...]) -> set[tuple[str, str, str]]:
    """What Prometheus reaches."""
    seen = [name for name in pods if name.startswith(("gateway", "worker"))]
    return {("prometheus", who, port) for who in seen for port in ("gateway metrics", "worker metrics")}


@pytest.mark.parametrize("name", OVERLAYS)
def test_who_may_reach_whom(name: str) -> None:
    """Row 8: every pair and every port of the table; all that is not in it is refused."""
    objects = overlay(name)
    pods = {
        one["metadata"]["name"]: End(one["spec"]["template"]["metadata"]["labels"])
        for one in of_kind(objects, *WORKLOADS)
    }
    platforms = name == EVERYTHING
    assert set(pods) == {*OURS, *(GATEWAYS if platforms else ())}
    ends = {**OUTSIDE, **pods}
    wanted = ALLOWED | (OF_PLATFORMS if platforms else set()) | (monitored(tuple(pods)) if name != "dev" else set())
    found = {
        (source, target, port)
        for source in ends
        for target in ends
        for port, number in PORTS.items()
        if source != target
        and (ends[source].ours or ends[target].ours)
        and reaches(objects, ends[source], ends[target], number)
    }
    assert found - wanted == set(), "more than the table"
    assert wanted - found == set(), "less than the table"
    assert reaches(objects, pods["gateway-web"], OUTSIDE["names"], 53, "UDP")


def test_with_a_proxy_nothing_else_outside_is_reached(tmp_path: Path) -> None:
    """Neither by workers nor by gateways of platforms; Redis and the name server as before."""
    copied = copied_to(tmp_path)
    with_all_platforms(copied)
    objects = variant(copied, components=("proxy",))
    pods = {
        one["metadata"]["name"]: End(one["spec"]["template"]["metadata"]["labels"])
        for one in of_kind(objects, *WORKLOADS)
    }
    outside = [end for end in OUTSIDE.values() if end.address]
    ports = {*PORTS.values(), 3128}
    found = {
        (name, end.address, port)
        for name, pod in pods.items()
        for end in outside
        for port in ports
        if reaches(objects, pod, end, port)
    }
    assert found == {(name, "10.1.2.3", 3128) for name in (*WORKERS, *GATEWAYS)}
    assert all(reaches(objects, pods[name], pods["shoal-redis"], 6379) for name in (*WORKERS, *GATEWAYS))


@pytest.mark.parametrize("name", OVERLAYS)
def test_no_policy_is_there_for_nothing(name: str) -> None:
    """Without any one of them, somebody reaches more or less."""
    objects = overlay(name)
    whole = table(objects)
    for policy in of_kind(objects, "NetworkPolicy"):
        fewer = [one for one in objects if one is not policy]
        assert table(fewer) != whole, policy["metadata"]["name"]


def table(objects: list[Object]) -> set[tuple[str, str, int]]:
    """What is reached."""
    pods = {
        one["metadata"]["name"]: End(one["spec"]["template"]["metadata"]["labels"])
        for one in of_kind(objects, *WORKLOADS)
    }
    ends = {**OUTSIDE, **pods}
    return {
        (source, target, number)
        for source in ends
        for target in ends
        for number in PORTS.values()
        if reaches(objects, ends[source], ends[target], number)
    }


def test_the_evaluator_knows_what_a_policy_means() -> None:
    """Open without any; a list of peers is "or"; a selector of a namespace and a pod in one peer is "and"."""
    a, b = End({"app": "a"}), End({"app": "b"})
    assert reaches([], a, b, 1)
    deny = {"kind": "NetworkPolicy", "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}
    assert not reaches([deny], a, b, 1)
    allow = yaml.safe_load(
        """
        kind: NetworkPolicy
        spec:
          podSelector: {matchLabels: {app: b}}
          policyTypes: [Ingress]
          ingress:
            - from:
                - podSelector: {matchLabels: {app: a}}
                - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: elsewhere}}
                  podSelector: {matchLabels: {app: c}}
              ports: [{port: 1}]
        """
    )
    assert reaches([deny, allow], a, b, 1)
    assert not reaches([deny, allow], a, b, 2)
    assert not reaches([deny, allow], a, b, 1, "UDP")
    assert not reaches([deny, allow], b, a, 1)
    assert reaches([deny, allow], End({"app": "c"}, "elsewhere"), b, 1)
    assert not reaches([deny, allow], End({"app": "c"}), b, 1)
    assert not reaches([deny, allow], End({"app": "a"}, "elsewhere"), b, 1)


def test_the_table_is_in_the_documentation() -> None:
    """For whoever writes the rules of a network that knows no NetworkPolicies."""
    text = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text()
    for row in ("| workers | internet", "| ingress controller | gateway-web", "| Prometheus | ", "| gateways of chat"):
        assert row in text
