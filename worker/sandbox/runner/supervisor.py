"""The process between a runner and one command. It starts the command, forwards its output,
enforces its limits, and ends only when nothing of it is left, not even a daemon. It owns the
connection to the worker: when that closes, or the runner ends, the command is killed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import tempfile
import time
from itertools import islice
from typing import Final, NoReturn

from shared.confinement import processes
from worker.guards.openat import remove_tree
from worker.sandbox.cgroup import CommandGroup
from worker.sandbox.command import Ending, Finished, SandboxCommand
from worker.sandbox.layout import TMP_BYTES, hide_files, show_files
from worker.sandbox.runner import frames, workspace_quota
from worker.sandbox.runner.confined_process import exec_command
from worker.sandbox.runner.place import CommandPlace
from worker.sandbox.skill_links import FOLDER, link_skills, skill_names, unlink_skills, write_skills
from worker.sandbox.usage import INODE_BYTES, pause_s, usage_below

MEASURE_S: Final = 0.5  # interval at which the workspace is measured
SEND_S: Final = 10.0  # time that the worker has to read the last reply
FOLDER_MODE: Final = 0o700
_SHELL_SIGNALLED: Final = 128
SUPERSEDED: Final = "the runner killed it: a newer turn of its session has begun, or the runner stops"


class WatchEnded(Exception):
    """The command is over; `why` is the limit it hit (None: none), `refused` an error to report."""

    def __init__(self, why: Ending | None, refused: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.refused = refused


class CommandSupervisor:
    """Runs `command` at a place, for the worker at `peer`; the folder of the place is made and
    removed. When the process `parent` ends, everything ends."""

    def __init__(self, command: SandboxCommand, peer: socket.socket, place: CommandPlace, *, parent: int) -> None:
        self._command = command
        self._limits = command.limits
        self._peer = peer
        self._place = place
        self._parent = parent
        self._to_send = bytearray()
        self._kept = self._cut = 0
        self._pid = 0
        self._status: int | None = None
        self._worked_s = 0.0
        self._stopped = False
        self._wake = -1
        self._group: CommandGroup | None = None
        self._skill_names: set[str] = set()

    def run(self) -> NoReturn:
        code = 0
        try:
            self._run_until_reply()
        except BaseException as exc:  # nothing of the runner must go on in this process
            with contextlib.suppress(OSError):
                sys.stderr.write(f"a supervisor failed: {type(exc).__name__}: {exc}\n")
            code = 1
        with contextlib.suppress(BaseException):
            processes.kill_descendants()
        os._exit(code)

    def _run_until_reply(self) -> None:
        os.setsid()  # a group of its own: killing the command's groups must not hit the runner's
        processes.prctl(processes.SUBREAPER, 1)  # orphans of the command come to us, and cannot escape
        self._peer.setblocking(False)
        self._wake = processes.wake_on_signals()
        signal.signal(signal.SIGTERM, self._stop)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        processes.prctl(processes.DEATH_SIGNAL, signal.SIGTERM)
        # The parent may have died before the prctl; then the signal never comes.
        if os.getppid() != self._parent:
            return
        workspace = self._place.workspace
        shown = self._command.shown
        # A killed supervisor may have left folders closed.
        workspace_quota.reopen_workspace(workspace)
        try:
            last = self._run_command()
        except OSError as exc:
            processes.kill_descendants()
            last = frames.RequestRefused(f"the command cannot be started: {exc.strerror or exc}")
        finally:
            hide_files(workspace, shown)
            unlink_skills(workspace, self._skill_names)
            workspace_quota.reopen_workspace(workspace)
            if self._group:
                self._group.remove()
            with contextlib.suppress(OSError):
                remove_tree(self._place.folder)
        self._to_send += frames.encode(last)
        self._peer.settimeout(SEND_S)
        with contextlib.suppress(OSError):
            self._peer.sendall(self._to_send)

    def _run_command(self) -> frames.CommandDone | frames.RequestRefused:
        place = self._place
        for folder in (place.folder, place.tmp, place.shown):
            folder.mkdir(FOLDER_MODE)
        self._group = place.groups.create(self._limits) if place.groups else None
        show_files(place.workspace, self._command.shown, place.shown)
        self._skill_names = skill_names(self._command.skills)
        write_skills(self._command.skills, place.shown / FOLDER)
        link_skills(place.workspace, self._skill_names, str(place.shown / FOLDER))
        # Opened before the command can close the folder to us.
        tmp = os.open(place.tmp, os.O_RDONLY | os.O_DIRECTORY)
        began = time.monotonic()
        output, fault = self._start_command()
        if fault:
            processes.kill_descendants()
            return frames.RequestRefused(f"the command cannot be confined: {fault}")
        try:
            self._watch(output, tmp, began + self._limits.wall_s)
        except WatchEnded as ended:
            killed = processes.kill_descendants()
            if self._status is None:
                self._status = killed.get(self._pid, 0)
            if ended.refused:
                return frames.RequestRefused(ended.refused)
            why = ended.why
        if why is None:
            try:
                self._forward_output(output, to_the_end=True)
            except WatchEnded as over:
                why = over.why
        return frames.CommandDone(self._build_result(why, time.monotonic() - began))

    def _start_command(self) -> tuple[int, str]:
        """Start the command; return the handle of its output, and a fault (empty if it started)."""
        output, output_writer = os.pipe()
        faults, fault_writer = os.pipe()
        with tempfile.TemporaryFile(dir=self._place.tmp) as stdin:
            stdin.write(self._command.stdin)
            stdin.flush()
            os.lseek(stdin.fileno(), 0, os.SEEK_SET)
            me = os.getpid()
            self._pid = os.fork()
            if self._pid == 0:
                signal.set_wakeup_fd(-1)
                source = stdin.fileno()
                exec_command(self._command, self._place, self._group, source, output_writer, fault_writer, me)
        # Closed here, or the reads below would never see the end of these pipes.
        os.close(output_writer)
        os.close(fault_writer)
        with open(faults, "rb") as file:
            fault = file.read()  # the pipe closes at the exec: an empty read means it succeeded
        os.set_blocking(output, False)
        return output, fault.decode("utf-8", "replace")

    def _watch(self, output: int, tmp: int, until: float) -> NoReturn:
        """Serve the command until it is over. Raises WatchEnded."""
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        look_at = measure_at = 0.0
        command = self._command
        while True:
            poll.register(self._peer, select.POLLIN | (select.POLLOUT if self._to_send else 0))
            ready = dict(poll.poll(max(look_at - time.monotonic(), 0) * 1000))
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._stopped:
                raise WatchEnded(None, SUPERSEDED)
            if (event := ready.get(self._peer.fileno())) is not None:
                # Any input, or a hang-up, means that the worker gives the command up.
                if event & ~select.POLLOUT:
                    raise WatchEnded(None, "the connection was closed")
                self._send()
            if output in ready and self._forward_output(output):
                poll.unregister(output)
            self._reap()
            now = time.monotonic()
            if now >= until:
                raise WatchEnded("wall")
            if now >= look_at:
                look_at = time.monotonic() + self._check_usage()
            if now >= measure_at:
                if workspace_quota.is_over_quota(self._place.workspace, command.quota_bytes, command.quota_files):
                    raise WatchEnded("room")
                # Bubblewrap's /tmp is as small. This one may lie in memory too; nothing else limits it.
                if workspace_quota.is_over_quota(tmp, TMP_BYTES, self._limits.memory_bytes // INODE_BYTES):
                    raise WatchEnded("memory")
                measure_at = time.monotonic() + MEASURE_S

    def _forward_output(self, output: int, *, to_the_end: bool = False) -> bool:
        """Forward output; return whether it has ended. Raises WatchEnded when it is too much."""
        while True:
            try:
                piece = os.read(output, frames.PIECE_BYTES)
            except BlockingIOError:
                return False
            if not piece:
                return True
            kept = piece[: self._limits.output_bytes - self._kept]
            self._kept += len(kept)
            self._cut += len(piece) - len(kept)
            if kept:
                self._to_send += frames.encode(frames.OutputPiece(kept))
            if self._cut:
                raise WatchEnded("output")
            if not to_the_end:
                return False

    def _reap(self) -> None:
        """Reap what has ended. Raises WatchEnded when it was the command itself."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == self._pid:
                self._status = status
                self._worked_s = used.ru_utime + used.ru_stime
                raise WatchEnded(None)
            if pid == 0:
                return

    def _check_usage(self) -> float:
        """Raise WatchEnded if it is too much; return the time until the next measurement."""
        me = os.getpid()
        at_most = self._limits.processes
        # Cheap even for a fork bomb: it stops counting early.
        if len(list(islice(processes.descendants(me), at_most + 1))) > at_most:
            raise WatchEnded("processes")
        used = usage_below(me)
        if used.threads > at_most:
            raise WatchEnded("processes")
        if used.memory_bytes > self._limits.memory_bytes:
            raise WatchEnded("memory")
        return pause_s(used.memory_bytes, self._limits.memory_bytes)

    def _build_result(self, why: Ending | None, seconds: float) -> Finished:
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        over_cpu = code in (-signal.SIGXCPU, _SHELL_SIGNALLED + signal.SIGXCPU)
        # The hard limit sends SIGKILL.
        over_cpu |= code == -signal.SIGKILL and self._worked_s >= self._limits.cpu_s
        if not why and self._group and self._group.exceeded_memory():
            why = "memory"
        ended: Ending = why or ("cpu" if over_cpu else "exit" if code >= 0 else "signal")
        return Finished(
            ended=ended,
            code=code if ended == "exit" else None,
            signal=-code if ended == "signal" else None,
            cut_bytes=self._cut,
            seconds=seconds,
        )

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            try:
                del self._to_send[: self._peer.send(self._to_send)]
            except ConnectionError:
                raise WatchEnded(None, "the connection was closed") from None

    def _stop(self, *_: object) -> None:
        self._stopped = True
