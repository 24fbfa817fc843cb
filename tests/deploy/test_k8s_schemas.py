"""The manifests of k8s/ are rendered and checked here against schemas; nothing here applies them to a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.helpers.manifests import K8S, OVERLAYS, ROOT, Object, overlay, rendered_text, tool

VERSIONS = tuple(f"1.{minor}" for minor in range(29, 38))
CRDS = ROOT / "tests" / "data" / "crds"
ALONE = ("keda.sh/v1alpha1", "monitoring.coreos.com/v1")


def validated(text: str, version: str, folder: Path) -> list[str]:
    """What is wrong with manifests of the core kinds; a kind that is not known is wrong, too."""
    core = [one for one in yaml.safe_load_all(text) if one["apiVersion"] not in ALONE]
    file = folder / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(core))
    command = [str(tool("kubernetes-validate")), "--strict", "--kubernetes-version", version, str(file)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (result.stdout + result.stderr).splitlines()
    bad = [line for line in lines if not line.startswith("INFO ")]
    assert result.returncode == 0 or bad
    assert len(lines) == len(core)
    return bad


@pytest.mark.parametrize("version", VERSIONS)
def test_every_overlay_is_valid_for_each_kubernetes(version: str, tmp_path: Path) -> None:
    """Strictly: an unknown field, an unknown kind, a wrong type are failures, not warnings."""
    everything = yaml.safe_dump_all(one for name in OVERLAYS for one in overlay(name))
    assert validated(everything, version, tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new"), [("httpGet:", "httpGetz:"), ("kind: Service\n", "kind: Servise\n"), ("port: 80\n", "port: web\n")]
)
def test_a_broken_manifest_is_found(old: str, new: str, tmp_path: Path) -> None:
    """The check can fail: a field, a kind and a type."""
    text = rendered_text(K8S / "overlays" / "dev")
    assert old in text
    assert validated(text.replace(old, new), VERSIONS[-1], tmp_path) != []


def schema_of(kind: str, version: str) -> dict[str, Any]:
    """The schema of a custom kind from its definition, closed: what it does not name is wrong."""
    for path in CRDS.glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        if spec["names"]["kind"] == kind:
            [found] = [one for one in spec["versions"] if one["name"] == version]
            schema: dict[str, Any] = closed(found["schema"]["openAPIV3Schema"])
            return schema
    raise AssertionError(f"no definition of {kind!r} in {CRDS}")


def closed(schema: Any) -> Any:
    """OpenAPI as a cluster reads it, in JSON Schema's words."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: {name: closed(one) for name, one in value.items()} if key == "properties" else closed(value)
        for key, value in schema.items()
    }
    if result.pop("x-kubernetes-int-or-string", False):
        result.pop("type", None)
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if "properties" in result and not result.pop("x-kubernetes-preserve-unknown-fields", False):
        result.setdefault("additionalProperties", False)
    if result.pop("nullable", False) and "type" in result:
        result["type"] = [result["type"], "null"]
    return result


def custom_problems(one: Object) -> list[str]:
    """What a custom object's definition has against it."""
    schema = schema_of(one["kind"], one["apiVersion"].partition("/")[2])
    schema["properties"]["metadata"] = {"type": "object"}
    return [error.message for error in Draft202012Validator(schema).iter_errors(one)]


def test_custom_objects_are_valid_for_their_definitions() -> None:
    """KEDA's and the Prometheus operator's."""
    found = [one for one in overlay("production") if one["apiVersion"] in ALONE]
    assert {one["kind"] for one in found} == {"ScaledObject", "ServiceMonitor", "PrometheusRule"}
    assert [problem for one in found for problem in custom_problems(one)] == []


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("ScaledObject", ("spec", "minReplicaCount"), "two"),
        ("ScaledObject", ("spec", "triggerz"), []),
        ("ServiceMonitor", ("spec", "endpoints", 0, "interval"), "15 seconds"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "expr"), None),
    ],
)
def test_a_broken_custom_object_is_found(kind: str, path: tuple[Any, ...], value: object) -> None:
    """The check can fail here, too."""
    one = next(one for one in overlay("production") if one["kind"] == kind)
    at: Any = one
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert custom_problems(one) != []
