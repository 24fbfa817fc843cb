"""Services of a compose file as pods, so that `tests.helpers.kubelet` can run them as processes of this machine: the
same command, variables, user, mounts under a read-only root, health checks and time to stop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.helpers.kubelet import Cluster, Pod
from tests.helpers.manifests import Object

KEY: Final = "value"


def filled(text: str, variables: Mapping[str, str] | None = None) -> str:
    """With the variables, and for those that are not set with what stands there for them."""
    known = variables or {}
    text = re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", lambda found: known.get(found[1]) or found[2] or "", text)
    return text.replace("$$", "$")


def config_maps(whole: Mapping[str, Any], folder: Path) -> list[Object]:
    """What services mount from beside the compose file, as objects that a pod can mount."""
    names = {source for one in whole["services"].values() for source, _, _ in _mounts(one) if source.startswith(".")}
    return [
        {"kind": "ConfigMap", "metadata": {"name": _name(source)}, "data": _files(folder / source)}
        for source in sorted(names)
    ]


def pod_of(cluster: Cluster, name: str, service: Mapping[str, Any], ours: Mapping[str, str]) -> Pod:
    """One container of a service."""
    uid, gid = service.get("user", "10001:10001").split(":")
    volumes: dict[str, Object] = {}
    mounts: list[Object] = []
    for source, target, mode in _mounts(service):
        volume = _name(source)
        volumes[volume] = {"name": volume, **_volume(source)}
        mounts.append({"name": volume, "mountPath": target, "readOnly": mode == "ro"})
        if Path(target).suffix:
            mounts[-1]["subPath"] = Path(target).name
    for number, one in enumerate(service.get("tmpfs", ())):
        volumes[f"tmpfs-{number}"] = {"name": f"tmpfs-{number}", "emptyDir": {}}
        mounts.append({"name": f"tmpfs-{number}", "mountPath": one.partition(":")[0]})
    if secrets := [_secret(one) for one in service.get("secrets", ())]:
        volumes["secrets"] = {"name": "secrets", "projected": {"sources": secrets}}
        mounts.append({"name": "secrets", "mountPath": "/run/secrets", "readOnly": True})
    container = {
        "name": name,
        "command": [filled(word) for word in service["command"]],
        "env": [{"name": key, "value": filled(str(value))} for key, value in service.get("environment", {}).items()],
        "volumeMounts": mounts,
        "securityContext": {"readOnlyRootFilesystem": service["read_only"]},
    }
    if check := service.get("healthcheck"):
        asked = {
            "exec": {"command": [filled(word) for word in check["test"][1:]]},
            "timeoutSeconds": _seconds(check["timeout"]),
        }
        container["startupProbe"] = asked
    spec = {
        "securityContext": {"runAsUser": int(uid), "runAsGroup": int(gid)},
        "terminationGracePeriodSeconds": _seconds(service.get("stop_grace_period", "10s")),
        "containers": [container],
        "volumes": list(volumes.values()),
    }
    return Pod(cluster, name, spec, {**cluster.ours, **ours})


def _mounts(service: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for one in service.get("volumes", ()):
        source, target, mode = (one + ":rw").split(":")[:3]
        yield source, target, mode


def _volume(source: str) -> Object:
    if source.startswith("."):
        return {"configMap": {"name": _name(source)}}
    return {"persistentVolumeClaim": {"claimName": source}}


def _secret(one: str | Mapping[str, str]) -> Object:
    source, target = (one, one) if isinstance(one, str) else (one["source"], one["target"])
    return {"secret": {"name": source, "items": [{"key": KEY, "path": target}]}}


def _name(source: str) -> str:
    return source.removeprefix("./").replace(".", "-")


def _files(path: Path) -> dict[str, str]:
    if path.is_file():
        return {path.name: path.read_text()}
    return {file.name: file.read_text() for file in path.glob("*") if file.is_file()}


def _seconds(text: str) -> int:
    return int(text.removesuffix("s"))
