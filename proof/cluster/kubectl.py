"""kubectl in one namespace, and waiting for what it shows."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

from tests.helpers.manifests import Object, tool


class Kubectl:
    """kubectl, in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.words = [str(tool("kubectl")), "--namespace", namespace]

    def __call__(self, *words: str, stdin: str | None = None, timeout_s: float = 180.0, check: bool = True) -> str:
        """Run it and return what it printed; with `check` False also what it complained about."""
        result = subprocess.run(
            [*self.words, *words], input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and result.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {result.stderr.strip()}")
        return result.stdout if check else result.stdout + result.stderr

    def pods(self, component: str) -> list[Object]:
        """Return the pods of a component that are not ending."""
        listed = json.loads(self("get", "pods", "-l", f"app.kubernetes.io/component={component}", "-o", "json"))
        return [pod for pod in listed["items"] if "deletionTimestamp" not in pod["metadata"]]

    def ready(self, component: str) -> list[str]:
        """Return the names of its pods that are ready."""
        return [pod["metadata"]["name"] for pod in self.pods(component) if is_ready(pod)]


def is_ready(pod: Object) -> bool:
    """Return whether a pod should get work."""
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def wait_until(check: Callable[[], object], within_s: float, what: str) -> None:
    """Return once `check` returns something true. Raises TimeoutError."""
    give_up_at = time.monotonic() + within_s
    while not check():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{what} did not happen within {within_s:.0f} s")
        time.sleep(0.25)
