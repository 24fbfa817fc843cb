"""The process that parses bytes of strangers: `python -m shared.confinement.parser_server
MODULE:FUNCTION CPU_S WALL_S MEMORY_BYTES`. See `ParserProcess`, which starts it.

Each message on standard input, a socket, brings one connection. The process forks for it: the fork
reads the bytes, calls the function, and writes the length of the result and the result. A fork is
there in a few milliseconds with everything imported, and its limits are those of one text. The
kernel ends it at its deadline, wherever it is, and the next text waits for no new process."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shared.confinement.parsers import confine_parser

LENGTH: Final = struct.Struct("!Q")
READ_S: Final = 60.0  # for the bytes to arrive; their sender is a process of ours


def main() -> None:
    """Serve connections until the other end of standard input is closed."""
    function, cpu_s, wall_s, memory_bytes = sys.argv[1:]
    control = socket.socket(fileno=0)
    _set_limits(int(memory_bytes))
    # Before the parser is imported: what its libraries do then is confined as well.
    confine_parser()
    module, _, name = function.partition(":")
    parse = getattr(importlib.import_module(module), name)
    with contextlib.suppress(Exception):
        parse(b"")  # what its first call makes, every fork then has
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the forks
    gc.freeze()  # a collection in a fork would copy the pages of everything imported
    while True:
        message, files, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        # Without a fork the connection is closed, and its other end sees that.
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                control.close()
                _parse_one(files[0], parse, float(cpu_s), float(wall_s))
        os.close(files[0])


def _parse_one(connection: int, parse: Callable[[bytes], bytes], cpu_s: float, wall_s: float) -> None:
    """Answer one connection, and end this process."""
    status = 1
    try:
        # A timer that nothing handles ends the process, also inside of a library written in C.
        signal.setitimer(signal.ITIMER_REAL, READ_S)
        with open(connection, "rb", closefd=False) as reader:
            data = reader.read()
        signal.setitimer(signal.ITIMER_REAL, wall_s)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        result = parse(data)
        with open(connection, "wb", closefd=False) as writer:
            writer.write(LENGTH.pack(len(result)))
            writer.write(result)
        status = 0
    finally:
        os._exit(status)


def _set_limits(memory_bytes: int) -> None:
    # Where memory runs out, the kernel ends a fork of this process and not its worker or gateway.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    limits = (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
    )
    for kind, limit in limits:
        with contextlib.suppress(ValueError, OSError):  # macOS does not limit the address space
            resource.setrlimit(kind, (limit, limit))


if __name__ == "__main__":
    main()
