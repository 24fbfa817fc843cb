"""Every pod is confined, and each line that confines one is needed: taken away, a check fails."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.manifests import OVERLAYS, WORKLOADS, Object, containers, of_kind, overlay, pods
from tests.helpers.pod_policy import problems

POD = (
    "automountServiceAccountToken",
    "serviceAccountName",
    "enableServiceLinks",
    "terminationGracePeriodSeconds",
    "securityContext",
    "securityContext.runAsNonRoot",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.fsGroup",
    "securityContext.seccompProfile",
)
CONTAINER = (
    "command",
    "image",
    "resources.requests.cpu",
    "resources.requests.memory",
    "resources.limits.memory",
    "securityContext.allowPrivilegeEscalation",
    "securityContext.readOnlyRootFilesystem",
    "securityContext.capabilities",
    "securityContext.capabilities.drop",
)
WORSE: tuple[tuple[str, Any], ...] = (
    ("securityContext.allowPrivilegeEscalation", True),
    ("securityContext.readOnlyRootFilesystem", False),
    ("securityContext.capabilities.add", ["NET_RAW"]),
    ("securityContext.capabilities.drop", ["NET_RAW"]),
    ("securityContext.privileged", True),
    ("securityContext.runAsUser", 0),
    ("image", "shoal:latest"),
    ("image", "shoal"),
    ("env", [{"name": "SHOAL_MODEL__API_KEY", "value": "sk-1"}]),
    ("env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "shoal-model", "key": "api_key"}}}]),
    ("envFrom", [{"secretRef": {"name": "shoal-model"}}]),
)
WORSE_POD: tuple[tuple[str, Any], ...] = (
    ("hostNetwork", True),
    ("hostPID", True),
    ("hostIPC", True),
    ("shareProcessNamespace", True),
    ("securityContext.runAsUser", 0),
    ("securityContext.seccompProfile.type", "Unconfined"),
    ("volumes", [{"name": "x", "hostPath": {"path": "/"}}]),
    ("volumes", [{"name": "x", "emptyDir": {}}]),
    ("volumes", [{"name": "x", "secret": {"secretName": "x"}}]),
)


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_pod_keeps_the_restricted_standard_and_ours(name: str) -> None:
    """Row 25: restricted, read-only root, no token, limits, secrets as files, images by exact tag."""
    assert list(problems(overlay(name))) == []


def changes(objects: list[Object]) -> Iterator[tuple[str, list[Object]]]:
    """Each workload that is worse by one field, alone, with what was done."""
    for workload in of_kind(objects, *WORKLOADS, "CronJob"):
        [(name, pod)] = pods([workload])
        for path in POD:
            yield f"{name} without {path}", _changed(workload, None, path)
        for path, value in WORSE_POD:
            yield f"{name} with {path} = {value!r}", _changed(workload, None, path, value)
        for number, container in enumerate(containers(pod)):
            for path in CONTAINER:
                yield f"{name}/{container['name']} without {path}", _changed(workload, number, path)
            for path, value in WORSE:
                yield f"{name}/{container['name']} with {path} = {value!r}", _changed(workload, number, path, value)
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe in container:
                    yield f"{name}/{container['name']} without {probe}", _changed(workload, number, probe)


def _changed(workload: Object, number: int | None, path: str, value: Any = None) -> list[Object]:
    changed = [copy.deepcopy(workload)]
    [(_, pod)] = pods(changed)
    target = pod if number is None else list(containers(pod))[number]
    *steps, last = path.split(".")
    for step in steps:
        target = target.setdefault(step, {})
    if value is None:
        del target[last]
    else:
        target[last] = value
    return changed


@pytest.mark.parametrize("name", OVERLAYS)
def test_each_field_removed_or_made_worse_is_found(name: str) -> None:
    """All of them, in every container of every pod."""
    unfound, tried = [], 0
    for what, changed in changes(overlay(name)):
        tried += 1
        if not list(problems(changed)):
            unfound.append(what)
    assert unfound == []
    assert tried > 200


@pytest.mark.parametrize(
    ("kind", "path"),
    [("ServiceAccount", ("automountServiceAccountToken",)), ("Namespace", ("metadata", "labels"))],
)
def test_the_account_and_the_namespace_are_looked_at_too(kind: str, path: tuple[str, ...]) -> None:
    """The cluster itself refuses what a pod forgets."""
    objects = overlay("production")
    for one in objects:
        if one["kind"] == kind:
            at = one
            for step in path[:-1]:
                at = at[step]
            del at[path[-1]]
    assert list(problems(objects)) != []
