"""Day two: what docs/kubernetes-operations.md and the parts for a cluster of docs/operations.md
say, while people chat. Each step runs blocks of the pages as they are written, and looks at what
came of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Final

import yaml  # type: ignore[import-untyped]

from proof.cluster.installation import Installation
from proof.cluster.kubectl import wait_until
from proof.cluster.pages import BEGIN, DAY_TWO, KUBERNETES, OPERATIONS
from tests.helpers.manifests import ROOT, of_kind, overlay

AFTER: Final = "written-after-the-copy"


def ask_servers(at: Installation, *words: str) -> list[str]:
    """Return what each server of Redis answers to the user admin; errors, too: a replica takes no
    writes."""
    command = ("-c", "valkey", "--", "sh", "/etc/valkey/as-admin", *words)
    return [at.kubectl("exec", pod, *command, check=False).strip() for pod in sorted(at.kubectl.ready("redis"))]


def first_answer(at: Installation) -> None:
    """The fleet is there, and `shoal doctor` finds nothing; Redis tells an admin about itself."""
    at.pages.run(KUBERNETES, "shoal doctor")
    at.pages.run(DAY_TWO, "SLOWLOG")


def platform_and_key(at: Installation) -> None:
    """Secrets of a chat platform, of the model and of a bucket."""
    for name, text in (("your-token", "1:a"), ("your-key", "sk-test"), ("rclone.conf", "[backup]\n")):
        (at.folder / name).write_text(text)
    at.pages.run(KUBERNETES, "shoal-telegram --from-file")
    at.pages.run(KUBERNETES, "cp your-key")
    at.pages.run(DAY_TWO, "shoal-backup-s3")
    found = at.kubectl("get", "secret", "shoal-telegram", "shoal-backup-s3", "-o", "name").split()
    assert found == ["secret/shoal-telegram", "secret/shoal-backup-s3"]


def back_up(at: Installation) -> None:
    """A copy on a volume, made while people chat."""
    at.pages.run(DAY_TWO, "backup-now")
    assert "Z" in at.pages.run(DAY_TWO, "ls -l /backup")


def more_memory(at: Installation) -> None:
    """maxmemory and the limit of the container, without a restart."""
    before = restarts(at)
    at.pages.run(DAY_TWO, "CONFIG SET maxmemory")
    assert {row.split()[-1] for row in ask_servers(at, "CONFIG", "GET", "maxmemory")} == {str(2730 * 2**20)}
    assert restarts(at) == before


def change_password(at: Installation) -> None:
    """Of the workers, with rollouts; Redis is not restarted, and knows the new one alone at the
    end."""
    before = restarts(at)
    at.pages.run(DAY_TWO, "SETUSER worker")
    password = (at.folder / "secrets" / "redis-worker").read_text().strip()
    rows = ask_servers(at, "ACL", "LIST")
    assert all(row.count("user worker on") == 1 for row in rows)
    known = [line.count("#") for row in rows for line in row.splitlines() if line.startswith("user worker ")]
    assert known == [1] * len(rows)
    assert all(f"#{hashlib.sha256(password.encode()).hexdigest()}" in row for row in rows)
    assert restarts(at) == before


def change_passwords_of_servers(at: Installation) -> None:
    """What servers and Sentinels have among themselves; all six start again."""
    at.pages.run(DAY_TWO, "secrets/redis-replica")
    at.wait_ready()


def pause_autoscaling(at: Installation) -> None:
    """KEDA's objects, without its controller, which the cluster of this test may not have."""
    crd = ROOT / "tests" / "data" / "crds" / "keda.sh_scaledobjects.yaml"
    is_ours = "NotFound" in at.kubectl("get", "-f", str(crd), check=False)
    if is_ours:
        at.kubectl("create", "-f", str(crd))
        at.kubectl("wait", "--for=condition=Established", "-f", str(crd), "--timeout=60s")
    try:
        scaled = of_kind(overlay("production"), "ScaledObject")
        for one in scaled:
            one["metadata"]["namespace"] = at.kubectl.namespace
        at.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(scaled))
        at.pages.run(DAY_TWO, "autoscaling.keda.sh/paused=true")
        assert set(paused(at)) == {"true"}
        at.pages.run(OPERATIONS, "patch scaledobject worker-turns")
        at.pages.run(DAY_TWO, "autoscaling.keda.sh/paused-")
        assert set(paused(at)) == {None}
        at.kubectl("delete", "scaledobject", "--all")
    finally:
        if is_ours:
            at.kubectl("delete", "-f", str(crd), "--wait=false", check=False)


def paused(at: Installation) -> list[str | None]:
    """Return what each object of KEDA says of being paused."""
    items = json.loads(at.kubectl("get", "scaledobjects", "-o", "json"))["items"]
    return [one["metadata"].get("annotations", {}).get("autoscaling.keda.sh/paused") for one in items]


def drain_and_roll_back(at: Installation) -> None:
    """New pods of workers, the overlay applied again, the revision before; then old ConfigMaps
    go."""
    at.pages.run(OPERATIONS, "rollout restart deploy/worker-turns")
    at.pages.run(OPERATIONS, "apply -k k8s/overlays/yours")
    at.pages.run(OPERATIONS, "rollout undo deploy/worker-turns")
    at.wait_ready()
    at.kubectl("create", "configmap", "shoal-config-0123456789", "--from-literal=a=b")
    at.pages.run(DAY_TWO, "delete configmap")
    assert "0123456789" not in at.kubectl("get", "configmaps", "-o", "name")
    at.wait_ready()


def restore(at: Installation) -> None:
    """The copy that was made before. Nobody chats: what came after it is lost."""
    ask_servers(at, "SET", AFTER, "1")
    sessions = at.kubectl("exec", "deploy/console", "--", "shoal", "session", "list")
    assert "p0" in sessions
    at.pages.run(DAY_TWO, "restore.rdb")
    found: list[str] = []

    def is_gone() -> bool:
        # A replica that loads what its primary has answers with an error until then.
        found[:] = ask_servers(at, "EXISTS", AFTER)
        return set(found) == {"0"}

    wait_until(is_gone, 60, "every server in the state of the copy")
    wait_until(lambda: "p0" in at.kubectl("exec", "deploy/console", "--", "shoal", "session", "list"), 60, "old chats")


def restarts(at: Installation) -> list[tuple[str, int]]:
    """Return when each pod of Redis was made, and how often it was restarted."""
    return [
        (pod["metadata"]["uid"], sum(one["restartCount"] for one in pod["status"]["containerStatuses"]))
        for pod in sorted(at.kubectl.pods("redis"), key=lambda pod: str(pod["metadata"]["name"]))
    ]


def move_to_sentinels(at: Installation) -> None:
    """From one Valkey to three with Sentinels, with all that it knows."""
    at.become_sentinels()
    at.pages.run(KUBERNETES, "delete statefulset shoal-redis")
    at.wait_ready()
    assert len(ask_servers(at, "PING")) == 3
    assert "p0" in at.kubectl("exec", "deploy/console", "--", "shoal", "session", "list")


STEPS: Final[dict[str, Callable[[Installation], None]]] = {
    "first answer": first_answer,
    "secrets of your own": platform_and_key,
    "backup": back_up,
    "more memory for Redis": more_memory,
    "password of the workers": change_password,
    "KEDA paused": pause_autoscaling,
    "rollback": drain_and_roll_back,
}
"""While people chat."""

AFTERWARDS: Final[dict[str, Callable[[Installation], None]]] = {
    "restore": restore,
    "one Valkey becomes three with Sentinels": move_to_sentinels,
}
WITH_SENTINELS: Final = {name: STEPS[name] for name in ("backup", "more memory for Redis", "password of the workers")}
AFTERWARDS_WITH_SENTINELS: Final[dict[str, Callable[[Installation], None]]] = {
    "restore": restore,
    "passwords of servers and Sentinels": change_passwords_of_servers,
}
ASIDE: Final = (BEGIN, "docker build", "helm install", "helm upgrade", "port-forward", "k8s/overlays/dev")
"""Parts of blocks that are no step: the functions of each shell, and what needs Docker, Helm, or a
person."""
