"""One run of bubblewrap: start, output, limits, and the end of everything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from io import FileIO
from typing import Final

from worker.sandbox import layout
from worker.sandbox.cgroup import CommandGroup
from worker.sandbox.command import CommandLimits, Ending, Finished, SandboxBroken
from worker.sandbox.layout import NICE, OWN_PROCESSES, PATH, BubblewrapStart, SandboxUser
from worker.sandbox.usage import pause_s, usage_below

MEASURE_AGAIN_S: Final = 0.1
START_S: Final = 20.0
KILL_S: Final = 20.0
_STATUS_BYTES: Final = 4096
_PIPE_BYTES: Final = 64 * 1024
_XCPU_CODE: Final = 128 + signal.SIGXCPU


class BubblewrapProcess:
    """Runs bubblewrap once; adds the options for the descriptors it needs itself, and its gate."""

    def __init__(self, limits: CommandLimits, group: CommandGroup | None = None) -> None:
        self._limits = limits
        self._group = group
        self._output = bytearray()
        self._cut_bytes = 0
        self._output_fd = -1
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    async def run(
        self, start: BubblewrapStart, options: Sequence[str], stdin: int, fds: Sequence[int] = ()
    ) -> Finished:
        """Run it to its end. Raises SandboxBroken without an isolation; then nothing was run."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        with contextlib.ExitStack() as held:
            output, to_output = _open_pipe(held)
            status, to_status = _open_status(held)
            gate, to_gate = _open_pipe(held)
            self._output_fd = output.fileno()
            ours = ("--json-status-fd", str(to_status.fileno()))
            kept = [*fds, to_status.fileno(), gate.fileno()]
            argv = [*start.argv, *ours, *layout.gate_options(gate.fileno()), *options]
            child = _start_process(argv, stdin, to_output.fileno(), kept, start.user)
            # Our copies of the child's ends: kept open, they would hide the end of its output.
            for end in (to_output, to_status, gate):
                end.close()
            outer = held.enter_context(_open_pidfd(child.pid))
            try:
                first = await self._read_first_pid(status.fileno())
                os.set_blocking(self._output_fd, False)
                loop.add_reader(self._output_fd, self._read_output)
                try:
                    inner = held.enter_context(_open_pidfd(first))
                except ProcessLookupError:
                    # It failed as soon as bubblewrap had named it, and wrote why before it ended.
                    await _kill_and_wait(child, outer, None)
                    self._drain_output()
                    raise SandboxBroken(f"bubblewrap failed: {self._last_line()}") from None
                try:
                    self._enter_group(first)
                    ending = await self._wait_for_ending(outer, first, to_gate)
                finally:
                    await _kill_and_wait(child, outer, inner)
                    self._drain_output()
            finally:
                loop.remove_reader(self._output_fd)
                await _kill_and_wait(child, outer, None)
            os.set_blocking(status.fileno(), False)
            ended = status.read(_STATUS_BYTES) or b""  # what has arrived; all writers have ended
            return self._build_result(ending, child.returncode, ended, loop.time() - began)

    async def _read_first_pid(self, status: int) -> int:
        """Return the pid of the first inner process, as seen from outside. bubblewrap waits at the
        gate before it runs the command, so that a pidfd can be opened before it may exit."""
        status_line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                while b"\n" not in status_line:
                    await _wait_readable(status)
                    if not (piece := os.read(status, _STATUS_BYTES)):
                        break
                    status_line += piece
        if b"\n" not in status_line:
            self._drain_output()
            raise SandboxBroken(f"bubblewrap did not start ({self._last_line()}); it needs user namespaces")
        return int(json.loads(status_line.partition(b"\n")[0])["child-pid"])

    def _enter_group(self, first: int) -> None:
        """Put the first process into the control group, before it starts others."""
        try:
            if self._group:
                self._group.add(first)
        except OSError as exc:
            raise SandboxBroken(f"the control group of a command cannot be used: {exc.strerror}") from None

    async def _wait_for_ending(self, outer: int, first: int, gate: FileIO) -> Ending:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, first, NICE)
        # A broken pipe: bubblewrap has failed already; its output says why.
        with contextlib.suppress(BrokenPipeError):
            gate.write(layout.OPEN_GATE)
        gate.close()  # bubblewrap reads up to the end
        watching = asyncio.create_task(self._watch_usage(first))
        leaving = asyncio.create_task(_wait_readable(outer))
        leaving.add_done_callback(lambda _: self._set_ending("exit"))
        try:
            async with asyncio.timeout(self._limits.wall_s):
                return await asyncio.shield(self._ending)
        except TimeoutError:
            return "wall"
        finally:
            watching.cancel()
            leaving.cancel()

    async def _watch_usage(self, first: int) -> None:
        pause = pause_s(0, self._limits.memory_bytes)
        while True:
            await asyncio.sleep(pause)
            measured = await asyncio.to_thread(_measure, first, self._limits)
            if isinstance(measured, str):
                return self._set_ending(measured)
            pause = measured

    def _set_ending(self, ending: Ending) -> None:
        if not self._ending.done():
            self._ending.set_result(ending)

    def _read_output(self) -> bool:
        """Read once; return whether more may come."""
        try:
            data = os.read(self._output_fd, _PIPE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._output_fd)
            return False
        left_bytes = self._limits.output_bytes - len(self._output)
        self._output += data[:left_bytes]
        if len(data) > left_bytes:
            self._cut_bytes += len(data) - left_bytes
            self._set_ending("output")
        return True

    def _drain_output(self) -> None:
        """Read what is left in the pipe. All writers have ended."""
        os.set_blocking(self._output_fd, False)
        while self._read_output():
            pass

    def _last_line(self) -> str:
        lines = self._output.decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "without output"

    def _build_result(self, ending: Ending, code: int | None, status: bytes, seconds: float) -> Finished:
        if self._cut_bytes and ending == "exit":
            ending = "output"
        # The kernel kills all of the group at once; bubblewrap then has no exit code to report.
        if ending == "exit" and self._group and self._group.exceeded_memory():
            ending = "memory"
        if ending == "exit" and b'"exit-code"' not in status:
            raise SandboxBroken(f"bubblewrap failed: {self._last_line()}")
        if ending == "exit" and code == _XCPU_CODE:
            ending = "cpu"
        return Finished(
            ended=ending,
            code=code if ending == "exit" else None,
            output=bytes(self._output),
            cut_bytes=self._cut_bytes,
            seconds=seconds,
        )


def _measure(first: int, limits: CommandLimits) -> Ending | float:
    """Return the limit that is exceeded, or the time until the next measurement. Near the limit it
    measures again itself: the event loop may be busy for longer than a command needs."""
    until = time.monotonic() + MEASURE_AGAIN_S
    while True:
        used = usage_below(first)
        if used.memory_bytes > limits.memory_bytes:
            return "memory"
        if used.threads > limits.processes + OWN_PROCESSES:
            return "processes"
        pause = pause_s(used.memory_bytes, limits.memory_bytes)
        if time.monotonic() + pause > until:
            return pause
        time.sleep(pause)


def _start_process(
    argv: Sequence[str], stdin: int, output: int, fds: Sequence[int], user: SandboxUser | None
) -> subprocess.Popen[bytes]:
    """Start a process with subprocess.Popen in this very thread. uvloop cannot start a process as
    another user. And bubblewrap dies with its parent (PDEATHSIG), which for the kernel is the
    *thread* that started it: a pool thread that ends would kill it."""
    try:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=output,
            stderr=output,
            pass_fds=fds,
            env={"PATH": PATH},  # for a switch of users; the command gets none of it
            cwd="/",
            start_new_session=True,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
    except OSError as exc:
        raise SandboxBroken(f"bubblewrap cannot be started: {exc.strerror}") from None


async def _kill_and_wait(child: subprocess.Popen[bytes], outer: int, inner: int | None) -> None:
    """Kill everything and return when it is dead, however often this is cancelled. The first inner
    process is the init of its PID namespace: when it ends, the kernel kills all others in there
    before it reports the end. So it is killed and awaited before bubblewrap."""
    deadline = asyncio.get_running_loop().time() + KILL_S
    cancelled = False
    for handle in (inner, outer):
        if handle is None:
            continue
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    await _wait_readable(handle)
                break
            except TimeoutError:
                why = "a command cannot be killed; the machine or its disk hangs"
                raise SandboxBroken(why) from None
            except asyncio.CancelledError:
                cancelled = True
    child.wait()
    if cancelled:
        raise asyncio.CancelledError


async def _wait_readable(fd: int) -> None:
    """Return when the descriptor is readable: for a pidfd that means the process has ended."""
    loop = asyncio.get_running_loop()
    seen = asyncio.Event()
    loop.add_reader(fd, seen.set)
    try:
        await seen.wait()
    finally:
        loop.remove_reader(fd)


def _open_status(held: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    """Open the pipe for bubblewrap's status. Its end can also be read, so that a write succeeds when
    the worker has been killed. Otherwise the write would end bubblewrap before it lets its first
    process go on, and that one would wait for ever."""
    read, write = _open_pipe(held)
    # Opened anew, not duplicated: only a description of its own has another mode.
    both = held.enter_context(FileIO(os.open(f"/proc/self/fd/{write.fileno()}", os.O_RDWR | os.O_CLOEXEC), "r+"))
    write.close()
    return read, both


def _open_pipe(held: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    read, write = os.pipe()
    return held.enter_context(FileIO(read)), held.enter_context(FileIO(write, "w"))


@contextlib.contextmanager
def _open_pidfd(pid: int) -> Iterator[int]:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError as exc:
        raise SandboxBroken(f"a process cannot be held on to: {exc.strerror}") from None
    try:
        yield handle
    finally:
        os.close(handle)
