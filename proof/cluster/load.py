"""The people of `proof.chaos`, who reach the gateways of a cluster through its API server."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

from proof.chaos.people import Frame, Person
from proof.cluster.kubectl import Kubectl


class Forwards:
    """One `kubectl port-forward` for each gateway that is ready: a way to a pod ends with it, so call `keep` often."""

    def __init__(self, kubectl: Kubectl, component: str, port: int) -> None:
        self._kubectl, self._component, self._port = kubectl, component, port
        self._open: dict[str, tuple[subprocess.Popen[str], str]] = {}

    def addresses(self) -> list[str]:
        """Return where the gateways are reached here. Raises OSError while none is."""
        found = [address for process, address in list(self._open.values()) if process.poll() is None]
        if not found:
            raise ConnectionError("no gateway is ready")
        return found

    def keep(self) -> None:
        """Open a way to each ready pod, and close those to others."""
        ready = self._kubectl.ready(self._component)
        for name, (process, _) in list(self._open.items()):
            if name not in ready or process.poll() is not None:
                del self._open[name]
                end(process)
        for name in ready:
            if name not in self._open:
                words = [*self._kubectl.words, "port-forward", f"pod/{name}", f":{self._port}"]
                process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                assert process.stdout is not None
                if found := re.search(r"127\.0\.0\.1:\d+", process.stdout.readline()):
                    self._open[name] = process, found[0]
                else:
                    end(process)

    def close(self) -> None:
        for process, _ in self._open.values():
            end(process)
        self._open.clear()


def end(process: subprocess.Popen[str]) -> None:
    """End a way and wait for it."""
    process.kill()
    process.communicate()


class ClusterPerson(Person):
    """Somebody who has every token that is or was right, and measures the time until a message is accepted."""

    def __init__(self, name: str, addresses: Callable[[], list[str]], rng: random.Random, tokens: list[str]) -> None:
        super().__init__(name, addresses, rng, token=tokens[0])
        self.accept_waits: list[float] = []
        self.tokens = tokens
        self.welcomed_with = ""

    async def _talk(self, socket: Any) -> None:
        self._token = self._rng.choice(self.tokens)
        await super()._talk(socket)

    def _hear(self, frame: Frame) -> None:
        if frame["type"] == "accepted" and frame["id"] not in self.accepted:
            self.accept_waits.append(time.monotonic() - self.sent_at[frame["id"]])
        elif frame["type"] == "welcome":
            self.welcomed_with = self._token
        super()._hear(frame)
