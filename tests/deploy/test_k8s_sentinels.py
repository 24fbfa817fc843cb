"""The component redis-sentinel: valid, confined, reached by nobody else, and under names that its certificate has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from shared.settings import Settings, load
from shared.store.client.address import read_address
from tests.deploy.test_k8s import check_settings
from tests.deploy.test_k8s_schemas import validated
from tests.helpers.kubernetes_schemas import VERSIONS
from tests.helpers.manifests import ROOT, SENTINELS, WORKLOADS, Object, environment, named, of_kind, overlay, pods
from tests.helpers.need import need
from tests.helpers.network import End, reaches
from tests.helpers.pod_policy import problems

SERVERS = ("shoal-redis", "shoal-sentinel")


@pytest.fixture
def objects() -> list[Object]:
    """The production overlay with Sentinels."""
    return overlay(SENTINELS)


def settings_of(objects: list[Object], name: str) -> Settings:
    """Where a Deployment finds Redis, by its variables."""
    [main] = named(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"]
    found = {key: value for key, value in environment(main).items() if key.startswith("SHOAL_REDIS__")}
    return load(
        {key: value for key, value in found.items() if not key.endswith("_FILE")} | {"SHOAL_REDIS__PASSWORD": "x"}
    )


def test_it_is_valid_confined_and_in_words_that_pods_understand(objects: list[Object]) -> None:
    """For the oldest and the newest Kubernetes; a small node can have it, too."""
    small = overlay("dev-redis-small+redis-sentinel+small")
    for version in (VERSIONS[0], VERSIONS[-1]):
        assert validated([*objects, *small], version) == []
    assert list(problems(objects)) == list(problems(small)) == []
    check_settings(objects)
    assert [len(pod["containers"]) for name, pod in pods(small) if name in SERVERS] == [1, 1]


def test_every_process_asks_each_sentinel_under_a_name_of_the_certificate(
    objects: list[Object], tmp_path: Path
) -> None:
    """A name stays when its pod gets a new address; TLS refuses one that the certificate does not have."""
    need("openssl")
    subprocess.run([ROOT / "deploy/make-secrets", tmp_path / "secrets"], check=True, capture_output=True)
    command = ["openssl", "x509", "-in", str(tmp_path / "secrets/tls.crt"), "-noout", "-ext", "subjectAltName"]
    certified = set(
        re.findall(r"DNS:([^,\s]+)", subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )
    hosts = {
        name: {f"{name}-{n}.{spec['serviceName']}" for n in range(spec["replicas"])}
        for name, spec in ((name, named(objects, "StatefulSet", name)["spec"]) for name in SERVERS)
    }
    for name in ("gateway-web", "worker-turns", "worker-jobs", "console"):
        redis = settings_of(objects, name).redis
        address = read_address(redis.url.reveal())
        assert {one.host for one in address.sentinels} == hosts["shoal-sentinel"] <= certified
        assert redis.copies == 2
    assert hosts["shoal-redis"] <= certified
    scripts = named(objects, "ConfigMap", "shoal-redis-config")["data"]
    assert f"service={address.service}\n" in scripts["servers"]
    assert "numbers='0 1 2'" in scripts["servers"]


def test_who_may_reach_servers_and_sentinels(objects: list[Object]) -> None:
    """Shoal both, servers and Sentinels each other, a backup only servers; neither goes anywhere else."""
    ends = {
        one["metadata"]["name"]: End(one["spec"]["template"]["metadata"]["labels"])
        for one in of_kind(objects, *WORKLOADS)
    }
    ends |= {
        "backup": End({"shoal/role": "backup"}),
        "stranger": End({"app.kubernetes.io/component": "redis"}, "elsewhere"),
        "internet": End(address="93.184.216.34"),
        "private": End(address="10.1.2.3"),
    }
    ours = {name for name in ends if name.startswith(("gateway", "worker", "console", "shoal"))}
    found = {
        (source, target, port)
        for source in ends
        for target in ends
        for port in (6379, 26379, 443, 53)
        if (source in SERVERS or target in SERVERS) and reaches(objects, ends[source], ends[target], port)
    }
    # Both ports among servers and Sentinels: one policy for the six.
    among = {(one, other, port) for one in SERVERS for other in SERVERS for port in (6379, 26379)}
    shoal = {(name, "shoal-redis", 6379) for name in ours} | {(name, "shoal-sentinel", 26379) for name in ours}
    assert found == among | shoal


def test_one_of_them_at_a_time_goes_on_purpose(objects: list[Object]) -> None:
    """Apart where there are nodes for it; the primary hands over first."""
    for name in SERVERS:
        spec = named(objects, "StatefulSet", name)["spec"]
        budget = named(objects, "PodDisruptionBudget", name)["spec"]
        assert (spec["replicas"], budget["maxUnavailable"]) == (3, 1)
        assert budget["selector"] == spec["selector"]
        for one in spec["template"]["spec"]["topologySpreadConstraints"]:
            assert one["labelSelector"] == spec["selector"]
            assert one["whenUnsatisfiable"] == "ScheduleAnyway"
        service = named(objects, "Service", name)["spec"]
        assert service["publishNotReadyAddresses"]
        assert service["clusterIP"] == "None"
    [redis] = named(objects, "StatefulSet", "shoal-redis")["spec"]["template"]["spec"]["containers"]
    assert redis["lifecycle"]["preStop"]["exec"]["command"] == ["sh", "/etc/valkey/hand-over"]
