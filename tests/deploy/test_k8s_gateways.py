"""One gateway for each chat platform: what k8s/gateways says of them."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.choice import problems_of
from gateway.platform.registry import PLATFORMS as HERE
from shared.settings import Settings, load
from tests.deploy.test_k8s import SECRETS, check_settings
from tests.deploy.test_k8s_schemas import validated
from tests.helpers.kubelet import Cluster
from tests.helpers.kubernetes_schemas import VERSIONS
from tests.helpers.local_cluster import local_cluster, start_redis
from tests.helpers.manifests import (
    EVERYTHING,
    K8S,
    PLATFORMS,
    ROOT,
    copied_to,
    environment,
    named,
    of_kind,
    overlay,
    parsed,
    with_all_platforms,
)
from tests.helpers.network import End, reaches
from tests.helpers.pod_policy import problems

DOC = (ROOT / "docs" / "kubernetes.md").read_text()
GIVEN = {
    "discord": {"token": f"{'a' * 26}.{'b' * 6}.{'c' * 38}"},
    "slack": {"token": f"xoxb-1234567890-1234567890123-{'a' * 24}", "app_token": f"xapp-1-A0123456789-123-{'a' * 64}"},
    "telegram": {"token": f"123456789:{'A' * 35}"},
    "whatsapp": {"app_secret": "a1" * 16},
}
"""Secrets that look like those of their platform, where it says what they look like."""

CALLED = ("feishu", "slack", "telegram")
"""Those that listen by themselves here, and can be called instead."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The production overlay with every chat platform; Telegram's servers are away."""
    with local_cluster(EVERYTHING, {"[channels.telegram]": '[channels.telegram]\napi = "http://127.0.0.1:1"'}) as made:
        yield made


def test_every_platform_has_its_manifests() -> None:
    """Each folder of gateway/channels but that of the page, and no other."""
    channels = {path.parent.name for path in (ROOT / "gateway" / "channels").glob("*/__init__.py")} - {"web"}
    assert set(PLATFORMS) == channels == set(SECRETS)
    assert set(HERE) <= set(PLATFORMS)


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_gateway_is_given_its_own_secret_and_no_other(name: str) -> None:
    """As files of a Secret of its own name; the documentation has its keys."""
    pod = named(overlay(EVERYTHING), "Deployment", f"gateway-{name}")["spec"]["template"]["spec"]
    [main] = pod["containers"]
    files = {key: value for key, value in environment(main).items() if key.startswith("SHOAL_CHANNELS__")}
    keys = {Path(value).name for value in files.values()}
    assert files == {
        f"SHOAL_CHANNELS__{name.upper()}__{key.upper()}_FILE": f"/run/secrets/shoal-{name}/{key}" for key in keys
    }
    secrets = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert secrets == {f"shoal-{name}"}
    [row] = [line for line in DOC.splitlines() if line.startswith("|") and f"`gateways/{name}`" in line]
    result = set(re.findall(r"`(\w+)`", row.split("|")[3]))
    assert keys == result <= set(SECRETS[name])


@pytest.mark.parametrize("name", sorted(HERE))
async def test_a_gateway_finds_nothing_wrong_with_what_it_is_given(name: str, tmp_path: Path) -> None:
    """With its table of shoal.toml and its Secret; what `python -m gateway --check` says."""
    objects = overlay(EVERYTHING)
    config = tmp_path / "shoal.toml"
    config.write_text(named(objects, "ConfigMap", "shoal-config")["data"]["shoal.toml"])
    [main] = named(objects, "Deployment", f"gateway-{name}")["spec"]["template"]["spec"]["containers"]
    variables = {}
    for key, value in environment(main).items():
        if key.startswith("SHOAL_CHANNELS__"):
            variables[key] = str(tmp_path / Path(value).name)
            Path(variables[key]).write_text(GIVEN.get(name, {}).get(Path(value).name, "x" * 32))
    assert await problems_of([name], load(variables, path=config)) == []


@pytest.mark.parametrize("name", CALLED)
def test_a_platform_that_can_call_us_goes_with_the_webhook(name: str, tmp_path: Path) -> None:
    """As the documentation says: one line more in its kustomization."""
    folder = copied_to(tmp_path)
    file = folder / "k8s" / "gateways" / name / "kustomization.yaml"
    before = file.read_text()
    file.write_text(before.replace("  - ../platform\n", "  - ../platform\ncomponents:\n  - ../webhook\n"))
    assert file.read_text() != before
    objects = with_all_platforms(folder)
    assert validated(objects, VERSIONS[0]) == []
    assert list(problems(objects)) == []
    check_settings(objects)
    labels = named(objects, "Deployment", f"gateway-{name}")["spec"]["template"]["metadata"]["labels"]
    service = named(objects, "Service", f"gateway-{name}")["spec"]
    assert service["selector"].items() <= labels.items()
    ingress = End({"app.kubernetes.io/name": "ingress-nginx"}, "ingress-nginx")
    assert reaches(objects, ingress, End(labels), 8090)
    assert not reaches(overlay(EVERYTHING), ingress, End(labels), 8090)


def test_the_example_of_an_ingress_leads_to_a_gateway() -> None:
    """Valid, to a Service and a port that there are, under the path that a gateway answers."""
    text = (K8S / "gateways" / "webhook" / "ingress.example.yaml").read_text()
    [ingress] = parsed(text)
    assert validated([ingress], VERSIONS[-1]) == []
    services = {one["metadata"]["name"]: one["spec"]["ports"] for one in of_kind(overlay(EVERYTHING), "Service")}
    [rule] = ingress["spec"]["rules"]
    for path in rule["http"]["paths"]:
        backend = path["backend"]["service"]
        assert backend["port"]["name"] in {one["name"] for one in services[backend["name"]]}
        assert path["path"] == f"/hooks/{backend['name'].removeprefix('gateway-')}"
    settings = Settings().hooks
    assert f"({settings.body_kb // 1024} MB)" in text
    assert f"({settings.answer_s:g} s)" in text


@pytest.mark.timeout(200)
async def test_a_gateway_of_a_platform_starts_by_its_manifest_and_outlives_its_absence(cluster: Cluster) -> None:
    """Its own command, variables, Secret and mounts; not ready while the platform is away, alive, and ended in time."""
    spec = importlib.util.find_spec("aiogram")
    if spec is None:
        pytest.skip("needs the libraries of `make channels`")
    cluster.secrets = {**cluster.secrets, "shoal-telegram": GIVEN["telegram"]}
    redis = await asyncio.to_thread(start_redis, cluster)
    gateway = cluster.pod("Deployment", "gateway-telegram").run("shoal", {"SHOAL_METRICS__PORT": cluster.ours["9464"]})
    try:
        await asyncio.to_thread(gateway.up, 120)
        assert gateway.probe("livenessProbe")
        assert not gateway.probe("readinessProbe")
        assert await asyncio.to_thread(gateway.stop) == 0, gateway.log
    finally:
        gateway.kill()
        redis.kill()
