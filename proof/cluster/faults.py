"""What a bad day does to an installation. Each fault returns once the cluster has mended it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Final

from proof.cluster.installation import GROUPS, Installation
from proof.cluster.kubectl import wait_until
from tests.helpers.manifests import Object

KILL_ALL: Final = "for p in /proc/[0-9]*; do n=${p#/proc/}; [ $n -gt 1 ] && [ $n != $$ ] && kill -9 $n; done; true"
"""Everything in a container but its first process, which the kernel shields from its own container."""

FILL: Final = "import os\nf = os.memfd_create('x')\nwhile True: os.write(f, bytes(1 << 20))"
"""Memory that counts for the container and not for this process: the kernel ends the largest one, a worker."""


def rollout(at: Installation) -> None:
    """A new revision of everything but Redis."""
    at.kubectl("rollout", "restart", *(f"deployment/{name}" for name in GROUPS))
    at.wait_ready()


def kill_inside(at: Installation) -> None:
    """`kill -9` of everything below the guardian of a worker for turns, and of one for jobs."""
    for component in ("worker-turns", "worker-jobs"):
        at.kubectl("exec", at.kubectl.ready(component)[0], "-c", "shoal", "--", "sh", "-c", KILL_ALL, check=False)
    at.wait_ready()


def delete_by_force(at: Installation) -> None:
    """A worker and a gateway, with no time to end."""
    for component in ("worker-turns", "gateway-web"):
        at.kubectl("delete", "pod", at.kubectl.ready(component)[0], "--force", "--grace-period=0", check=False)
        wait_until(partial(is_count, partial(at.kubectl.ready, component), 2), 120, f"a new {component}")


def is_count(pods: Callable[[], list[str]], count: int) -> bool:
    return len(pods()) == count


def delete_redis(at: Installation) -> None:
    """The one pod of Redis."""
    at.kubectl("delete", "pod", "shoal-redis-0", "--wait=true")
    wait_until(lambda: at.kubectl.ready("redis"), 120, "a new Redis")
    at.wait_ready()


def run_out_of_memory(at: Installation) -> None:
    """A worker's container reaches its limit; the kernel kills in it."""
    pod = at.kubectl.ready("worker-turns")[0]
    before = killed(at, pod)
    at.kubectl("exec", pod, "-c", "shoal", "--", "python", "-c", FILL, check=False)
    wait_until(lambda: killed(at, pod) > before, 60, "a kill for lack of memory")
    at.wait_ready()


def killed(at: Installation, pod: str) -> int:
    """Return how often the kernel killed in a worker's container, by its restarts and by its cgroup."""
    status = json.loads(at.kubectl("get", "pod", pod, "-o", "json"))["status"]["containerStatuses"][0]
    files = "/sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events"
    counts = at.kubectl("exec", pod, "-c", "shoal", "--", "sh", "-c", f"cat {files} 2>/dev/null; true", check=False)
    kills = [int(line.split()[1]) for line in counts.splitlines() if line.startswith("oom_kill ")]
    return sum(kills) + 1000 * int(status["restartCount"])


def scale(at: Installation) -> None:
    """From 2 workers to 4, and back."""
    for count in (4, 2):
        at.kubectl("scale", "deployment/worker-turns", f"--replicas={count}")
        ready = partial(at.kubectl.ready, "worker-turns")
        wait_until(partial(is_count, ready, count), 120, f"{count} workers")


def drain(at: Installation) -> None:
    """An eviction of both workers, as of a node that is emptied: the second is refused until the first is back."""
    first, second = at.kubectl.ready("worker-turns")[:2]
    assert "ailure" not in evict(at, first)
    assert "disruption budget" in evict(at, second)
    wait_until(lambda: "disruption budget" not in evict(at, second), 150, "the second eviction")
    at.wait_ready()


def evict(at: Installation, pod: str) -> str:
    """Ask for an eviction; return the answer."""
    metadata = {"name": pod, "namespace": at.kubectl.namespace}
    body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
    path = f"/api/v1/namespaces/{at.kubectl.namespace}/pods/{pod}/eviction"
    return at.kubectl("create", "--raw", path, "-f", "-", stdin=body, check=False)


def undo(at: Installation) -> None:
    """A revision of workers that cannot start, taken back."""
    at.kubectl("set", "env", "deployment/worker-turns", "-c", "shoal", "SHOAL_WORKER__TURNS=none")
    wait_until(lambda: any(map(has_failed, at.kubectl.pods("worker-turns"))), 60, "a pod that cannot start")
    assert at.kubectl.ready("worker-turns"), "the others stay until the new one works"
    at.kubectl("rollout", "undo", "deployment/worker-turns")
    at.wait_ready()


def has_failed(pod: Object) -> bool:
    """Return whether a pod's worker ended at its start."""
    statuses = pod["status"].get("containerStatuses", ())
    return any("terminated" in one["state"] or one["restartCount"] for one in statuses if not one["ready"])


FAULTS: Final[dict[str, Callable[[Installation], None]]] = {
    "kill -9 inside pods": kill_inside,
    "delete --force": delete_by_force,
    "Redis' pod deleted": delete_redis,
    "out of memory": run_out_of_memory,
    "scale 2, 4, 2": scale,
    "drain": drain,
    "rollout undo": undo,
    "rollout of everything": rollout,
}
