"""The runner: `python -m worker runner`, beside a worker whose machine lets nobody make namespaces.

It runs commands for that worker under Landlock, a system call filter and limits, each below a
supervisor. One thread, no secret, few libraries: it forks, and what it is made of is what every
supervisor has. As the first process of a container it buries the orphans as well. When it ends, its
commands do.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import socket
import time
from pathlib import Path
from typing import Final

from shared.log import logger
from shared.settings import RunnerSettings
from worker.sandbox import landlock, scratch
from worker.sandbox.command import Command
from worker.sandbox.prctl import DUMPABLE, SUBREAPER, prctl
from worker.sandbox.runner import frames
from worker.sandbox.runner.acceptor import Doorway, Visitor
from worker.sandbox.runner.descendants import children, descendants
from worker.sandbox.runner.supervisor import Supervisor

PATIENCE_S: Final = 3.0
"""How long a supervisor that was told to stop may take before it is killed itself."""

QUEUE_S: Final = 20.0
"""How long a command waits for others to end."""

TOKENS_KEPT: Final = 10_000
_TICK_S: Final = 0.25
_BRIEFLY_S: Final = 0.01
_UID_PROCESSES: Final = 1024

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")

log = logger("runner")


class _Held:
    """A supervisor that runs, for which fence and lease token."""

    def __init__(self, fence: str, token: int) -> None:
        self.fence = fence
        self.token = token
        self.kill_at: float | None = None


class Runner:
    """Listens, and holds what runs. `root` is where the workspaces are."""

    def __init__(self, settings: RunnerSettings, root: Path) -> None:
        self._root = root.absolute()
        self._at_once = settings.commands
        self._scratch = scratch.made(settings.scratch, settings.socket)
        self._doorway = Doorway(settings.socket, worker_uid=settings.worker_uid)
        self._running: dict[int, _Held] = {}
        self._waiting: list[tuple[Visitor, Command, float]] = []
        self._tokens: dict[str, int] = {}
        self._stopping = False
        self._orphans: set[int] = set()
        """What a killed supervisor left, and is dying. Nothing is started beside it."""

        self._wake, self._wakeup = socket.socketpair()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then end every command."""
        prctl(DUMPABLE, 0)
        prctl(SUBREAPER, 1)
        for end in (self._wake, self._wakeup):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._doorway.selector.register(self._wake, selectors.EVENT_READ)
        log.info("runner started", landlock=landlock.abi(), commands=self._at_once)
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._doorway.close()
            self._end_all()
            with contextlib.suppress(OSError):
                scratch.remove(self._scratch)
        log.info("runner stopped")

    def _turn(self) -> None:
        for visitor, request in self._doorway.wait(_TICK_S):
            match request:
                case frames.Ping():
                    self._doorway.answer(visitor, frames.Pong(landlock.abi(), len(self._running)))
                case frames.Run(command):
                    self._waiting.append((visitor, command, time.monotonic() + QUEUE_S))
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        self._bury()
        self._hasten()
        self._admit()

    def _admit(self) -> None:
        """Start what waits, in order, as far as there is room; an older token's commands end
        before."""
        waiting, self._waiting = self._waiting, []
        for visitor, command, until in waiting:
            if visitor.gone:
                continue
            fence = command.fence or command.session
            newest = max(self._tokens.pop(fence, 0), command.token)
            self._tokens[fence] = newest
            if len(self._tokens) > TOKENS_KEPT:
                del self._tokens[next(iter(self._tokens))]
            older = [pid for pid, held in self._running.items() if held.fence == fence]
            older = [pid for pid in older if self._running[pid].token < command.token]
            for pid in older:
                self._tell(pid)
            if command.token < newest:
                self._refuse(visitor, "a newer turn of this session has begun")
            elif time.monotonic() > until:
                self._refuse(visitor, f"{self._at_once} commands are running; try again later")
            elif older or self._orphans or len(self._running) >= self._at_once:
                self._waiting.append((visitor, command, until))
            else:
                self._start(visitor, command)

    def _start(self, visitor: Visitor, command: Command) -> None:
        try:
            path, workspace = self._workspace(command)
        except OSError as exc:
            self._refuse(visitor, f"the workspace cannot be opened: {exc.strerror or exc}")
            return
        except ValueError as exc:
            self._refuse(visitor, str(exc))
            return
        me = os.getpid()
        at_most = max(_UID_PROCESSES, 2 * self._at_once * (command.limits.processes + 2))
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    signal.set_wakeup_fd(-1)
                    self._wake.close()
                    self._wakeup.close()
                    link = self._doorway.leave_all_but(visitor)
                    Supervisor(
                        command,
                        link,
                        workspace=workspace,
                        path=path,
                        folder=self._scratch,
                        uid_processes=at_most,
                        parent=me,
                    ).run()
                finally:  # whatever happened: there is one runner
                    os._exit(1)
        except OSError as exc:
            self._refuse(visitor, f"no process can be started: {exc.strerror}")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
            os.close(workspace)
        self._running[pid] = _Held(command.fence or command.session, command.token)
        self._doorway.hand_over(visitor)

    def _workspace(self, command: Command) -> tuple[str, int]:
        """Where the session's workspace is on this side, and a handle of it. Raises OSError and
        ValueError."""
        name = command.session
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no name of a workspace")
        if command.network:
            raise ValueError("a runner has no network to give; run without, or where bubblewrap works")
        path = self._root / name
        return str(path), os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

    def _tell(self, pid: int) -> None:
        """Tell a supervisor to stop, once."""
        held = self._running[pid]
        if held.kill_at is None:
            held.kill_at = time.monotonic() + PATIENCE_S
            os.kill(pid, signal.SIGTERM)

    def _hasten(self) -> None:
        for pid, held in self._running.items():
            if held.kill_at is not None and time.monotonic() > held.kill_at:
                os.kill(pid, signal.SIGKILL)

    def _bury(self) -> None:
        """Take leave of supervisors that ended. What a killed one left is ours by then, and
        killed."""
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

    def _end_all(self) -> None:
        deadline = time.monotonic() + 2 * PATIENCE_S
        for pid in self._running:
            self._tell(pid)
        while children(os.getpid()) and time.monotonic() < deadline:
            self._hasten()
            self._bury()
            time.sleep(_BRIEFLY_S)

    def _refuse(self, visitor: Visitor, reason: str) -> None:
        log.warning("command refused", reason=reason)
        self._doorway.answer(visitor, frames.Refused(reason))

    def _stop(self, *_: object) -> None:
        self._stopping = True
