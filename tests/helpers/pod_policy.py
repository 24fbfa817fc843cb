"""What every pod of ours must say of its own confinement: security.md's row on pods, as one function."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.helpers.manifests import Object, containers, of_kind, pods

_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
_IMAGE = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.\d+[a-z0-9.-]*(@sha256:[0-9a-f]{64})?")


def problems(objects: list[Object]) -> Iterator[str]:
    """Everything that is missing, one line each; nothing when all is well."""
    for namespace in of_kind(objects, "Namespace"):
        labels = namespace["metadata"].get("labels", {})
        for mode in ("enforce", "audit", "warn"):
            if labels.get(f"pod-security.kubernetes.io/{mode}") != "restricted":
                yield f"the namespace does not {mode} the restricted standard"
    for account in of_kind(objects, "ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield "the account hands its token out"
    for name, pod in pods(objects):
        for problem in (*_pod(pod), *(line for one in containers(pod) for line in _container(one, pod))):
            yield f"{name}: {problem}"


def _pod(pod: Object) -> Iterator[str]:
    if pod.get("automountServiceAccountToken") is not False:
        yield "has a service account's token"
    if not pod.get("serviceAccountName"):
        yield "runs as the default account"
    if pod.get("enableServiceLinks") is not False:
        yield "gets the cluster's services as variables"
    security = pod.get("securityContext", {})
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        if security.get(field, 0) < 1:
            yield f"{field} is root or not set"
    if security.get("runAsNonRoot") is not True:
        yield "may run as root"
    if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "has no system call filter"
    for field in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        if pod.get(field):
            yield f"has {field}"
    if not pod.get("terminationGracePeriodSeconds"):
        yield "has the usual time to end"
    for volume in pod.get("volumes", ()):
        kinds = volume.keys() - {"name"}
        if not kinds <= _VOLUMES:
            yield f"mounts {kinds}"
        if "emptyDir" in volume and not (volume["emptyDir"] or {}).get("sizeLimit"):
            yield f"the volume {volume['name']!r} has no limit"
        secret = volume.get("secret") or (volume["projected"] if _has_secret(volume) else None)
        if secret is not None and secret.get("defaultMode", 0o644) & 0o007:
            yield f"the secret {volume['name']!r} is for everybody"


def _container(container: Object, pod: Object) -> Iterator[str]:
    name = container["name"]
    security = container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False:
        yield f"{name} may gain privileges"
    if security.get("readOnlyRootFilesystem") is not True:
        yield f"{name} may write its root"
    if security.get("capabilities", {}).get("drop") != ["ALL"] or security["capabilities"].get("add"):
        yield f"{name} has capabilities"
    if security.get("privileged") or security.get("runAsUser", 1) == 0:
        yield f"{name} is privileged"
    resources = container.get("resources", {})
    for kind, what in (("requests", "cpu"), ("requests", "memory"), ("limits", "memory")):
        if not resources.get(kind, {}).get(what):
            yield f"{name} has no {kind} of {what}"
    if not _IMAGE.fullmatch(container.get("image", "")):
        yield f"{name} has no image by exact tag"
    if not container.get("command"):
        yield f"{name} runs whatever its image says"
    for variable in container.get("env", ()):
        if "valueFrom" in variable or re.search(r"(TOKEN|PASSWORD|KEY|SECRET)$", variable["name"]):
            yield f"{name} has a secret in its environment: {variable['name']}"
    if container.get("envFrom"):
        yield f"{name} takes its environment from elsewhere"
    for mount in container.get("volumeMounts", ()):
        [volume] = [one for one in pod["volumes"] if one["name"] == mount["name"]] or [{}]
        if _has_secret(volume) and not mount.get("readOnly"):
            yield f"{name} may write {mount['mountPath']}"
    probes = {"startupProbe", "livenessProbe"} if container.get("restartPolicy") == "Always" else set()
    if container.get("ports"):
        probes = {"startupProbe", "livenessProbe", "readinessProbe"}
    if missing := probes - container.keys():
        yield f"{name} has no {sorted(missing)}"


def _has_secret(volume: dict[str, Any]) -> bool:
    return "secret" in volume or any("secret" in one for one in volume.get("projected", {}).get("sources", ()))
