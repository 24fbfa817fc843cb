"""Stands between a worker and one MCP server that is a process: starts it with the environment it
may have, passes its output on, and ends it and all it started when the worker is gone, however that
died.

`python -I keeper.py NAME,NAME LIMIT_BYTES COMMAND...`: the names are the variables that the server keeps, the limit is
that of one line. The server reads the worker's pipe itself; that it has no writer any more is how the keeper learns
that the worker is gone. Standard library only; runs as a file, so that it starts in a moment.
"""

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

GRACE_S = 1.0
"""What a server has between the end of its input and SIGKILL."""

CANNOT_START = 127
TOO_LONG = 3

_PIECE_BYTES = 64 * 1024
_LOOK_S = 0.05
_ROUNDS = 1000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(names: str, limit_bytes: str, *command: str) -> int:
    """Run the server to its end; its exit code."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    kept = names.split(",")
    try:
        server = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name in kept},
            preexec_fn=_fresh,  # one thread: nothing can be held across the fork
        )
    except OSError as exc:
        sys.stderr.write(f"{command[0]!r} cannot be started: {exc.strerror}\n")
        return CANNOT_START
    try:
        return _pump(server, int(limit_bytes))
    finally:
        _end_all(server)


def _pump(server: subprocess.Popen[bytes], limit_bytes: int) -> int:
    """Pass lines on until the server has ended, or the worker."""
    assert server.stdout is not None
    out, woken = server.stdout.fileno(), _wake_when_children_end()
    poll = select.poll()
    poll.register(out, select.POLLIN)
    poll.register(woken, select.POLLIN)
    poll.register(0, 0)  # nothing to read here: only that the other end is closed
    line_bytes = 0
    deadline: float | None = None
    while True:
        events = dict(poll.poll(None if deadline is None else _LOOK_S * 1000))
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
                _write(piece)
            except OSError:
                return 0  # the worker is gone


def _wake_when_children_end() -> int:
    """A descriptor that can be read when one of them has: a server may die while another holds its
    output."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read


def _write(piece: bytes) -> None:
    while piece:
        piece = piece[os.write(1, piece) :]


def _end_all(server: subprocess.Popen[bytes]) -> None:
    """Kill the server and whatever it started, also what left its process group: orphans become our
    children."""
    server.kill()
    server.wait()
    for _ in range(_ROUNDS):
        children = _children()
        if not children:
            break
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if sys.platform != "linux":
        os.killpg(0, signal.SIGKILL)


def _children() -> list[int]:
    """The processes whose parent we are. Empty where there is no /proc."""
    own, found = str(os.getpid()), []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError):
            if name.isdigit() and pathlib.Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1] == own:
                found.append(int(name))
    return found


def _fresh() -> None:
    """In the server, before it begins: the usual signals, and death with the keeper."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
