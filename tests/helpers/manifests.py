"""The manifests as a cluster would get them."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from tests.helpers.need import need

ROOT: Final = Path(__file__).parents[2]
K8S: Final = ROOT / "k8s"
SENTINELS: Final = "production-redis+redis-sentinel"
EVERYTHING: Final = "everything"
"""The production overlay with all that stands there behind a #: the gateway of every chat platform."""

OVERLAYS: Final = (*sorted(path.name for path in (K8S / "overlays").iterdir()), EVERYTHING)
PLATFORMS: Final = tuple(sorted(path.parent.name for path in K8S.glob("gateways/*/channel.yaml")))
WORKLOADS: Final = ("Deployment", "StatefulSet")

Object = dict[str, Any]


def tool(name: str) -> Path:
    """A program of `make tools`; the test is skipped, or fails, where it is missing."""
    path = ROOT / ".venv" / "tools" / "bin" / name
    need(name, install="run `make tools`", found=path.exists())
    return path


def parsed(text: str) -> list[Object]:
    """The objects of a YAML text, by the parser that is written in C: ours have thousands of lines."""
    return [one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one is not None]


def rendered_text(folder: Path) -> str:
    """What `kubectl kustomize` makes of a folder. It needs no network."""
    result = subprocess.run([tool("kubectl"), "kustomize", folder], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@cache
def _overlay(name: str) -> tuple[Object, ...]:
    if name == EVERYTHING:
        with tempfile.TemporaryDirectory() as folder:
            return tuple(with_all_platforms(copied_to(Path(folder))))
    first, *components = name.split("+")
    name, *without = first.split("-")
    if components:
        with tempfile.TemporaryDirectory() as folder:
            copied = copied_to(Path(folder))
            return tuple(variant(copied, without=tuple(without), components=tuple(components), name=name))
    return tuple(parsed(rendered_text(K8S / "overlays" / name)))


def overlay(name: str) -> list[Object]:
    """The objects of an overlay, for the caller to change. `name` may be production+backup-s3, or with less and more
    production-redis+redis-sentinel."""
    return copy.deepcopy(list(_overlay(name)))


def variant(
    folder: Path, *, without: tuple[str, ...] = (), components: tuple[str, ...] = (), name: str = "production"
) -> list[Object]:
    """An overlay with other components, rendered in `folder`, a copy of k8s/ and deploy/."""
    file = folder / "k8s" / "overlays" / name / "kustomization.yaml"
    settings = yaml.safe_load(file.read_text())
    kept = [name for name in settings["components"] if Path(name).name not in without]
    settings["components"] = kept + [f"../../components/{name}" for name in components]
    file.write_text(yaml.safe_dump(settings))
    return parsed(rendered_text(file.parent))


def copied_to(folder: Path) -> Path:
    """A folder with a copy of k8s/ and deploy/, to be changed."""
    shutil.copytree(K8S, folder / "k8s")
    shutil.copytree(ROOT / "deploy", folder / "deploy", ignore=shutil.ignore_patterns("secrets", ".env"))
    return folder


def with_all_platforms(folder: Path) -> list[Object]:
    """The production overlay with every chat platform, rendered in `folder`, a copy of k8s/ and deploy/: what an
    operator has who takes the # away."""
    production = folder / "k8s" / "overlays" / "production"
    for name, line in (
        ("kustomization.yaml", r"^(  )# (- ../../gateways/\w+)$"),
        ("shoal.toml", r"^()# (\[channels\..+\]|\w+ = .+)$"),
    ):
        text, many = re.subn(line, r"\1\2", (production / name).read_text(), flags=re.MULTILINE)
        assert many >= len(PLATFORMS)
        (production / name).write_text(text)
    return parsed(rendered_text(production))


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    """Those of these kinds."""
    return [one for one in objects if one["kind"] in kinds]


def named(objects: list[Object], kind: str, name: str) -> Object:
    """One by its name; the hash that a generator hangs on is not looked at."""
    found = [one for one in of_kind(objects, kind) if one["metadata"]["name"].startswith(name)]
    assert len(found) == 1, f"{len(found)} of {kind} {name!r}"
    return found[0]


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """(name, pod spec) of each workload."""
    for one in of_kind(objects, *WORKLOADS, "CronJob"):
        spec = one["spec"]["jobTemplate"]["spec"] if one["kind"] == "CronJob" else one["spec"]
        yield one["metadata"]["name"], spec["template"]["spec"]


def containers(pod: Object) -> Iterator[Object]:
    """All of a pod, those of its start included."""
    yield from pod.get("initContainers", ())
    yield from pod["containers"]


def environment(container: Object) -> dict[str, str]:
    """The variables that a container sets."""
    return {one["name"]: one["value"] for one in container.get("env", ())}


def keda_queries(objects: list[Object]) -> list[str]:
    """What the autoscaler asks Prometheus."""
    scaled = [one for one in objects if one["kind"] == "ScaledObject"]
    return [trigger["metadata"]["query"] for one in scaled for trigger in one["spec"]["triggers"]]
