"""Volumes that are folders of the node: a cluster may have no storage of its own that many pods share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import yaml  # type: ignore[import-untyped]

from proof.cluster.kubectl import Kubectl


class Owner(NamedTuple):
    """Whose a volume is, and the folders in it."""

    uid: int
    gid: int
    folders: str = "."


FILES: Final = Owner(10001, 10003, "workspaces media")
BACKUP: Final = Owner(10001, 10003)
VALKEY: Final = Owner(999, 999)


class Disk:
    """The volumes for the claims of a namespace. A pod in a namespace of its own, which is root on the node, makes the
    folders and takes them away."""

    def __init__(self, namespace: str, image: str, claims: Mapping[str, Owner]) -> None:
        self.helper = Kubectl(f"{namespace}-disk")
        self._namespace = namespace
        self._image = image
        self.claims = claims

    def volume(self, claim: str) -> str:
        """Return the name of the volume for a claim."""
        return f"{self._namespace}-{claim}"

    def make(self) -> None:
        """Make all of them; return once they are there."""
        place = f"/var/tmp/{self._namespace}"
        lines = [
            f"mkdir -p {' '.join(f'/disk/{name}/{folder}' for folder in owner.folders.split())}"
            f" && chown -R {owner.uid}:{owner.gid} /disk/{name} && chmod -R 2770 /disk/{name}"
            for name, owner in self.claims.items()
        ]
        volumes = [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": self.volume(name)},
                "spec": {
                    "capacity": {"storage": "60Gi"},
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                    "hostPath": {"path": f"{place}/{name}"},
                    "claimRef": {"namespace": self._namespace, "name": name},
                },
            }
            for name in self.claims
        ]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "disk"},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "hostPID": True,
                "securityContext": {"runAsUser": 0, "runAsGroup": 0},
                "containers": [
                    {
                        "name": "disk",
                        "image": self._image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["sh", "-c", f"{' && '.join(lines)} && touch /disk/made && exec sleep 3600"],
                        "readinessProbe": {"exec": {"command": ["test", "-e", "/disk/made"]}},
                        "volumeMounts": [{"name": "disk", "mountPath": "/disk"}],
                    }
                ],
                "volumes": [{"name": "disk", "hostPath": {"path": place, "type": "DirectoryOrCreate"}}],
            },
        }
        self.helper("create", "namespace", self.helper.namespace)
        self.helper("apply", "-f", "-", stdin=yaml.safe_dump_all([*volumes, pod]))
        self.helper("wait", "--for=condition=Ready", "pod/disk", "--timeout=120s")

    def kill(self, container: str) -> None:
        """Send SIGKILL to everything in a container. From inside, its first process cannot be killed."""
        each = (
            f"for p in /proc/[0-9]*; do grep -q {container} $p/cgroup && kill -9 ${{p#/proc/}}; done 2>/dev/null; true"
        )
        self.helper("exec", "disk", "--", "sh", "-c", each)

    def remove(self) -> None:
        """Take away the volumes and what was in them."""
        self.helper("exec", "disk", "--", "sh", "-c", "rm -rf /disk/*", check=False)
        self.helper("delete", "namespace", self.helper.namespace, "--ignore-not-found", "--wait=false", check=False)
        self.helper("delete", "pv", *map(self.volume, self.claims), "--wait=false", check=False)
