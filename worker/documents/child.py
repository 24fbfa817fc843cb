"""The process that takes a document apart: `python -m worker.documents.child KIND CPU_S
MEMORY_BYTES`, file on stdin.

It writes text and ends with 0, or a reason and ends with REFUSED. Its memory, time and files are
limited, and it shuts itself in where the machine can do that, before it reads a byte or imports a
library, so that a file made to break its reader breaks this process alone.
"""

from __future__ import annotations

import contextlib
import io
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final

from worker.documents.archive import Refused, check_archive
from worker.documents.limits import FILE_LIMIT_BYTES, REFUSED, TEXT_LIMIT_CHARS, WALL_S
from worker.guards.confined_process import confine_parser

_READERS: Final = {
    "pdf": "worker.documents.pdf",
    "word": "worker.documents.word",
    "sheet": "worker.documents.sheet",
    "slides": "worker.documents.slides",
}


def main() -> int:
    """Read one document; the exit code."""
    kind = sys.argv[1]
    _limit(int(sys.argv[2]), int(sys.argv[3]))
    confine_parser()
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="replace", newline="\n")
    try:
        data = sys.stdin.buffer.read(FILE_LIMIT_BYTES)
        if kind != "pdf":
            check_archive(data)
        texts: Callable[[io.BytesIO], Iterator[str]] = import_module(_READERS[kind]).texts
        _write(texts(io.BytesIO(data)), out)
    except Refused as exc:
        return _refuse(out, str(exc))
    except MemoryError:
        return _refuse(out, "it needs too much memory")
    except RecursionError:
        return _refuse(out, "it is nested too deeply")
    except Exception as exc:  # these libraries raise whatever they stumble over
        return _refuse(out, f"it is damaged ({type(exc).__name__})")
    return 0


def _write(texts: Iterator[str], out: io.TextIOWrapper) -> None:
    left = TEXT_LIMIT_CHARS
    for text in texts:
        out.write(f"{text[:left]}\n")
        if (left := left - len(text) - 1) <= 0:
            out.write(f"[cut: only {TEXT_LIMIT_CHARS:,} characters are shown]\n")
            break
    out.flush()


def _refuse(out: io.TextIOWrapper, why: str) -> int:
    out.write(f"\n{why}")
    out.flush()
    return REFUSED


def _limit(cpu_s: int, memory_bytes: int) -> None:
    signal.alarm(WALL_S)  # ends it also when nobody waits any more
    limits = (
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),  # over the first comes SIGXCPU, which says why it ended
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, 64, 64),
    )
    for kind, soft, hard in limits:
        with contextlib.suppress(ValueError, OSError):  # macOS has no limit on the address space
            resource.setrlimit(kind, (soft, hard))


if __name__ == "__main__":
    sys.exit(main())
