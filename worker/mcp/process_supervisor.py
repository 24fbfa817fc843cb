"""The process between a worker and one MCP server process. It starts the server with a restricted
environment, passes its output on, and kills it and everything it started when the worker ends,
however the worker ended.

`python -I process_supervisor.py NAME,NAME LIMIT_BYTES COMMAND...`: the names are the variables that
the server keeps, the limit is for one line. The server reads the worker's pipe itself; the
supervisor only watches that pipe, and POLLHUP there means that the worker has ended. It needs only
the standard library and `shared.confinement.processes`, and runs as a file, so that it starts fast."""

from __future__ import annotations

import importlib
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from types import ModuleType

GRACE_S = 1.0  # between the end of a server's input and SIGKILL
CANNOT_START = 127
TOO_LONG = 3
_PIECE_BYTES = 64 * 1024
_POLL_S = 0.05


def main(names: str, limit_bytes: str, *command: str) -> int:
    """Run the server to its end; return its exit code."""
    # The worker's end reaches us through the pipe. A signal to the whole group (Ctrl-C) must not
    # kill us first, or nothing would be left to kill the server.
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)
    if sys.platform == "linux":
        processes().prctl(processes().SUBREAPER, 1)
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
    # The end of the output is not enough: a process that the server started may still hold it open.
    out = server.stdout.fileno()
    woken = processes().wake_on_signals()
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
                while piece:
                    piece = piece[os.write(1, piece) :]
            except OSError:
                return 0  # the worker has ended


def _end_all(server: subprocess.Popen[bytes]) -> None:
    """Kill the server and all that it started: every orphan becomes a child of this subreaper."""
    server.kill()
    server.wait()
    if sys.platform == "linux":
        processes().kill_descendants()
    else:
        os.killpg(0, signal.SIGKILL)


def _prepare_server() -> None:
    """Run in the child before exec: restore the signals, and have the kernel kill it with us."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_DFL)
    if sys.platform == "linux":
        processes().prctl(processes().DEATH_SIGNAL, signal.SIGKILL)


def processes() -> ModuleType:
    """Return `shared.confinement.processes`. This file runs alone and knows no path to it; the path is
    appended, not first: nothing of the project may shadow a module of the standard library."""
    top = str(pathlib.Path(__file__).parents[2])
    if top not in sys.path:
        sys.path.append(top)
    return importlib.import_module("shared.confinement.processes")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
