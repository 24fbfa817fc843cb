"""The chart makes what kustomize makes, for equal choices, and refuses values that it does not know."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from shared.settings import Settings
from shared.version import VERSION
from tests.deploy.test_k8s import check_settings
from tests.deploy.test_k8s_schemas import ALONE, custom_problems, validated
from tests.helpers.covering import covering
from tests.helpers.kubernetes_schemas import VERSIONS
from tests.helpers.manifests import (
    K8S,
    PLATFORMS,
    ROOT,
    SENTINELS,
    Object,
    copied_to,
    keda_queries,
    named,
    of_kind,
    overlay,
    parsed,
    tool,
    variant,
    with_all_platforms,
)
from tests.helpers.pod_policy import problems

AGENT = {name: (K8S / "overlays" / name / "agent" / "AGENTS.md").read_text() for name in ("dev", "production")}
DEV: Mapping[str, Any] = {
    "agent": {"AGENTS.md": AGENT["dev"]},
    "small": True,
}
PRODUCTION: Mapping[str, Any] = {
    "images": {"shoal": {"repository": "registry.example.org/shoal"}},
    "modelKey": True,
    "autoscaling": "keda",
    "monitoring": True,
    "settings": {"model": {"name": "anthropic/claude-sonnet-4-5"}, "budget": {"tokens_per_day": 2_000_000}},
    "agent": {"AGENTS.md": AGENT["production"]},
}
IN_S3: Mapping[str, Any] = {"workspaces": True}
STORE: Mapping[str, Any] = {"workspace": {"store": "s3://company-shoal/production"}}
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "gateways": (
        {},
        dict.fromkeys(PLATFORMS, True),
        {"web": False, "telegram": "webhook", "slack": "webhook", "feishu": "webhook"},
        {"whatsapp": True, "email": True},
    ),
    "console": (True, False),
    "redis": (
        {},
        {"sentinels": True},
        {"managed": True},
        {"managed": True, "addresses": ["192.0.2.0/24"], "ports": [6380, 26379]},
    ),
    "small": (False, True),
    "backup": ("none", "volume", "s3"),
    "modelKey": (False, True),
    "autoscaling": ("none", "keda", "hpa"),
    "monitoring": (False, True),
    "tracing": (False, True),
    "proxy": (False, True),
    "s3": ({}, IN_S3, {"workspaces": True, "keys": True, "addresses": ["192.0.2.9/32"], "port": 9000}),
    "settings": ({}, {"model": {"name": "a/b"}, "web": {"tokens": {"ada": "a" * 40}}}, {"worker": {"turns": 50}}),
    "agent": ({}, {"AGENTS.md": 'Be kind: "yes"\n', "SOUL.md": "---\nname: shoal-config\n"}),
    "replicas": ({}, {"worker-turns": 7, "gateway-web": 1}),
    "storage": ({}, {"shoal-files": {"storageClassName": "nfs"}, "shoal-redis": {"storageClassName": "fast"}}),
    "network": (
        {},
        {
            "ingressNamespace": "traefik",
            "monitoringNamespace": "watch",
            "prometheus": "http://p:9090",
            "proxyAddresses": ["192.0.2.7/32"],
            "proxyPort": 8080,
        },
    ),
    "pods": ({}, {"priorityClassName": "chat", "imagePullSecrets": [{"name": "registry"}]}),
    "patches": (
        {},
        {"Deployment/worker-turns": {"spec": {"template": {"metadata": {"annotations": {"team": "chat"}}}}}},
    ),
}


def rendered(*values: Mapping[str, Any], namespace: str = "shoal") -> list[list[Object]]:
    """The objects that Helm makes of each of the values."""
    results = outcomes(values, namespace)
    assert [one["error"] for one in results if "error" in one] == []
    return [parsed(result["text"]) for result in results]


def outcomes(values: tuple[Mapping[str, Any], ...], namespace: str = "shoal") -> list[dict[str, str]]:
    """What Helm says to each of the values: a text, or an error."""
    program = ROOT / "tests" / "helpers" / "render_charts.py"
    tool("kubectl")
    command = [str(tool("python")), "-I", str(program), str(K8S), namespace]
    result = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found: list[dict[str, str]] = json.loads(result.stdout)
    return found


def comparable(objects: list[Object]) -> dict[str, Object]:
    """Objects by kind and name. What Helm and kustomize write differently is taken away: the hash in the name of a
    ConfigMap, the order of named things, the text of a TOML file, and the Namespace, which a chart cannot be in."""
    result = {}
    for one in objects:
        if one["kind"] == "Namespace":
            continue
        made = json.loads(re.sub(r'"(shoal-(?:redis-)?(?:config|agent))-\w{10}"', r'"\1"', json.dumps(one)))
        if made["metadata"].get("annotations") == {"helm.sh/resource-policy": "keep"}:
            del made["metadata"]["annotations"]
        if "shoal.toml" in made.get("data", {}):
            made["data"]["shoal.toml"] = tomllib.loads(made["data"]["shoal.toml"])
        result[f"{made['kind']}/{made['metadata']['name']}"] = _ordered(made)
    return result


def _ordered(value: Any) -> Any:
    match value:
        case dict():
            return {key: _ordered(inner) for key, inner in value.items()}
        case [{"name": _}, *_]:
            return sorted(map(_ordered, value), key=lambda one: json.dumps(one, sort_keys=True))
        case list():
            return [_ordered(inner) for inner in value]
        case _:
            return value


def test_dev_and_production_are_those_of_kustomize() -> None:
    """Object for object, field for field; with backups, too."""
    more = ({"backup": "volume"}, {"backup": "s3"}, {"proxy": True})
    values = DEV, PRODUCTION, *({**PRODUCTION, **one} for one in more)
    names = "dev", "production", "production+backup-volume", "production+backup-s3", "production+proxy"
    for made, name in zip(rendered(*values), names, strict=True):
        assert comparable(made) == comparable(overlay(name))


def test_all_gateways_with_a_managed_redis_are_those_of_kustomize(tmp_path: Path) -> None:
    """Every platform, a managed Redis, scaling by CPU, monitoring."""
    copied_to(tmp_path)
    with_all_platforms(tmp_path)
    wanted = variant(tmp_path, without=("redis", "autoscaling"), components=("redis-managed", "hpa"))
    settings = tomllib.loads((tmp_path / "k8s/overlays/production/shoal.toml").read_text())
    gateways = dict.fromkeys(PLATFORMS, True)
    values = {
        **PRODUCTION,
        "autoscaling": "hpa",
        "redis": {"managed": True},
        "gateways": gateways,
        "settings": settings,
    }
    [made] = rendered(values)
    assert comparable(made) == comparable(wanted)


def test_a_redis_with_sentinels_is_that_of_kustomize() -> None:
    """On a small node and in production, with copies on a volume."""
    more = {"backup": "volume", "redis": {"sentinels": True}}
    names = "dev-redis-small+redis-sentinel+backup-volume+small", f"{SENTINELS}+backup-volume"
    for made, name in zip(rendered({**DEV, **more}, {**PRODUCTION, **more}), names, strict=True):
        assert comparable(made) == comparable(overlay(name))


def test_workspaces_in_a_bucket_are_those_of_kustomize(tmp_path: Path) -> None:
    """With credentials, a store in the company's network, and a proxy for all else."""
    copied_to(tmp_path)
    file = tmp_path / "k8s/overlays/production/shoal.toml"
    file.write_text(file.read_text().replace("[workspace]", f'[workspace]\nstore = "{STORE["workspace"]["store"]}"'))
    wanted = variant(tmp_path, components=("s3", "s3-keys", "s3-network", "proxy"))
    s3 = {"workspaces": True, "keys": True, "addresses": ["10.0.0.0/8"]}
    [made] = rendered({**PRODUCTION, "settings": {**PRODUCTION["settings"], **STORE}, "s3": s3, "proxy": True})
    assert comparable(made) == comparable(wanted)


def test_what_is_packed_for_a_registry_is_the_same(tmp_path: Path) -> None:
    """The links into deploy/ are files in it; it has no overlay, no example, and nothing that an operator wrote."""
    command = [
        str(tool("python")),
        "-I",
        str(ROOT / "tests/helpers/render_charts.py"),
        str(K8S),
        "shoal",
        str(tmp_path),
    ]
    result = subprocess.run(command, input=json.dumps([DEV]), capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == outcomes((DEV,))
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as archive:
        names = {one.name.removeprefix("shoal/") for one in archive.getmembers() if one.isfile()}
    files = {str(path.relative_to(K8S)) for path in K8S.rglob("*") if path.is_file()}
    assert names == {one for one in files if not one.startswith(("overlays/", "examples/")) and ".example." not in one}


@pytest.mark.timeout(200)
def test_every_combination_of_values_is_valid() -> None:
    """Of Kubernetes' and the operators' schemas, of the policy for pods, and in the settings that the pods read: any
    three values together, among all others."""
    combinations = [
        {name: CHOICES[name][way] for name, way in zip(CHOICES, chosen, strict=True)}
        for chosen in covering([len(ways) for ways in CHOICES.values()], seed=20)
    ]
    for one in combinations:
        if "managed" in one["redis"]:
            one["backup"] = "none"
        if one["s3"]:
            one["settings"] = {**one["settings"], **STORE}
    core: dict[str, Object] = {}
    custom: dict[str, Object] = {}
    for values, objects in zip(combinations, rendered(*combinations, namespace="chat"), strict=True):
        assert list(problems(objects)) == [], values
        check_settings(objects)
        names = [(one["kind"], one["metadata"]["name"]) for one in objects]
        assert len(set(names)) == len(names)
        assert {one["metadata"]["namespace"] for one in objects} == {"chat"}
        assert all('namespace="chat"' in query for query in keda_queries(objects))
        for one in objects:
            (custom if one["apiVersion"] in ALONE else core)[json.dumps(one, sort_keys=True)] = one
    assert validated(list(core.values()), VERSIONS[0]) == []
    assert validated(list(core.values()), VERSIONS[-1]) == []
    assert [problem for one in custom.values() for problem in custom_problems(one)] == []


def test_a_value_reaches_what_it_names() -> None:
    """Each of the values that are no choice among components."""
    digest = f"sha256:{'0' * 64}"
    values = {name: ways[-1] for name, ways in CHOICES.items()} | {
        "images": {"shoal": {"repository": "r.example.org/shoal", "digest": digest}},
        "autoscaling": "keda",
        "backup": "none",
        "settings": STORE,
    }
    [objects] = rendered(values)
    worker = named(objects, "Deployment", "worker-turns")["spec"]["template"]
    assert worker["metadata"]["annotations"] == {"team": "chat"}
    assert worker["spec"]["containers"][0]["image"] == f"r.example.org/shoal:{VERSION}@{digest}"
    assert worker["spec"]["priorityClassName"] == "chat"
    assert worker["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert named(objects, "PersistentVolumeClaim", "shoal-files")["spec"]["storageClassName"] == "nfs"
    [rule] = named(objects, "NetworkPolicy", "shoal-to-redis")["spec"]["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
    assert [one["port"] for one in rule["ports"]] == [6380, 26379]
    [outside] = named(objects, "NetworkPolicy", "workers-to-the-internet")["spec"]["egress"]
    assert outside["to"] == [{"ipBlock": {"cidr": "192.0.2.7/32"}}]
    assert [one["port"] for one in outside["ports"]] == [8080]
    [store] = named(objects, "NetworkPolicy", "shoal-to-the-store")["spec"]["egress"]
    assert store["to"] == [{"ipBlock": {"cidr": "192.0.2.9/32"}}]
    assert [one["port"] for one in store["ports"]] == [9000]
    text = json.dumps(of_kind(objects, "NetworkPolicy", "ScaledObject"))
    assert "traefik" in text
    assert "http://p:9090" in text
    assert "ingress-nginx" not in text
    assert "monitoring.svc" not in text
    files = named(objects, "ConfigMap", "shoal-agent")["data"]
    assert files == values["agent"]
    check_settings(objects)


REFUSED: tuple[tuple[Mapping[str, Any], str], ...] = (
    ({"gatewayz": {}}, "additional properties 'gatewayz' not allowed"),
    ({"gateways": {"irc": True}}, "at '/gateways': additional properties 'irc' not allowed"),
    ({"settings": {"modle": {"name": "x"}}}, "at '/settings': additional properties 'modle' not allowed"),
    ({"autoscaling": "vpa"}, "at '/autoscaling': value must be one of 'none', 'keda', 'hpa'"),
    ({"images": {"shoal": {"tag": "latest"}}}, "at '/images/shoal/tag': 'latest' does not match pattern"),
    ({"pods": {"hostNetwork": True}}, "at '/pods': additional properties 'hostNetwork' not allowed"),
    ({"replicas": {"worker-turn": 1}}, "at '/replicas': additional properties 'worker-turn' not allowed"),
    ({"redis": {"managed": True}, "backup": "s3"}, "values.backup copies the Redis of this chart"),
    ({"redis": {"managed": True, "sentinels": True}}, "choose one"),
    ({"s3": IN_S3}, "name the bucket"),
    ({"s3": {"keys": True}}, "nothing is in a bucket"),
    ({"s3": IN_S3, "settings": STORE, "images": {"shoal": {"tag": "0.1.0-slim"}}}, "take the full one"),
    ({"patches": {"Deployment/worker": {}}}, 'nothing here is called "Deployment/worker"'),
)


@cache
def refusals() -> list[dict[str, str]]:
    """What Helm says to each of them; the chart is loaded once."""
    return outcomes(tuple(values for values, _ in REFUSED))


@pytest.mark.parametrize("at", range(len(REFUSED)), ids=[reason for _, reason in REFUSED])
def test_a_value_that_is_not_known_is_refused(at: int) -> None:
    """With its place."""
    assert REFUSED[at][1] in refusals()[at]["error"]


def test_the_schema_knows_every_value_and_table() -> None:
    """Values and schema have the same keys, `settings` the tables of shoal.toml; the versions are the release's."""
    schema = json.loads((K8S / "values.schema.json").read_text())
    values = yaml.safe_load((K8S / "values.yaml").read_text())
    assert schema["properties"].keys() - {"global"} == values.keys() == CHOICES.keys() | {"images"}
    assert tuple(sorted(schema["properties"]["settings"]["properties"])) == tuple(sorted(Settings.__struct_fields__))
    assert values["gateways"].keys() == {"web", *PLATFORMS}
    chart = yaml.safe_load((K8S / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == values["images"]["shoal"]["tag"] == VERSION


def test_a_kustomization_that_the_chart_does_not_understand_is_an_error(tmp_path: Path) -> None:
    """A chart that leaves a part of a manifest out would differ unnoticed."""
    folder = copied_to(tmp_path) / "k8s"
    for name, line in (("base", "commonAnnotations: {a: b}\n"), ("gateways/web", "namePrefix: a-\n")):
        file = folder / name / "kustomization.yaml"
        before = file.read_text()
        file.write_text(before + line)
        command = [str(tool("python")), "-I", str(ROOT / "tests/helpers/render_charts.py"), str(folder), "shoal"]
        result = subprocess.run(command, input="[{}]", capture_output=True, text=True, check=True)
        assert f"{name}/kustomization.yaml" in json.loads(result.stdout)[0]["error"]
        file.write_text(before)
