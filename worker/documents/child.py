"""The process that parses one document: `python -m worker.documents.child KIND CPU_S
MEMORY_BYTES`, with the file on standard input.

It writes the text and exits with 0, or writes a reason and exits with REFUSED_EXIT_CODE. It limits
and confines itself before it reads a byte or imports a parser library, so that a file that exploits
its parser gains this process and nothing else.
"""

from __future__ import annotations

import contextlib
import io
import resource
import signal
import sys
from collections.abc import Iterator
from typing import cast

from worker.documents.formats import TEXTS_OF
from worker.documents.kinds import (
    FILE_LIMIT_BYTES,
    REFUSED_EXIT_CODE,
    TEXT_LIMIT_CHARS,
    WALL_S,
    Document,
    DocumentRefused,
    check_archive,
)
from worker.sandbox.parser_confinement import confine_parser


def main() -> int:
    """Read one document; return the exit code."""
    kind = cast(Document, sys.argv[1])
    _set_limits(int(sys.argv[2]), int(sys.argv[3]))
    confine_parser()
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="replace", newline="\n")
    try:
        data = sys.stdin.buffer.read(FILE_LIMIT_BYTES)
        if kind != "pdf":
            check_archive(data)
        _write_texts(TEXTS_OF[kind](io.BytesIO(data)), out)
    except DocumentRefused as exc:
        return _write_refusal(out, str(exc))
    except MemoryError:
        return _write_refusal(out, "it needs too much memory")
    except RecursionError:
        return _write_refusal(out, "it is nested too deeply")
    except Exception as exc:  # on damaged input these libraries raise anything at all
        return _write_refusal(out, f"it is damaged ({type(exc).__name__})")
    return 0


def _write_texts(texts: Iterator[str], out: io.TextIOWrapper) -> None:
    left = TEXT_LIMIT_CHARS
    for text in texts:
        out.write(f"{text[:left]}\n")
        if (left := left - len(text) - 1) <= 0:
            out.write(f"[cut: only {TEXT_LIMIT_CHARS:,} characters are shown]\n")
            break
    out.flush()


def _write_refusal(out: io.TextIOWrapper, reason: str) -> int:
    # Text may precede it: a later page can turn out to be damaged. The reader takes the last line.
    out.write(f"\n{reason}")
    out.flush()
    return REFUSED_EXIT_CODE


def _set_limits(cpu_s: int, memory_bytes: int) -> None:
    signal.alarm(WALL_S)  # ends this process even if its parent was killed
    limits = (
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        # The soft limit sends SIGXCPU, which tells the parent the reason; the hard limit sends
        # SIGKILL.
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, 64, 64),
    )
    for kind, soft, hard in limits:
        with contextlib.suppress(ValueError, OSError):  # macOS does not limit the address space
            resource.setrlimit(kind, (soft, hard))


if __name__ == "__main__":
    sys.exit(main())
