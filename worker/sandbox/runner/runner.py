"""The runner: `python -m worker runner`, next to a worker on a machine without user namespaces.

It runs commands for that worker under Landlock, a system call filter and limits, each below a
supervisor of its own. It forks without exec, so whatever it holds, every supervisor holds: it has
one thread, no secrets and few libraries. As the first process of a container it also reaps the
orphans. When it ends, its commands end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import selectors
import signal
import time
from pathlib import Path
from typing import Final

import msgspec

from shared.confinement import landlock
from shared.confinement.processes import DUMPABLE, SUBREAPER, children, descendants, prctl, wake_on_signals
from shared.log import logger
from shared.settings.sections.processes import RunnerSettings
from worker.guards.openat import remove_tree
from worker.sandbox.cgroup import CommandGroups
from worker.sandbox.command import Limiter, SandboxCommand
from worker.sandbox.runner import frames
from worker.sandbox.runner.acceptor import Acceptor, WorkerConnection
from worker.sandbox.runner.place import CommandPlace
from worker.sandbox.runner.supervisor import FOLDER_MODE, CommandSupervisor

STOP_S: Final = 3.0  # time that a supervisor has after SIGTERM before it is killed itself
QUEUE_S: Final = 20.0  # time that a command waits for others to end
HEARTBEAT_S: Final = 5.0  # probes of containers call a runner dead after a minute without one
TOKENS_KEPT: Final = 10_000
_TICK_S: Final = 0.25
_BRIEFLY_S: Final = 0.01
_UID_PROCESSES: Final = 1024

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")

log = logger("runner")


class _RunningCommand(msgspec.Struct):
    """A running supervisor, with the fence and the lease token of its command."""

    fence: str
    token: int
    kill_at: float | None = None


class Runner:
    """Accepts requests and tracks what runs. The workspaces are below `root`."""

    def __init__(self, settings: RunnerSettings, root: Path) -> None:
        self._root = root.absolute()
        self._at_once = settings.commands
        self._scratch = _create_scratch(settings.scratch, settings.socket)
        self._groups = CommandGroups.find()
        self._limited_by: Limiter = "cgroup" if self._groups else "census"
        self._acceptor = Acceptor(settings.socket, worker_uid=settings.worker_uid)
        self._heartbeat = settings.socket.with_suffix(".alive")
        self._beat_at = 0.0
        # A killed runner may have left one that looks fresh, or that belongs to another user.
        with contextlib.suppress(OSError):
            self._heartbeat.unlink()
        self._running: dict[int, _RunningCommand] = {}
        self._waiting: list[tuple[WorkerConnection, SandboxCommand, float]] = []
        self._tokens: dict[str, int] = {}
        self._stopping = False
        # Dying processes of killed supervisors. Nothing starts while there are any.
        self._orphans: set[int] = set()
        self._wake = -1

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then end every command."""
        prctl(DUMPABLE, 0)  # commands run as this user, and must not trace it or read its memory
        prctl(SUBREAPER, 1)
        self._wake = wake_on_signals()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._acceptor.selector.register(self._wake, selectors.EVENT_READ)
        log.info("runner started", landlock=landlock.abi(), commands=self._at_once, limited_by=self._limited_by)
        try:
            while not self._stopping:
                self._run_once()
        finally:
            self._acceptor.close()
            self._end_commands()
            with contextlib.suppress(OSError):
                self._heartbeat.unlink()
            with contextlib.suppress(OSError):
                remove_tree(self._scratch)
        log.info("runner stopped")

    def _run_once(self) -> None:
        self._beat()
        for connection, request in self._acceptor.wait_for_requests(_TICK_S):
            match request:
                case frames.PingRequest():
                    pong = frames.PongReply(landlock.abi(), len(self._running), self._limited_by)
                    self._acceptor.send_reply(connection, pong)
                case frames.RunRequest(command):
                    self._waiting.append((connection, command, time.monotonic() + QUEUE_S))
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        self._reap()
        self._kill_overdue()
        self._start_waiting()

    def _beat(self) -> None:
        """Touch the heartbeat file, whose age is the time since the last pass of this loop. A probe
        reads it with a shell; one that starts Python to ask over the socket needs 0.1 to 0.8 s of CPU."""
        if (now := time.monotonic()) >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            with contextlib.suppress(OSError):  # a probe will notice; commands go on
                self._heartbeat.touch()

    def _start_waiting(self) -> None:
        """Start waiting commands while slots are free, after those of an older token have ended."""
        waiting = self._waiting
        self._waiting = []
        for connection, command, until in waiting:
            if connection.closed:  # the worker has gone, and its command with it
                continue
            fence = command.fence or command.session
            newest = max(self._tokens.pop(fence, 0), command.token)
            self._tokens[fence] = newest
            if len(self._tokens) > TOKENS_KEPT:
                del self._tokens[next(iter(self._tokens))]
            same = ((pid, one) for pid, one in self._running.items() if one.fence == fence)
            older = [pid for pid, one in same if one.token < command.token]
            for pid in older:
                self._terminate(pid)
            if command.token < newest:
                self._refuse(connection, "a newer turn of this session has begun")
            elif time.monotonic() > until:
                self._refuse(connection, f"{self._at_once} commands are running; try again later")
            elif older or self._orphans or len(self._running) >= self._at_once:
                # The older command must be dead first: the two would write into one workspace.
                self._waiting.append((connection, command, until))
            else:
                self._start_supervisor(connection, command)

    def _start_supervisor(self, connection: WorkerConnection, command: SandboxCommand) -> None:
        try:
            place = self._open_workspace(command)
        except OSError as exc:
            self._refuse(connection, f"the workspace cannot be opened: {exc.strerror or exc}")
            return
        except ValueError as exc:
            self._refuse(connection, str(exc))
            return
        me = os.getpid()
        # Blocked across the fork: a signal between fork and the supervisor's own handlers would run
        # our handler in the child, and be lost. The supervisor unblocks them when it is ready.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    signal.set_wakeup_fd(-1)
                    os.close(self._wake)
                    peer = self._acceptor.close_all_but(connection)
                    CommandSupervisor(command, peer, place, parent=me).run()
                finally:  # whatever happened, the child must never return into the runner's loop
                    os._exit(1)
        except OSError as exc:
            self._refuse(connection, f"no process can be started: {exc.strerror}")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
            os.close(place.workspace)
        self._running[pid] = _RunningCommand(command.fence or command.session, command.token)
        self._acceptor.release(connection)

    def _open_workspace(self, command: SandboxCommand) -> CommandPlace:
        """Open the session's workspace on this side. Raises OSError and ValueError."""
        name = command.session
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not the name of a workspace")
        if command.network:
            raise ValueError("a runner has no network to give; run without, or where bubblewrap works")
        path = self._root / name
        return CommandPlace(
            workspace=os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW),
            path=str(path),
            folder=self._scratch / f"command-{secrets.token_hex(8)}",
            uid_processes=max(_UID_PROCESSES, 2 * self._at_once * (command.limits.processes + 2)),
            groups=self._groups,
        )

    def _terminate(self, pid: int) -> None:
        """Send a supervisor SIGTERM, once."""
        running = self._running[pid]
        if running.kill_at is None:
            running.kill_at = time.monotonic() + STOP_S
            os.kill(pid, signal.SIGTERM)

    def _kill_overdue(self) -> None:
        for pid, running in self._running.items():
            if running.kill_at is not None and time.monotonic() > running.kill_at:
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Reap ended supervisors, and kill what a killed one left to us as the subreaper."""
        while True:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid:
                    if self._running.pop(pid, None) is not None and status:
                        log.warning("supervisor failed", status=os.waitstatus_to_exitcode(status))
                    continue
            break
        self._orphans = set(children(os.getpid())) - self._running.keys()
        for pid in self._orphans:
            for one in [pid, *descendants(pid)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)

    def _end_commands(self) -> None:
        deadline = time.monotonic() + 2 * STOP_S
        for pid in self._running:
            self._terminate(pid)
        while children(os.getpid()) and time.monotonic() < deadline:
            self._kill_overdue()
            self._reap()
            time.sleep(_BRIEFLY_S)

    def _refuse(self, connection: WorkerConnection, reason: str) -> None:
        log.warning("command refused", reason=reason)
        self._acceptor.refuse(connection, reason)

    def _stop(self, *_: object) -> None:
        self._stopping = True


def _create_scratch(top: Path, socket: Path) -> Path:
    """Create or empty the folder below `top` for the runner that listens on `socket`, and return
    it. A killed runner may have left files there. Raises OSError, also if another user owns it."""
    name = hashlib.blake2b(os.fsencode(socket.absolute()), digest_size=8).hexdigest()
    folder = top / f"shoal-runner-{os.getuid()}-{name}"
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    info = folder.lstat()
    # `top` may be /tmp: another user could have put a folder or a link under this name first.
    if folder.is_symlink() or info.st_uid != os.getuid():
        raise PermissionError(f"{str(folder)!r} is somebody else's; remove it, or set runner.scratch")
    folder.chmod(FOLDER_MODE)
    for left in folder.iterdir():
        remove_tree(left)
    return folder
