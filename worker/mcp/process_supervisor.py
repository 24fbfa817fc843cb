"""The process between a worker and one MCP server process. It starts the server with a restricted
environment, passes its output on, and kills it and everything it started when the worker ends,
however the worker ended.

`python -I process_supervisor.py NAME,NAME LIMIT_BYTES COMMAND...`: the names are the variables that
the server keeps, the limit is for one line. The server reads the worker's pipe itself; the
supervisor only watches that pipe, and POLLHUP there means that the worker has ended. It uses the
standard library only and runs as a file, so that it starts fast."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

# Time that a server has between the end of its input and SIGKILL.
GRACE_S = 1.0
CANNOT_START = 127
TOO_LONG = 3

_PIECE_BYTES = 64 * 1024
_POLL_S = 0.05
_ROUNDS = 1000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(names: str, limit_bytes: str, *command: str) -> int:
    """Run the server to its end; return its exit code."""
    # The worker's end reaches us through the pipe. A signal to the whole group (Ctrl-C) must not
    # kill us first, or nothing would be left to kill the server.
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    kept = names.split(",")
    try:
        server = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name in kept},
            preexec_fn=_prepare_server,  # safe: with one thread, no lock can be held across the fork
        )
    except OSError as exc:
        sys.stderr.write(f"{command[0]!r} cannot be started: {exc.strerror}\n")
        return CANNOT_START
    try:
        return _pump_lines(server, int(limit_bytes))
    finally:
        _end_all(server)


def _pump_lines(server: subprocess.Popen[bytes], limit_bytes: int) -> int:
    """Pass lines on until the server or the worker has ended; return the exit code."""
    assert server.stdout is not None
    out, woken = server.stdout.fileno(), _wake_when_children_end()
    poll = select.poll()
    poll.register(out, select.POLLIN)
    poll.register(woken, select.POLLIN)
    poll.register(0, 0)  # no POLLIN: the server reads this pipe; only POLLHUP is reported
    line_bytes = 0
    deadline: float | None = None
    while True:
        events = dict(poll.poll(None if deadline is None else _POLL_S * 1000))
        ended = server.poll() is not None
        if events.get(0) and deadline is None:
            deadline = time.monotonic() + GRACE_S
            poll.unregister(0)
        if (ended and not events.get(out)) or (deadline is not None and time.monotonic() > deadline):
            return server.returncode or 0
        if events.get(woken):
            os.read(woken, _PIECE_BYTES)
            deadline = time.monotonic() + GRACE_S if ended and deadline is None else deadline
        if events.get(out):
            piece = os.read(out, _PIECE_BYTES)
            if not piece:
                return 0
            end = piece.rfind(b"\n")
            line_bytes = len(piece) - end - 1 if end >= 0 else line_bytes + len(piece)
            if line_bytes > limit_bytes:
                sys.stderr.write(f"a message of more than {limit_bytes:,} bytes: the server is ended\n")
                return TOO_LONG
            try:
                _write_all(piece)
            except OSError:
                return 0  # the worker has ended


def _wake_when_children_end() -> int:
    """Return a descriptor that is readable when a child has ended. The end of the output is not
    enough: a process that the server started may still hold it open."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read


def _write_all(piece: bytes) -> None:
    while piece:
        piece = piece[os.write(1, piece) :]


def _end_all(server: subprocess.Popen[bytes]) -> None:
    """Kill the server and everything it started, including what left its process group: as the
    subreaper, this process becomes the parent of every orphan."""
    server.kill()
    server.wait()
    for _ in range(_ROUNDS):  # each round may orphan grandchildren, which the next round finds
        children = _children()
        if not children:
            break
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if sys.platform != "linux":
        os.killpg(0, signal.SIGKILL)


def _children() -> list[int]:
    """Return the children of this process; empty on systems without /proc."""
    own, found = str(os.getpid()), []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError):
            if name.isdigit() and pathlib.Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1] == own:
                found.append(int(name))
    return found


def _prepare_server() -> None:
    """Run in the child before exec: restore the signals, and have the kernel kill it with us."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
