"""Objects against the schemas of Kubernetes' own kinds: the strict ones of each version, from `kubernetes-validate`.

The program reads two megabytes of definitions for each object; here they are read once, and equal objects are checked
once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.helpers.manifests import Object, tool

VERSIONS: Final = tuple(f"1.{minor}" for minor in range(29, 38))


def core_problems(objects: Iterable[Object], version: str) -> list[str]:
    """What is wrong with objects of the core kinds; a kind that is not known is wrong, too."""
    texts = dict.fromkeys(json.dumps(one, sort_keys=True) for one in objects)
    return [problem for text in texts for problem in _problems(text, version)]


@cache
def _problems(text: str, version: str) -> tuple[str, ...]:
    one = json.loads(text)
    name = f"{one['kind']}/{one['metadata'].get('name')}"
    validator = _validator(one["kind"], one["apiVersion"], version)
    if validator is None:
        return (f"{name}: Kubernetes {version} has no {one['kind']!r} in {one['apiVersion']!r}",)
    return tuple(f"{name}: {error.json_path}: {error.message}" for error in validator.iter_errors(one))


@cache
def _validator(kind: str, api_version: str, version: str) -> Draft202012Validator | None:
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)  # networking.k8s.io/v1 is networking-v1
    file = _folder(version) / f"{kind.lower()}-{group}.json"
    if not file.exists():
        return None
    schema = _read(file)
    del schema["$id"]  # else it is a document of its own, beside its definitions
    return Draft202012Validator({**schema, "$defs": _definitions(version)})


@cache
def _definitions(version: str) -> dict[str, Any]:
    found: dict[str, Any] = _read(_folder(version) / "_definitions.json")["$defs"]
    return found


def _read(file: Path) -> dict[str, Any]:
    """A schema that looks for definitions in itself."""
    found: dict[str, Any] = json.loads(file.read_text().replace('"/api/_definitions.json#/', '"#/'))
    return found


@cache
def _folder(version: str) -> Path:
    schemas = "lib/python3*/site-packages/kubernetes_validate/kubernetes-json-schema"
    [found] = tool("kubernetes-validate").parents[1].glob(f"{schemas}/v{version}.*-local-strict")
    return found
