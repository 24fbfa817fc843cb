"""One installation in a namespace of its own, on the cluster of KUBECONFIG: the dev overlay, with two of each."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from proof.cluster.disk import BACKUP, FILES, VALKEY, Disk, Owner
from proof.cluster.kubectl import Kubectl
from proof.cluster.pages import KUBERNETES, Pages
from tests.helpers.manifests import K8S, ROOT, Object, named, of_kind, overlay, tool

GROUPS: Final = ("worker-turns", "worker-jobs", "gateway-web")
CLAIMS: Final[Mapping[str, Owner]] = {
    "shoal-files": FILES,
    "shoal-backup": BACKUP,
    **{f"data-shoal-{kind}-{n}": VALKEY for kind in ("redis", "sentinel") for n in range(3)},
}
OPEN: Final = "\n[inbox]\nsender_per_minute = 0\nchats_per_person = 0\n"
"""Everybody here is one sender."""


def of_kustomize(redis: str) -> list[Object]:
    """Return what kustomize makes for a small node, with copies on a volume."""
    return overlay(f"dev-redis-small+{redis}+backup-volume+small")


def of_chart(namespace: str, *, sentinels: bool) -> list[Object]:
    """Return what Helm makes of the chart for the same."""
    words = [str(one) for one in (tool("python"), "-I", ROOT / "tests/helpers/render_charts.py", K8S, namespace)]
    values = {"small": True, "backup": "volume", "redis": {"sentinels": sentinels}}
    result = subprocess.run(words, input=json.dumps([values]), capture_output=True, text=True, check=True)
    [rendered] = json.loads(result.stdout)
    return [one for one in yaml.safe_load_all(rendered["text"]) if one is not None]


class Installation:
    """Installs, and takes away all that it made. `image` is Shoal's; the cluster must be able to get it. `chart`: by
    Helm's chart, which makes the same objects, and not by kustomize. `sentinels`: with the Redis that has some."""

    def __init__(self, image: str, valkey: str | None = None, *, chart: bool = False, sentinels: bool = False) -> None:
        self.kubectl = Kubectl(f"shoal-test-{os.getpid()}{'-ha' if sentinels else ''}")
        self.sentinels = sentinels
        self._chart = chart
        self._images = {"shoal": image, "valkey": valkey}
        self._folder = tempfile.TemporaryDirectory(prefix="shoal-cluster-")
        self.folder = Path(self._folder.name)
        self.disk = Disk(self.kubectl.namespace, image, CLAIMS)
        self.pages = Pages(self.folder, self.kubectl.namespace)

    def install(self) -> None:
        """Apply everything, and wait until all pods are ready."""
        variables = {**os.environ, "SHOAL_NAMESPACE": self.kubectl.namespace}
        made = ROOT / "deploy" / "make-secrets"
        subprocess.run([made, self.folder / "secrets"], check=True, capture_output=True, env=variables)
        self.disk.make()
        self.kubectl("apply", "-k", str(self.folder / "secrets"))  # the namespace, too
        self._write_overlay()
        self.pages.run(KUBERNETES, "kubectl apply -k k8s/overlays/yours\n")
        self.wait_ready()

    def become_sentinels(self) -> None:
        """Change the overlay to the Redis with Sentinels; nothing is applied."""
        self.sentinels = True
        self._write_overlay()

    def _write_overlay(self) -> None:
        """Write what `kubectl apply -k k8s/overlays/yours` applies."""
        folder = self.folder / "k8s" / "overlays" / "yours"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "all.yaml").write_text(yaml.safe_dump_all(self._objects()))
        (folder / "kustomization.yaml").write_text("resources: [all.yaml]\n")

    def token(self) -> str:
        """Return the token of the page."""
        return (self.folder / "secrets" / "web-token").read_text().strip()

    def wait_ready(self, within_s: float = 240.0) -> None:
        """Return once every workload has all its pods, of its newest revision."""
        stateful = ("shoal-redis", "shoal-sentinel") if self.sentinels else ("shoal-redis",)
        for one in (*(f"statefulset/{name}" for name in stateful), *(f"deployment/{name}" for name in GROUPS)):
            self.kubectl("rollout", "status", one, f"--timeout={within_s:.0f}s", timeout_s=within_s + 10)

    def remove(self) -> None:
        """Take away the namespaces, the volumes and what was in them."""
        self.kubectl("delete", "namespace", self.kubectl.namespace, "--ignore-not-found", "--wait=true", check=False)
        self.disk.remove()
        self._folder.cleanup()

    def _objects(self) -> list[Object]:
        if self._chart:
            made = of_chart(self.kubectl.namespace, sentinels=self.sentinels)
        else:
            made = of_kustomize("redis-sentinel" if self.sentinels else "redis")
        text = json.dumps(made).replace('"namespace": "shoal"', f'"namespace": "{self.kubectl.namespace}"')
        objects: list[Object] = [one for one in json.loads(text) if one["kind"] != "Namespace"]
        named(objects, "ConfigMap", "shoal-config")["data"]["shoal.toml"] += OPEN
        for one in of_kind(objects, "Deployment", "StatefulSet", "CronJob"):
            self.fit(one)
        for one in of_kind(objects, "PersistentVolumeClaim"):
            one["spec"] |= {"storageClassName": "", "volumeName": self.disk.volume(one["metadata"]["name"])}
        for one in of_kind(objects, "StatefulSet"):
            # Each volume names its claim, so a template needs to name none.
            one["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = ""
        return objects

    def fit(self, workload: Object) -> None:
        """Name the images, and ask for as little as a node of two processors has."""
        if workload["metadata"]["name"] in GROUPS:
            workload["spec"]["replicas"] = 2
        is_job = workload["kind"] == "CronJob"
        spec = (workload["spec"]["jobTemplate"]["spec"] if is_job else workload["spec"])["template"]["spec"]
        for container in _containers(spec):
            which = "valkey" if container["image"].startswith("valkey/") else "shoal"
            container["image"] = self._images[which] or container["image"]
            container["imagePullPolicy"] = "IfNotPresent"
            container["resources"]["requests"] = {"cpu": "10m", "memory": "32Mi"}


def _containers(spec: Object) -> Iterator[dict[str, Any]]:
    yield from (*spec.get("initContainers", ()), *spec["containers"])
