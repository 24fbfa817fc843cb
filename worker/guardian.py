"""The guardian: the parent of the workers. Standard library only, so that it is small and has nothing to hang on.

It starts the workers, hands signals on, starts a worker again that died, and looks after their leases: while a worker
cannot renew (something holds its interpreter for seconds) the guardian does; when a worker dies it gives the leases
back at once, so that the sessions go on elsewhere within a moment instead of after the lease.

A worker and its guardian hold the two ends of a socket pair. The worker writes `tick`; the guardian writes
`renewed <monotonic seconds>`. The end of the stream means that the other one is dead.
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
from typing import Final, NamedTuple

from shared.store import keys
from shared.store.scripts import Script, load
from worker.resp import Answer, RespConnection, RespError

QUEUES: Final = ("turns", "jobs")
LATE_PERIODS: Final = 2
RENEWALS_PER_LEASE: Final = 5
RESTART_FIRST_S: Final = 0.1
RESTART_CAP_S: Final = 10.0
HEALTHY_S: Final = 60.0


class Config(NamedTuple):
    """What a guardian needs to know, handed over as JSON on a pipe (it contains the Redis password)."""

    redis_url: str
    lease_s: float
    drain_s: float
    command: tuple[str, ...]
    processes: int
    stuck_s: float = 60.0

    def hand_over(self) -> int:
        """A file descriptor from which a guardian can read this: it holds a password, so it is no argument."""
        read, write = os.pipe()
        with os.fdopen(write, "w") as pipe:
            json.dump(self._asdict(), pipe)
        return read


def queue_name(word: str) -> str:
    """A queue as an argument of a command. Raises ValueError for one that is none."""
    if word not in QUEUES:
        raise ValueError(f"no queue {word!r}; there are {', '.join(QUEUES)}")
    return word


def say(event: str, **values: object) -> None:
    """One JSON line on stderr, like the workers' logs."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = {"timestamp": now, "level": "info", "process": "guardian", "event": event, **values}
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()


class Leases:
    """What a guardian does to the leases of one worker, known by the worker's owner nonce."""

    def __init__(self, redis_url: str, lease_s: float, owner: str) -> None:
        self._url = redis_url
        self._lease_ms = str(int(lease_s * 1000))
        self._owner = owner
        self._connection: RespConnection | None = None

    def renew(self) -> int:
        """Renew all of them; how many there were. Raises OSError."""
        count = 0
        for queue in QUEUES:
            pairs = self._owned(queue)
            if pairs:
                flat = [word for pair in pairs for word in pair]
                names = [keys.queue(queue), keys.leases(queue)]
                self._run(load("renew"), names, [self._owner, self._lease_ms, *flat])
                count += len(pairs)
        return count

    def give_back(self, *, crashed: bool) -> int:
        """Release all of them, after a crash counting one for each turn; how many there were. Raises OSError."""
        count = 0
        for queue in QUEUES:
            for member, token in self._owned(queue):
                is_turn = member.startswith(keys.TURN_PREFIX)
                session = keys.session(member.removeprefix(keys.TURN_PREFIX)) if is_turn else ""
                names = [keys.queue(queue), keys.leases(queue), keys.wake(queue), session]
                args = [member, f"{self._owner}:{token}", "0", "crashes" if is_turn and crashed else ""]
                count += self._run(load("release"), names, args) == 1
        return count

    def close(self) -> None:
        """Forget the connection; the next call makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _owned(self, queue: str) -> list[tuple[str, str]]:
        """(member, token) of every lease with our owner's nonce."""
        found: dict[str, str] = {}
        cursor: Answer = b"0"
        while True:
            answer = self._command("HSCAN", keys.leases(queue), _text(cursor), "COUNT", "500")
            assert isinstance(answer, list)
            cursor, flat = answer
            assert isinstance(flat, list)
            for i in range(0, len(flat), 2):
                owner, _, token = _text(flat[i + 1]).partition(":")
                if owner == self._owner:
                    found[_text(flat[i])] = token
            if cursor == b"0":
                return list(found.items())

    def _run(self, script: Script, names: list[str], args: list[str]) -> Answer:
        return self._command("EVAL", script.source, str(len(names)), *names, *args)

    def _command(self, *words: str) -> Answer:
        try:
            if self._connection is None:
                self._connection = RespConnection(self._url)
            return self._connection.command(*words)
        except (OSError, RespError) as exc:
            if isinstance(exc, OSError) or str(exc).startswith(("LOADING", "READONLY", "MISCONF")):
                self.close()
                raise OSError(str(exc)) from exc
            raise


class Ward:
    """One worker under guard: its end of the socket pair, when it was last heard, and its leases."""

    def __init__(self, config: Config, owner: str, link: socket.socket, pid: int) -> None:
        self.pid = pid
        self.link = link
        self.leases = Leases(config.redis_url, config.lease_s, owner)
        self.started = self.heard = time.monotonic()
        self.dead = False
        self._config = config
        self._stood_in = 0.0
        self._late = LATE_PERIODS * config.lease_s / RENEWALS_PER_LEASE
        link.setblocking(False)

    def listen(self) -> None:
        """Read the worker's ticks; the end of the stream marks it dead."""
        try:
            while self.link.recv(4096):
                self.heard = time.monotonic()
            self.dead = True
        except BlockingIOError:
            return
        except OSError:
            self.dead = True

    def look_after(self) -> None:
        """Stand in for a late worker; end one that made no progress for `stuck_s`."""
        now = time.monotonic()
        silent_s = now - self.heard
        if silent_s > self._config.stuck_s:
            say("worker stuck", pid=self.pid, silent_s=round(silent_s, 1), doing="killing it")
            os.kill(self.pid, signal.SIGKILL)
            self.heard = now
        elif silent_s > self._late and now - self._stood_in > self._config.lease_s / RENEWALS_PER_LEASE:
            self._stood_in = now
            try:
                count = self.leases.renew()
                self.link.send(b"renewed %f\n" % now)
                say("stood in", pid=self.pid, silent_s=round(silent_s, 1), leases=count)
            except (OSError, RespError) as exc:
                say("cannot stand in", pid=self.pid, error=str(exc))

    def bury(self, *, crashed: bool) -> Grave:
        """What is left to do when the worker is dead."""
        self.dead = True
        self.link.close()
        return Grave(self.pid, self.leases, crashed=crashed, give_up_at=time.monotonic() + self._config.lease_s)


class Grave:
    """Gives the leases of a dead worker back: at once, and a moment later what was acquired with its last breath."""

    ROUNDS: Final = 2
    BETWEEN_S: Final = 0.1

    def __init__(self, pid: int, leases: Leases, *, crashed: bool, give_up_at: float) -> None:
        self._pid = pid
        self._leases = leases
        self._crashed = crashed
        self._give_up_at = give_up_at
        self._began = time.monotonic()
        self._next_at = 0.0
        self._rounds = 0
        self._count = 0

    def tend(self) -> bool:
        """Do what is due now; whether all is done. While Redis is away it tries again until the leases lapse anyway."""
        now = time.monotonic()
        if now < self._next_at:
            return False
        self._next_at = now + self.BETWEEN_S
        try:
            self._count += self._leases.give_back(crashed=self._crashed)
            self._rounds += 1
        except (OSError, RespError) as exc:
            say("cannot give leases back", pid=self._pid, error=str(exc))
        if self._rounds < self.ROUNDS and now < self._give_up_at:
            return False
        self._leases.close()
        say("leases given back", pid=self._pid, leases=self._count, seconds=round(now - self._began, 3))
        return True


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
            signal.signal(number, lambda *_: self.stop())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for slot in range(self._config.processes):
            self._start(slot)
        while self._children or self._restart_at or self._graves:
            self._turn()
        return self._code

    def stop(self) -> None:
        """Hand the signal on once; a second one kills."""
        again, self._stopping = self._stopping, True
        self._restart_at.clear()
        self._kill_at = time.monotonic() + self._config.drain_s + 5
        for child in self._children.values():
            child.send_signal(signal.SIGKILL if again else signal.SIGTERM)

    def _turn(self) -> None:
        wanted = [self._wakeup, *(ward.link for ward in self._wards.values() if not ward.dead)]
        ready, _, _ = select.select(wanted, [], [], self._pause_s())
        if self._wakeup in ready:
            self._wakeup.recv(4096)
        for ward in self._wards.values():
            if ward.link in ready:
                ward.listen()
        self._reap()
        self._graves = [grave for grave in self._graves if not grave.tend()]
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
        pauses = [self._config.lease_s / RENEWALS_PER_LEASE / 4]
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
            say("worker ended", pid=pid, code=code)
            self._graves.append(ward.bury(crashed=code != 0))
            if self._stopping:
                self._code = max(self._code, abs(code))
                continue
            lived_s = time.monotonic() - ward.started
            wait_s = RESTART_FIRST_S if lived_s > HEALTHY_S else self._waits[slot]
            self._waits[slot] = min(wait_s * 2, RESTART_CAP_S)
            self._restart_at[slot] = time.monotonic() + wait_s

    def _start(self, slot: int) -> None:
        mine, theirs = socket.socketpair()
        owner = os.urandom(16).hex()
        with theirs:
            child = subprocess.Popen(
                [*self._config.command, "--guard", f"{theirs.fileno()},{owner}"], pass_fds=[theirs.fileno()]
            )
        self._children[child.pid] = child
        self._slots[child.pid] = slot
        self._wards[child.pid] = Ward(self._config, owner, mine, child.pid)
        say("worker started", pid=child.pid)


def watch(config: Config, owner: str, link: socket.socket, pid: int) -> int:
    """Guard a worker that is not our child (it was started by arq's own command) until it ends."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ward = Ward(config, owner, link, pid)
    while not ward.dead:
        ready, _, _ = select.select([link], [], [], config.lease_s / RENEWALS_PER_LEASE / 4)
        if ready:
            ward.listen()
        if not ward.dead:
            ward.look_after()
    grave = ward.bury(crashed=True)
    while not grave.tend():
        time.sleep(Grave.BETWEEN_S)
    return 0


def _text(answer: Answer) -> str:
    assert isinstance(answer, bytes)
    return answer.decode()


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
