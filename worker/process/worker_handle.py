"""A guarded worker and what the guardian does for it. Standard library only, like all of the
guardian. A worker and its guardian hold the two ends of a socket pair. The worker sends its
`GuardianConfig` if it was asked to, then `tick` lines. The guardian sends `renewed <monotonic
seconds>`. The end of the stream means that the other side is dead."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shared.lease.timing import renewal_period_s
from shared.process.resp import RespConnection, RespError
from shared.process.stderr import write_stderr
from shared.store import keys
from shared.store.client.scripts import AWAY_REPLIES, load

if TYPE_CHECKING:
    from shared.settings import Settings

QUEUES: Final = ("turns", "jobs")
LATE_PERIODS: Final = 2
RETURN_ROUNDS: Final = 2
RETURN_EVERY_S: Final = 0.1
RETRY_CAP_S: Final = 1.0
SHUTDOWN_LIMIT_S: Final = 2.0
WAIT_MS: Final = "500"  # for the replicas to have a renewal


class GuardianConfig(NamedTuple):
    """The settings that a guardian needs. A worker, which has read and checked them, sends them."""

    redis_url: str
    lease_s: float
    drain_s: float
    processes: int = 1
    stuck_s: float = 60.0
    readable: bool = False
    copies: int = 1

    @property
    def check_every_s(self) -> float:
        """The seconds between two checks of the workers: a quarter of a renewal period."""
        return renewal_period_s(self.lease_s) / 4

    def log_event(self, event: str, **values: object) -> None:
        """Write a line to stderr in the format of the workers' logs: JSON, or text for a person."""
        if self.readable:
            fields = " ".join(f"{name}={value}" for name, value in values.items())
            line = f"{time.strftime('%H:%M:%S')} [info     ] {event:<24} [guardian] {fields}"
        else:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            head = {"timestamp": now, "level": "info", "process": "guardian", "event": event}
            line = json.dumps({**head, **values})
        write_stderr(line)

    def send(self, link: socket.socket) -> None:
        """Send this over the link: its password must not be an argument of a process."""
        link.sendall(json.dumps(self._asdict()).encode() + b"\n")

    @classmethod
    def receive(cls, link: socket.socket) -> GuardianConfig | None:
        """Wait for a worker's configuration; return None when the worker ended before."""
        line = b""
        while not line.endswith(b"\n"):
            piece = link.recv(1)  # one byte at a time: what follows are ticks
            if not piece:
                return None
            line += piece
        return cls(**json.loads(line))


def queue_name(word: str) -> str:
    """Return `word` if it names a queue. Raises ValueError."""
    if word not in QUEUES:
        raise ValueError(f"no queue {word!r}; there are {', '.join(QUEUES)}")
    return word


def guardian_config(settings: Settings, redis_url: str) -> GuardianConfig:
    """Return the part of the settings that a guardian needs."""
    worker = settings.worker
    readable = not settings.log.as_json(terminal=sys.stderr.isatty())
    return GuardianConfig(
        redis_url, worker.lease_s, worker.drain_s, worker.processes, readable=readable, copies=settings.redis.copies
    )


class WorkerLeases:
    """The leases of one worker, found by its owner nonce. Calls raise OSError."""

    def __init__(self, redis_url: str, lease_s: float, owner: str, copies: int = 1) -> None:
        self._replicas = copies - 1
        self._url = redis_url
        self._lease_ms = str(int(lease_s * 1000))
        self._owner = owner
        self._connection: RespConnection | None = None

    def renew(self) -> int:
        """Renew all of them. Return how many there were, when all servers that a write waits for
        have that: a former primary that lives on must not let the worker go on."""
        count = 0
        for queue in QUEUES:
            if pairs := self._owned(queue):
                flat = [word for pair in pairs for word in pair]
                held = {"owner": self._owner, "lease_ms": self._lease_ms, "held": json.dumps(flat)}
                self._run_script("turns/renew", queue, {"due": keys.queue(queue), **held})
                count += len(pairs)
        if self._replicas:
            self._command("INCR", keys.CONFIRMED)
            have = self._command("WAIT", str(self._replicas), WAIT_MS)
            if have < self._replicas:
                raise OSError(f"{have + 1} of {self._replicas + 1} servers have the renewal (redis.copies)")
        # By the next time, another server may have become the primary.
        self.close()
        return count

    def release_all(self, *, crashed: bool) -> int:
        """Release all of them and return how many there were. After a crash, count one for each."""
        count = 0
        for queue in QUEUES:
            for member, token in self._owned(queue):
                lease = {"member": member, "lease": f"{self._owner}:{token}", "record": keys.attempts(member)}
                note = {"delay_ms": "0", "note": "crashes" if crashed else ""}
                count += self._run_script("turns/release", queue, {**lease, **note}) == b"released"
        return count

    def close(self) -> None:
        """Close the connection. The next call opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _owned(self, queue: str) -> list[tuple[str, str]]:
        """Return (member, token) of every lease with the owner's nonce."""
        found: dict[str, str] = {}
        cursor = b"0"
        while True:
            cursor, flat = self._command("HSCAN", keys.leases(queue), cursor, "COUNT", "500")
            for member, lease in zip(flat[::2], flat[1::2], strict=True):
                owner, _, token = lease.decode(errors="replace").partition(":")
                if owner == self._owner:
                    found[member.decode(errors="replace")] = token
            if cursor == b"0":
                return list(found.items())

    def _run_script(self, name: str, queue: str, values: dict[str, str]) -> Any:
        script = load(name)
        words = script.words(values, keys.Whose(queue=queue))
        return self._command("EVAL", script.source, *map(str, words))

    def _command(self, *words: str | bytes) -> Any:
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
    """A guarded worker: our end of the link to it, its last tick, its leases."""

    def __init__(self, config: GuardianConfig, owner: str, link: socket.socket, pid: int) -> None:
        self.pid = pid
        self.link = link
        self.started_at = self.last_tick_at = time.monotonic()
        self.dead = False
        self.ticked = False  # true once it has run: its settings are valid, its ports were free
        self._leases = WorkerLeases(config.redis_url, config.lease_s, owner, config.copies)
        self._config = config
        self._proxy_renewed_at = 0.0
        self._crashed = False
        self._ended_at = self._return_at = 0.0
        self._return_wait_s = RETURN_EVERY_S
        self._rounds = self._returned = 0
        link.setblocking(False)

    def read_ticks(self) -> None:
        """Read the ticks that have arrived. The end of the stream marks the worker dead."""
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
        """Renew the leases of a late worker; kill one without progress for `stuck_s`."""
        config = self._config
        pid = self.pid
        now = time.monotonic()
        silent_s = now - self.last_tick_at
        period_s = renewal_period_s(config.lease_s)
        rounded_s = round(silent_s, 1)
        if silent_s > config.stuck_s:
            config.log_event("worker stuck", pid=pid, silent_s=rounded_s, doing="killing it")
            os.kill(pid, signal.SIGKILL)
            # The kill takes a moment: do not send it again in every round.
            self.last_tick_at = now
        elif silent_s > LATE_PERIODS * period_s and now - self._proxy_renewed_at > period_s:
            self._proxy_renewed_at = now
            try:
                leases = self._leases.renew()
                # The time before the renewal was sent: the lease runs from there.
                self.link.send(b"renewed %f\n" % now)
                event = "leases renewed for worker"
                config.log_event(event, pid=pid, silent_s=rounded_s, leases=leases)
            except (OSError, RespError) as exc:
                config.log_event("cannot renew for worker", pid=pid, error=str(exc))

    def end(self, *, crashed: bool) -> None:
        """Mark the worker dead; its leases are to be given back."""
        self.dead, self._crashed, self._ended_at = True, crashed, time.monotonic()
        self.link.close()

    def return_leases(self, shutting_down: bool = False) -> bool:
        """Give back the leases of the dead worker if that is due now. Return whether nothing is
        left to do. There are two rounds: a claim that the worker had sent just before it died may
        reach Redis after the first one. While Redis is unavailable it is tried until the leases
        lapse anyway, or for 2 s when the guardian is `shutting_down`."""
        config = self._config
        pid = self.pid
        now = time.monotonic()
        if now < self._return_at:
            return False
        try:
            self._returned += self._leases.release_all(crashed=self._crashed)
            self._rounds += 1
        except (OSError, RespError) as exc:
            if self._return_wait_s == RETURN_EVERY_S:
                event = "cannot give leases back"
                error = str(exc)
                config.log_event(event, pid=pid, error=error, doing="trying again")
            self._return_wait_s = min(self._return_wait_s * 2, RETRY_CAP_S)
        self._return_at = now + self._return_wait_s
        limit_s = min(config.lease_s, SHUTDOWN_LIMIT_S) if shutting_down else config.lease_s
        passed_s = now - self._ended_at
        if self._rounds < RETURN_ROUNDS and passed_s < limit_s:
            return False
        self._leases.close()
        seconds = round(passed_s, 3)
        config.log_event("leases given back", pid=pid, leases=self._returned, seconds=seconds)
        return True
