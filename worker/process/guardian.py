"""The guardian: the parent of the workers. Standard library only, so that it is small and has
nothing to hang on.

It starts the workers, hands signals on, starts a worker again that died, and looks after their
leases: while a worker cannot renew (something holds its interpreter for seconds) the guardian does;
when a worker dies it gives the leases back at once, so that the sessions go on elsewhere within a
moment instead of after the lease.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from worker.process.worker_handle import GuardianConfig, LeaseReturn, WorkerHandle

RESTART_FIRST_S: Final = 0.1
RESTART_CAP_S: Final = 10.0
HEALTHY_S: Final = 5.0
EXIT_SETTINGS: Final = 2


class SpawnedWorker(NamedTuple):
    """A worker that was just started, and our end of the link to it."""

    child: subprocess.Popen[bytes]
    owner: str
    link: socket.socket


class Guardian:
    """Starts workers and keeps them. The first one reads the settings, and tells how many there are
    to be."""

    _config: GuardianConfig

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._workers: dict[int, WorkerHandle] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._slots: dict[int, int] = {}
        self._lease_returns: list[LeaseReturn] = []
        self._restart_at: dict[int, float] = {}
        self._waits: dict[int, float] = {}
        self._signals_received = self._signals_handled = 0
        self._stopping = False
        self._kill_at = 0.0
        self._code = 0
        self._wakeup, self._signals = socket.socketpair()

    def run(self) -> int:
        """Guard until told to stop (SIGTERM, SIGINT); the exit code is the worst of the workers'.

        A first worker that ends before it has told what is in the settings has said why: that is
        the end, too.
        """
        self._wakeup.setblocking(False)
        self._signals.setblocking(False)
        signal.set_wakeup_fd(self._signals.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        first = self._spawn(0, "--tell")
        config = self._receive_config(first)
        if config is None:
            code = first.child.wait()
            return 0 if self._signals_received and code == -signal.SIGTERM else abs(code)
        self._config = config
        self._waits = dict.fromkeys(range(config.processes), RESTART_FIRST_S)
        self._adopt(0, first)
        for slot in range(1, config.processes):
            self._adopt(slot, self._spawn(slot))
        while self._children or self._restart_at or self._lease_returns:
            self._run_once()
        return self._code

    def _receive_config(self, first: SpawnedWorker) -> GuardianConfig | None:
        while True:
            ready, _, _ = select.select([self._wakeup, first.link], [], [])
            if first.link in ready:
                return GuardianConfig.receive(first.link)
            self._wakeup.recv(4096)
            if self._signals_received:
                first.child.terminate()

    def _on_signal(self, *_: object) -> None:
        """Signals are acted on between two steps, never in the middle of one: a worker may just be
        being started."""
        self._signals_received += 1

    def _stop(self, asked: int) -> None:
        """Hand the first signal on; a second one kills."""
        self._signals_handled = asked
        if not self._stopping:
            self._stopping = True
            self._restart_at.clear()
            self._kill_at = time.monotonic() + self._config.drain_s + 5
        for child in self._children.values():
            child.send_signal(signal.SIGKILL if asked > 1 else signal.SIGTERM)

    def _run_once(self) -> None:
        wanted = [self._wakeup, *(ward.link for ward in self._workers.values() if not ward.dead)]
        ready, _, _ = select.select(wanted, [], [], self._select_timeout_s())
        if self._wakeup in ready:
            self._wakeup.recv(4096)
        for ward in self._workers.values():
            if ward.link in ready:
                ward.read_ticks()
        if (asked := self._signals_received) > self._signals_handled:
            self._stop(asked)
        self._reap()
        self._lease_returns = [
            grave for grave in self._lease_returns if not grave.run_once(shutting_down=self._stopping)
        ]
        for ward in list(self._workers.values()):
            if not ward.dead:
                ward.supervise()
        now = time.monotonic()
        if self._stopping and now > self._kill_at:
            for child in self._children.values():
                child.kill()
        for slot, at in list(self._restart_at.items()):
            if now >= at:
                del self._restart_at[slot]
                self._adopt(slot, self._spawn(slot))

    def _select_timeout_s(self) -> float:
        pauses = [self._config.check_every_s]
        if self._lease_returns:
            pauses.append(LeaseReturn.INTERVAL_S)
        pauses += [at - time.monotonic() for at in self._restart_at.values()]
        return max(0.0, min(pauses))

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            code = child.poll()
            if code is None:
                continue
            ward, slot = self._workers.pop(pid), self._slots.pop(pid)
            del self._children[pid]
            self._config.log_event("worker ended", pid=pid, code=code)
            self._lease_returns.append(ward.return_leases(crashed=code != 0))
            if self._stopping:
                # One that was told to end before it was up had nothing to drain.
                early = code == -signal.SIGTERM and not ward.ticked
                self._code = max(self._code, 0 if early else abs(code))
                continue
            if code == EXIT_SETTINGS and not ward.ticked:
                self._config.log_event("worker cannot start", pid=pid, doing="ending")
                self._code = code
                self._stop(max(1, self._signals_received))
                continue
            # Back-off is for what cannot start. One that ran and was killed is missed at once.
            ran = code < 0 or time.monotonic() - ward.started_at > HEALTHY_S
            wait_s = RESTART_FIRST_S if ran and ward.ticked else self._waits[slot]
            self._waits[slot] = min(wait_s * 2, RESTART_CAP_S)
            self._restart_at[slot] = time.monotonic() + wait_s

    def _spawn(self, slot: int, *more: str) -> SpawnedWorker:
        mine, theirs = socket.socketpair()
        owner = os.urandom(16).hex()
        with theirs:
            child = subprocess.Popen(
                [*self._command, "--guard", f"{theirs.fileno()},{owner}", "--slot", str(slot), *more],
                pass_fds=[theirs.fileno()],
            )
        return SpawnedWorker(child, owner, mine)

    def _adopt(self, slot: int, started: SpawnedWorker) -> None:
        child, owner, link = started
        self._children[child.pid] = child
        self._slots[child.pid] = slot
        self._workers[child.pid] = WorkerHandle(self._config, owner, link, child.pid)
        self._config.log_event("worker started", pid=child.pid)


def guard_process(owner: str, link: socket.socket, pid: int) -> int:
    """Guard a worker that is not our child (it was started by arq's own command) until it ends."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    config = GuardianConfig.receive(link)
    if config is None:
        return 0
    ward = WorkerHandle(config, owner, link, pid)
    while not ward.dead:
        ready, _, _ = select.select([link], [], [], config.check_every_s)
        if ready:
            ward.read_ticks()
        if not ward.dead:
            ward.supervise()
    grave = ward.return_leases(crashed=True)
    while not grave.run_once():
        time.sleep(LeaseReturn.INTERVAL_S)
    return 0


def main() -> int:
    """`python -m worker.process.guardian <owner> <link fd> <pid>` guards a worker that runs."""
    owner, link, pid = sys.argv[1:4]
    return guard_process(owner, socket.socket(fileno=int(link)), int(pid))


if __name__ == "__main__":
    sys.exit(main())
