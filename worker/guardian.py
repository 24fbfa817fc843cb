"""The guardian: the parent of the workers. Standard library only, so that it is small and has nothing to hang on.

It starts the workers, hands signals on, starts a worker again that died, and looks after their leases: while a worker
cannot renew (something holds its interpreter for seconds) the guardian does; when a worker dies it gives the leases
back at once, so that the sessions go on elsewhere within a moment instead of after the lease.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Final

from worker.ward import QUEUES, Config, Grave, Ward

RESTART_FIRST_S: Final = 0.1
RESTART_CAP_S: Final = 10.0
HEALTHY_S: Final = 5.0
EXIT_SETTINGS: Final = 2


def queue_name(word: str) -> str:
    """A queue as an argument of a command. Raises ValueError for one that is none."""
    if word not in QUEUES:
        raise ValueError(f"no queue {word!r}; there are {', '.join(QUEUES)}")
    return word


class Guardian:
    """Starts `config.processes` workers and keeps them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._wards: dict[int, Ward] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._slots: dict[int, int] = {}
        self._graves: list[Grave] = []
        self._restart_at: dict[int, float] = {}
        self._waits = dict.fromkeys(range(config.processes), RESTART_FIRST_S)
        self._asked = self._heeded = 0
        self._stopping = False
        self._kill_at = 0.0
        self._code = 0
        self._wakeup, self._signals = socket.socketpair()

    def run(self) -> int:
        """Guard until told to stop (SIGTERM, SIGINT); the exit code is the worst of the workers'."""
        self._wakeup.setblocking(False)
        self._signals.setblocking(False)
        signal.set_wakeup_fd(self._signals.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for slot in range(self._config.processes):
            self._start(slot)
        while self._children or self._restart_at or self._graves:
            self._turn()
        return self._code

    def _note(self, *_: object) -> None:
        """Signals are acted on between two steps, never in the middle of one: a worker may just be being started."""
        self._asked += 1

    def _stop(self, asked: int) -> None:
        """Hand the first signal on; a second one kills."""
        self._heeded = asked
        if not self._stopping:
            self._stopping = True
            self._restart_at.clear()
            self._kill_at = time.monotonic() + self._config.drain_s + 5
        for child in self._children.values():
            child.send_signal(signal.SIGKILL if asked > 1 else signal.SIGTERM)

    def _turn(self) -> None:
        wanted = [self._wakeup, *(ward.link for ward in self._wards.values() if not ward.dead)]
        ready, _, _ = select.select(wanted, [], [], self._pause_s())
        if self._wakeup in ready:
            self._wakeup.recv(4096)
        for ward in self._wards.values():
            if ward.link in ready:
                ward.listen()
        if (asked := self._asked) > self._heeded:
            self._stop(asked)
        self._reap()
        self._graves = [grave for grave in self._graves if not grave.tend(hurry=self._stopping)]
        for ward in list(self._wards.values()):
            if not ward.dead:
                ward.look_after()
        now = time.monotonic()
        if self._stopping and now > self._kill_at:
            for child in self._children.values():
                child.kill()
        for slot, at in list(self._restart_at.items()):
            if now >= at:
                del self._restart_at[slot]
                self._start(slot)

    def _pause_s(self) -> float:
        pauses = [self._config.look_every_s]
        if self._graves:
            pauses.append(Grave.BETWEEN_S)
        pauses += [at - time.monotonic() for at in self._restart_at.values()]
        return max(0.0, min(pauses))

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            code = child.poll()
            if code is None:
                continue
            ward, slot = self._wards.pop(pid), self._slots.pop(pid)
            del self._children[pid]
            self._config.say("worker ended", pid=pid, code=code)
            self._graves.append(ward.bury(crashed=code != 0))
            if self._stopping:
                # One that was told to end before it was up had nothing to drain.
                early = code == -signal.SIGTERM and not ward.ticked
                self._code = max(self._code, 0 if early else abs(code))
                continue
            if code == EXIT_SETTINGS and not ward.ticked:
                self._config.say("worker cannot start", pid=pid, doing="ending")
                self._code = code
                self._stop(max(1, self._asked))
                continue
            # Back-off is for what cannot start. One that ran and was killed is missed at once.
            ran = code < 0 or time.monotonic() - ward.started > HEALTHY_S
            wait_s = RESTART_FIRST_S if ran and ward.ticked else self._waits[slot]
            self._waits[slot] = min(wait_s * 2, RESTART_CAP_S)
            self._restart_at[slot] = time.monotonic() + wait_s

    def _start(self, slot: int) -> None:
        mine, theirs = socket.socketpair()
        owner = os.urandom(16).hex()
        with theirs:
            child = subprocess.Popen(
                [*self._config.command, "--guard", f"{theirs.fileno()},{owner}", "--slot", str(slot)],
                pass_fds=[theirs.fileno()],
            )
        self._children[child.pid] = child
        self._slots[child.pid] = slot
        self._wards[child.pid] = Ward(self._config, owner, mine, child.pid)
        self._config.say("worker started", pid=child.pid)


def watch(config: Config, owner: str, link: socket.socket, pid: int) -> int:
    """Guard a worker that is not our child (it was started by arq's own command) until it ends."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ward = Ward(config, owner, link, pid)
    while not ward.dead:
        ready, _, _ = select.select([link], [], [], config.look_every_s)
        if ready:
            ward.listen()
        if not ward.dead:
            ward.look_after()
    grave = ward.bury(crashed=True)
    while not grave.tend():
        time.sleep(Grave.BETWEEN_S)
    return 0


def main() -> int:
    """`python -m worker.guardian <fd>` guards workers it starts; with `<owner> <link fd> <pid>` one that runs.

    The first argument is a file descriptor from which the configuration is read as JSON.
    """
    with os.fdopen(int(sys.argv[1])) as pipe:
        config = Config(**json.load(pipe))
    if len(sys.argv) > 2:
        owner, link, pid = sys.argv[2:5]
        return watch(config, owner, socket.socket(fileno=int(link)), int(pid))
    return Guardian(config).run()


if __name__ == "__main__":
    sys.exit(main())
