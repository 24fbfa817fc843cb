"""What a cluster does with the pods of a Deployment: as many as there shall be, replaced by its strategy, led to while
they are ready. Pods are processes of this machine (`tests.helpers.kubelet`).

Source: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/ and, for sidecars,
https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from typing import Final

from shared.tasks import cancel_all
from tests.gateway.harness import free_port
from tests.helpers.kubelet import Cluster, Pod, Running
from tests.helpers.manifests import named

MAIN: Final = "shoal"
SPREAD_S: Final = 1.0
"""So long after the end of a pod has begun some node of a cluster still leads to it."""

Extra = Callable[[Mapping[str, str]], Mapping[str, str]]
"""The variables by which a process listens on its pod's own ports."""


class Replica:
    """A pod: its sidecars one after the other, then its container; ended the other way round."""

    def __init__(self, pod: Pod, extra: Mapping[str, str]) -> None:
        self.pod = pod
        self.ready = False
        self._extra = extra
        self._running: list[Running] = []

    @property
    def main(self) -> Running:
        """The container that is no sidecar."""
        return self._running[-1]

    @property
    def log(self) -> str:
        """What all its containers wrote."""
        return "".join(one.log for one in self._running)

    def start(self) -> None:
        """Return when it is ready."""
        for name, container in self.pod.containers.items():
            self._running.append(self.pod.run(name, self._extra if name == MAIN else None))
            if "startupProbe" in container:
                self.main.up()
        assert self.main.container["name"] == MAIN
        self.main.ready()
        self.ready = True

    def stop(self) -> list[int]:
        """The exit codes, the container's first. Raises TimeoutExpired after the grace of the pod."""
        self.ready = False
        ends_at = time.monotonic() + self.pod.spec["terminationGracePeriodSeconds"]
        return [one.stop(ends_at - time.monotonic()) for one in reversed(self._running)]

    def kill(self) -> None:
        """End what is left of it."""
        for one in reversed(self._running):
            one.kill()


class Rollout:
    """The pods of one Deployment. `ports` are the numbers in its manifests that each pod has for itself."""

    def __init__(self, cluster: Cluster, name: str, *, replicas: int, ports: tuple[str, ...], extra: Extra) -> None:
        self.name = name
        self.replicas = replicas
        strategy = named(cluster.objects, "Deployment", name)["spec"]["strategy"]["rollingUpdate"]
        self.surge = share(strategy["maxSurge"], replicas, math.ceil)
        self.unavailable = share(strategy["maxUnavailable"], replicas, math.floor)
        self.pods: list[Replica] = []
        """All that were ever started, the oldest first."""
        self.codes: list[list[int]] = []
        """The exit codes of those that ended."""
        self._cluster = cluster
        self._ports = ports
        self._extra = extra
        self._current: list[Replica] = []
        self._leaving: list[Replica] = []

    @property
    def ready(self) -> list[Replica]:
        """Pods that are ready and not told to end."""
        return [one for one in self._current if one.ready]

    @property
    def endpoints(self) -> list[Replica]:
        """Where a Service leads: those, and for a moment those that were."""
        return self.ready + self._leaving

    async def start(self) -> None:
        """All of them at once, until they are ready."""
        await asyncio.gather(*(self._begin() for _ in range(self.replicas)))

    async def replace(self) -> None:
        """A new revision: each pod is replaced, as fast as the strategy allows. Those that end are not counted, and are
        waited for at last."""
        old = list(self._current)
        missing = self.replicas
        starting: set[asyncio.Task[None]] = set()
        ending: list[asyncio.Task[None]] = []
        try:
            while missing or starting or old:
                while missing and len(self._current) < self.replicas + self.surge:
                    starting.add(asyncio.create_task(self._begin()))
                    missing -= 1
                    await asyncio.sleep(0)
                while old and len(self.ready) > self.replicas - self.unavailable:
                    ending.append(asyncio.create_task(self._end(old.pop(0))))
                    await asyncio.sleep(0)
                if starting:
                    done, starting = await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
            await asyncio.gather(*ending)
        finally:
            await cancel_all([*starting, *ending])

    async def stop(self) -> None:
        """End all."""
        await asyncio.gather(*(self._end(one) for one in list(self._current)))

    def kill(self) -> None:
        """End what is left."""
        for one in self.pods:
            one.kill()

    async def _begin(self) -> None:
        ours = {port: str(free_port()) for port in self._ports}
        pod = self._cluster.pod("Deployment", self.name, instance=f"-{len(self.pods)}", ours=ours)
        one = Replica(pod, self._extra(ours))
        self.pods.append(one)
        self._current.append(one)
        await asyncio.to_thread(one.start)

    async def _end(self, one: Replica) -> None:
        one.ready = False
        self._current.remove(one)
        self._leaving.append(one)
        asyncio.get_running_loop().call_later(SPREAD_S, self._leaving.remove, one)
        self.codes.append(await asyncio.to_thread(one.stop))


def share(value: int | str, replicas: int, rounded: Callable[[float], int]) -> int:
    """A number of pods, or a part of them as `25%`."""
    return rounded(int(value[:-1]) * replicas / 100) if isinstance(value, str) else value
