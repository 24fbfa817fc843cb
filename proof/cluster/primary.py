"""What a bad day does to a Redis with Sentinels. Each fault returns once all servers are in step again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from proof.cluster.installation import Installation
from proof.cluster.kubectl import wait_until

NAMED: Final = (
    "valkey-cli -p 26379 --tls --cacert /run/secrets/tls/ca.crt SENTINEL GET-MASTER-ADDR-BY-NAME shoal | head -n 1"
)


def primary(at: Installation) -> str:
    """Return the pod that a Sentinel calls the primary."""
    [pod, *_] = at.kubectl.ready("sentinel")
    return at.kubectl("exec", pod, "-c", "sentinel", "--", "sh", "-c", NAMED).strip().partition(".")[0]


def delete_by_force(at: Installation) -> None:
    """The primary's pod, with no time to end."""
    before = primary(at)
    at.kubectl("delete", "pod", before, "--force", "--grace-period=0", check=False)
    _moved_on(at, before)


def kill(at: Installation) -> None:
    """`kill -9` of the primary's server, whose container starts again at once."""
    before = primary(at)
    statuses = json.loads(at.kubectl("get", "pod", before, "-o", "json"))["status"]["containerStatuses"]
    at.disk.kill(statuses[0]["containerID"].partition("//")[2])
    _moved_on(at, before)


def delete_others(at: Installation) -> None:
    """A replica and a Sentinel at the same time."""
    replica = next(pod for pod in at.kubectl.ready("redis") if pod != primary(at))
    at.kubectl("delete", "pod", replica, at.kubectl.ready("sentinel")[-1], "--force", "--grace-period=0", check=False)
    _mended(at)


def rollout(at: Installation) -> None:
    """New pods of all servers and Sentinels, one by one; the primary hands over before it ends."""
    at.kubectl("rollout", "restart", "statefulset/shoal-redis", "statefulset/shoal-sentinel")
    _mended(at)


def _moved_on(at: Installation, before: str) -> None:
    wait_until(lambda: primary(at) != before, 30, "a new primary")
    _mended(at)


def _mended(at: Installation) -> None:
    """A pod that was deleted a moment ago may still count as ready."""
    wait_until(lambda: len(at.kubectl.ready("redis")) == len(at.kubectl.ready("sentinel")) == 3, 120, "all servers")
    at.wait_ready()


FAULTS: Final[dict[str, Callable[[Installation], None]]] = {
    "primary's pod deleted by force": delete_by_force,
    "kill -9 of the primary": kill,
    "replica and Sentinel deleted by force": delete_others,
    "rollout of Redis and Sentinels": rollout,
}
