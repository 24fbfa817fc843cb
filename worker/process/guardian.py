"""The guardian: the parent of the workers. Standard library only: it is small and nothing can block
it. It starts the workers, forwards signals and restarts a worker that died. It also looks after
their leases. While a worker cannot renew (something holds its interpreter for seconds), the
guardian renews in its place. When a worker dies, the guardian releases its leases at once: other
workers resume the sessions within a moment instead of after the lease. With `--spare` it keeps one
more process that has imported everything and takes a dead worker's place."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from shared.confinement.own_process import hide_process
from shared.process.stderr import unbuffer_stderr
from worker.process.worker_handle import RETURN_EVERY_S, GuardianConfig, WorkerHandle

RESTART_FIRST_S: Final = 0.1
RESTART_CAP_S: Final = 10.0
HEALTHY_S: Final = 5.0
EXIT_SETTINGS: Final = 2


class SpawnedWorker(NamedTuple):
    """A worker process that was just started, and our end of the link to it."""

    child: subprocess.Popen[bytes]
    owner: str
    link: socket.socket
    slot: int


class Guardian:
    """Starts workers and keeps them running. The first one reads the settings and sends theirs."""

    _config: GuardianConfig

    def __init__(self, command: Sequence[str], *, spare: bool = False) -> None:
        self._command = command
        self._keeps_spare = spare
        self._spare: SpawnedWorker | None = None
        self._spare_at = 0.0  # when the next spare may be started
        self._workers: dict[SpawnedWorker, WorkerHandle] = {}
        self._returning: list[WorkerHandle] = []  # dead workers whose leases are not all given back
        self._restart_at: dict[int, float] = {}
        self._waits: dict[int, float] = {}
        self._signals_received = self._signals_handled = 0
        self._stopping = False
        self._kill_at = 0.0
        self._code = 0
        self._wakeup, self._signals = socket.socketpair()

    def run(self) -> int:
        """Guard until a signal (SIGTERM, SIGINT, SIGHUP) and return the worst exit code of the
        workers. A first worker that ends before it has sent its settings has printed the reason:
        then the guardian ends as well."""
        unbuffer_stderr()
        hide_process()
        self._wakeup.setblocking(False)
        self._signals.setblocking(False)
        signal.set_wakeup_fd(self._signals.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        # Without a handler Python would write nothing into the wake-up socket.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        first = self._spawn(0, "--tell")
        config = self._receive_config(first)
        if config is None:
            code = first.child.wait()
            return 0 if self._signals_received and code == -signal.SIGTERM else abs(code)
        self._config = config
        self._waits = dict.fromkeys(range(config.processes), RESTART_FIRST_S)
        self._adopt(first)
        for slot in range(1, config.processes):
            self._adopt(self._spawn(slot))
        while self._workers or self._restart_at or self._returning:
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
        """Count a signal. It is handled between two rounds: in one a worker may be half started."""
        self._signals_received += 1

    def _stop(self, received: int) -> None:
        """Forward the first signal. A second one kills the workers."""
        self._signals_handled = received
        if not self._stopping:
            self._stopping = True
            self._restart_at.clear()
            self._kill_at = time.monotonic() + self._config.drain_s + 5
        for started in self._workers:
            started.child.send_signal(signal.SIGKILL if received > 1 else signal.SIGTERM)
        if self._spare is not None:
            self._spare.child.kill()  # it holds nothing yet

    def _run_once(self) -> None:
        alive = [worker for worker in self._workers.values() if not worker.dead]
        wanted = [self._wakeup, *(worker.link for worker in alive)]
        ready, _, _ = select.select(wanted, [], [], self._select_timeout_s())
        if self._wakeup in ready:
            self._wakeup.recv(4096)
        for worker in self._workers.values():
            if worker.link in ready:
                worker.read_ticks()
        if (received := self._signals_received) > self._signals_handled:
            self._stop(received)
        self._reap()
        stopping = self._stopping
        self._returning = [one for one in self._returning if not one.return_leases(stopping)]
        for worker in list(self._workers.values()):
            if not worker.dead:
                worker.supervise()
        now = time.monotonic()
        if stopping and now > self._kill_at:
            for started in self._workers:
                started.child.kill()
        for slot, at in list(self._restart_at.items()):
            if now >= at:
                del self._restart_at[slot]
                self._adopt(self._spawn(slot))
        if self._keeps_spare and not stopping:
            self._keep_spare(now)

    def _keep_spare(self, now: float) -> None:
        """Start a spare when there is none. Not yet while a worker starts: its imports come
        first."""
        if self._spare is not None:
            if self._spare.child.poll() is not None:
                self._spare.link.close()
                self._spare = None
                self._spare_at = now + RESTART_CAP_S
            return
        youngest = max((worker.started_at for worker in self._workers.values()), default=now)
        if not self._restart_at and now > max(self._spare_at, youngest + HEALTHY_S):
            self._spare = self._spawn(0, "--spare")

    def _use_spare(self, slot: int) -> bool:
        """Let the spare take the place of a worker that died; return False if there is none."""
        spare = self._spare
        self._spare = None
        if spare is None or spare.child.poll() is not None:
            return False
        with contextlib.suppress(OSError):  # it dies just now: found like the death of any worker
            spare.link.send(b"slot %d\n" % slot)
        self._adopt(spare._replace(slot=slot))
        return True

    def _select_timeout_s(self) -> float:
        pauses = [at - time.monotonic() for at in self._restart_at.values()]
        if self._returning:
            pauses.append(RETURN_EVERY_S)
        return max(0.0, min([self._config.check_every_s, *pauses]))

    def _reap(self) -> None:
        for started, worker in list(self._workers.items()):
            slot = started.slot
            code = started.child.poll()
            if code is None:
                continue
            del self._workers[started]
            self._config.log_event("worker ended", pid=worker.pid, code=code)
            worker.end(crashed=code != 0)
            self._returning.append(worker)
            if self._stopping:
                # A worker that was stopped before it was ready had nothing to drain.
                early = code == -signal.SIGTERM and not worker.ticked
                self._code = max(self._code, 0 if early else abs(code))
                continue
            if code == EXIT_SETTINGS and not worker.ticked:
                self._config.log_event("worker cannot start", pid=worker.pid, doing="ending")
                self._code = code
                self._stop(max(1, self._signals_received))
                continue
            # Back-off is for a worker that cannot start. One that ran and was killed is replaced at
            # once.
            now = time.monotonic()
            if worker.ticked and (code < 0 or now - worker.started_at > HEALTHY_S):
                self._waits[slot] = RESTART_FIRST_S
                if not self._use_spare(slot):
                    self._restart_at[slot] = now
            else:
                self._restart_at[slot] = now + self._waits[slot]
                self._waits[slot] = min(self._waits[slot] * 2, RESTART_CAP_S)

    def _spawn(self, slot: int, *more: str) -> SpawnedWorker:
        mine, theirs = socket.socketpair()
        owner = os.urandom(16).hex()
        with theirs:
            fd = theirs.fileno()
            arguments = ["--guard", f"{fd},{owner}", "--slot", str(slot), *more]
            child = subprocess.Popen([*self._command, *arguments], pass_fds=[fd])
        return SpawnedWorker(child, owner, mine, slot)

    def _adopt(self, started: SpawnedWorker) -> None:
        pid = started.child.pid
        self._workers[started] = WorkerHandle(self._config, started.owner, started.link, pid)
        self._config.log_event("worker started", pid=pid)


def main() -> int:
    """Guard a worker that is not our child (arq's own command started it) until it ends: `python -m
    worker.process.guardian <owner> <link fd> <pid>`."""
    unbuffer_stderr()
    hide_process()
    owner, fd, pid = sys.argv[1:4]
    link = socket.socket(fileno=int(fd))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    config = GuardianConfig.receive(link)
    if config is None:
        return 0
    worker = WorkerHandle(config, owner, link, int(pid))
    while not worker.dead:
        ready, _, _ = select.select([link], [], [], config.check_every_s)
        if ready:
            worker.read_ticks()
        if not worker.dead:
            worker.supervise()
    worker.end(crashed=True)
    while not worker.return_leases():
        time.sleep(RETURN_EVERY_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
