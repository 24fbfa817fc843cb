"""The manifests of k8s/ are rendered and checked here against schemas; nothing here applies them to a cluster."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.helpers.kubernetes_schemas import VERSIONS, core_problems
from tests.helpers.manifests import K8S, OVERLAYS, ROOT, Object, overlay, parsed, rendered_text, tool

CRDS = ROOT / "tests" / "data" / "crds"
ALONE = ("keda.sh/v1alpha1", "monitoring.coreos.com/v1")


def validated(objects: list[Object], version: str) -> list[str]:
    """What is wrong with those that are no custom objects."""
    return core_problems((one for one in objects if one["apiVersion"] not in ALONE), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_overlay_is_valid_for_each_kubernetes(version: str) -> None:
    """Strictly: an unknown field, an unknown kind, a wrong type are failures, not warnings."""
    assert validated([one for name in OVERLAYS for one in overlay(name)], version) == []


@pytest.mark.parametrize(
    ("old", "new"), [("httpGet:", "httpGetz:"), ("kind: Service\n", "kind: Servise\n"), ("port: 80\n", "port: web\n")]
)
def test_a_broken_manifest_is_found(old: str, new: str, tmp_path: Path) -> None:
    """The check can fail: a field, a kind and a type. `kubernetes-validate` says the same."""
    whole = parsed(rendered_text(K8S / "overlays" / "dev"))
    broken = parsed(rendered_text(K8S / "overlays" / "dev").replace(old, new))
    assert validated(whole, VERSIONS[-1]) == []
    changed = [(one, other) for one, other in zip(whole, broken, strict=True) if one != other]
    right, wrong = next((one, other) for one, other in changed if validated([other], VERSIONS[-1]) != [])
    assert by_the_program(right, tmp_path)
    assert not by_the_program(wrong, tmp_path)


def by_the_program(one: Object, folder: Path) -> bool:
    """Whether `kubernetes-validate` finds nothing wrong with an object of the newest version."""
    file = folder / "object.yaml"
    file.write_text(yaml.safe_dump(one))
    command = [str(tool("kubernetes-validate")), "--strict", "--kubernetes-version", VERSIONS[-1], str(file)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    [line] = (result.stdout + result.stderr).splitlines()
    return line.startswith("INFO ")


@cache
def validator_of(kind: str, version: str) -> Draft202012Validator:
    """What checks custom objects of a kind; their metadata are not those of a definition."""
    schema = schema_of(kind, version)
    schema["properties"]["metadata"] = {"type": "object"}
    return Draft202012Validator(schema)


def schema_of(kind: str, version: str) -> dict[str, Any]:
    """The schema of a custom kind from its definition, closed: what it does not name is wrong."""
    for path in CRDS.glob("*.yaml"):
        [definition] = parsed(path.read_text())
        spec = definition["spec"]
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
    validator = validator_of(one["kind"], one["apiVersion"].partition("/")[2])
    return [error.message for error in validator.iter_errors(one)]


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
