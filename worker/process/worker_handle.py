"""A worker under guard and what is done for it. Standard library only, like all of the guardian.

A worker and its guardian hold the two ends of a socket pair. A worker that is asked to begins with
its `Config`; then it writes `tick`. The guardian writes `renewed <monotonic seconds>`. The end of
the stream means that the other one is dead.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.lease.timing import renewal_period_s
from shared.process.resp import Answer, RespConnection, RespError
from shared.store import keys
from shared.store.client.scripts import AWAY_REPLIES, Script, load

if TYPE_CHECKING:
    from shared.settings import Settings

QUEUES: Final = ("turns", "jobs")
LATE_PERIODS: Final = 2


class GuardianConfig(NamedTuple):
    """What a guardian needs to know of the settings: a worker tells it, which has read and checked
    them."""

    redis_url: str
    lease_s: float
    drain_s: float
    processes: int = 1
    stuck_s: float = 60.0
    readable: bool = False

    @property
    def check_every_s(self) -> float:
        """How often a guardian looks at its workers: four times in a renewal period."""
        return renewal_period_s(self.lease_s) / 4

    def log_event(self, event: str, **values: object) -> None:
        """One line on stderr that looks like the workers' logs: JSON, or text for a person."""
        if self.readable:
            fields = " ".join(f"{name}={value}" for name, value in values.items())
            line = f"{time.strftime('%H:%M:%S')} [info     ] {event:<24} [guardian] {fields}"
        else:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            line = json.dumps({"timestamp": now, "level": "info", "process": "guardian", "event": event, **values})
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def send(self, link: socket.socket) -> None:
        """The worker's side. It goes over the link and is no argument, for there is a password in
        it."""
        link.sendall(json.dumps(self._asdict()).encode() + b"\n")

    @classmethod
    def receive(cls, link: socket.socket) -> GuardianConfig | None:
        """The guardian's side: wait for it; None when the worker ended before."""
        line = b""
        while not line.endswith(b"\n"):
            piece = link.recv(1)  # not a byte of what comes behind
            if not piece:
                return None
            line += piece
        return cls(**json.loads(line))


def queue_name(word: str) -> str:
    """A queue as an argument of a command. Raises ValueError for one that is none."""
    if word not in QUEUES:
        raise ValueError(f"no queue {word!r}; there are {', '.join(QUEUES)}")
    return word


def guardian_config(settings: Settings, redis_url: str) -> GuardianConfig:
    """What these settings say."""
    worker = settings.worker
    readable = not settings.log.as_json(terminal=sys.stderr.isatty())
    return GuardianConfig(redis_url, worker.lease_s, worker.drain_s, worker.processes, readable=readable)


class WorkerLeases:
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
                self._run_script(load("turns/renew"), names, [self._owner, self._lease_ms, *flat])
                count += len(pairs)
        return count

    def release_all(self, *, crashed: bool) -> int:
        """Release all of them, after a crash counting one for each; how many there were. Raises
        OSError."""
        count = 0
        for queue in QUEUES:
            for member, token in self._owned(queue):
                names = [keys.queue(queue), keys.leases(queue), keys.wake(queue), keys.attempts(member)]
                args = [member, f"{self._owner}:{token}", "0", "crashes" if crashed else ""]
                count += self._run_script(load("turns/release"), names, args) == 1
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
            answer = self._command("HSCAN", keys.leases(queue), _decode_reply(cursor), "COUNT", "500")
            assert isinstance(answer, list)
            cursor, flat = answer
            assert isinstance(flat, list)
            for i in range(0, len(flat), 2):
                owner, _, token = _decode_reply(flat[i + 1]).partition(":")
                if owner == self._owner:
                    found[_decode_reply(flat[i])] = token
            if cursor == b"0":
                return list(found.items())

    def _run_script(self, script: Script, names: list[str], args: list[str]) -> Answer:
        return self._command("EVAL", script.source, str(len(names)), *names, *args)

    def _command(self, *words: str) -> Answer:
        try:
            if self._connection is None:
                self._connection = RespConnection(self._url)
            return self._connection.command(*words)
        except (OSError, RespError) as exc:
            if isinstance(exc, OSError) or str(exc).startswith(AWAY_REPLIES):
                self.close()
                raise OSError(str(exc)) from exc
            raise


class WorkerHandle:
    """One worker under guard: its end of the socket pair, when it was last heard, and its
    leases."""

    def __init__(self, config: GuardianConfig, owner: str, link: socket.socket, pid: int) -> None:
        self.pid = pid
        self.link = link
        self.leases = WorkerLeases(config.redis_url, config.lease_s, owner)
        self.started_at = self.last_tick_at = time.monotonic()
        self.dead = False
        self.ticked = False
        """Whether it ever ran: its settings are fine, its ports are free, its event loop turns."""
        self._config = config
        self._proxy_renewed_at = 0.0
        self._late_after_s = LATE_PERIODS * renewal_period_s(config.lease_s)
        link.setblocking(False)

    def read_ticks(self) -> None:
        """Read the worker's ticks; the end of the stream marks it dead."""
        try:
            while self.link.recv(4096):
                self.last_tick_at = time.monotonic()
                self.ticked = True
            self.dead = True
        except BlockingIOError:
            return
        except OSError:
            self.dead = True

    def supervise(self) -> None:
        """Stand in for a late worker; end one that made no progress for `stuck_s`."""
        now = time.monotonic()
        silent_s = now - self.last_tick_at
        if silent_s > self._config.stuck_s:
            self._config.log_event("worker stuck", pid=self.pid, silent_s=round(silent_s, 1), doing="killing it")
            os.kill(self.pid, signal.SIGKILL)
            self.last_tick_at = now
        elif silent_s > self._late_after_s and now - self._proxy_renewed_at > renewal_period_s(self._config.lease_s):
            self._proxy_renewed_at = now
            try:
                count = self.leases.renew()
                self.link.send(b"renewed %f\n" % now)
                self._config.log_event("stood in", pid=self.pid, silent_s=round(silent_s, 1), leases=count)
            except (OSError, RespError) as exc:
                self._config.log_event("cannot stand in", pid=self.pid, error=str(exc))

    def return_leases(self, *, crashed: bool) -> LeaseReturn:
        """What is left to do when the worker is dead."""
        self.dead = True
        self.link.close()
        return LeaseReturn(self._config, self.pid, self.leases, crashed=crashed)


class LeaseReturn:
    """Gives the leases of a dead worker back: at once, and a moment later what was acquired with
    its last breath."""

    ROUNDS: Final = 2
    INTERVAL_S: Final = 0.1
    RETRY_CAP_S: Final = 1.0
    SHUTDOWN_LIMIT_S: Final = 2.0

    def __init__(self, config: GuardianConfig, pid: int, leases: WorkerLeases, *, crashed: bool) -> None:
        self._config = config
        self._pid = pid
        self._leases = leases
        self._crashed = crashed
        self._began = time.monotonic()
        self._next_at = 0.0
        self._rounds = 0
        self._count = 0
        self._wait_s = self.INTERVAL_S

    def run_once(self, *, shutting_down: bool = False) -> bool:
        """Do what is due now; whether all is done.

        While Redis is away it tries again until the leases lapse anyway; in a `hurry` (everything
        ends) for 2 s.
        """
        now = time.monotonic()
        if now < self._next_at:
            return False
        try:
            self._count += self._leases.release_all(crashed=self._crashed)
            self._rounds += 1
        except (OSError, RespError) as exc:
            if self._wait_s == self.INTERVAL_S:
                self._config.log_event("cannot give leases back", pid=self._pid, error=str(exc), doing="trying again")
            self._wait_s = min(self._wait_s * 2, self.RETRY_CAP_S)
        self._next_at = now + self._wait_s
        limit_s = min(self._config.lease_s, self.SHUTDOWN_LIMIT_S) if shutting_down else self._config.lease_s
        if self._rounds < self.ROUNDS and now - self._began < limit_s:
            return False
        self._leases.close()
        self._config.log_event(
            "leases given back", pid=self._pid, leases=self._count, seconds=round(now - self._began, 3)
        )
        return True


def _decode_reply(answer: Answer) -> str:
    assert isinstance(answer, bytes)
    return answer.decode()
