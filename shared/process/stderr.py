"""Standard error of a process, where its log goes. No process ends because that is a full disk.
Standard library only, because the guardian writes here too."""

from __future__ import annotations

import contextlib
import io
import sys


def unbuffer_stderr() -> None:
    """Drop what cannot be written. Python's own stream keeps it, tries again at the exit of the
    process, and turns an exit code of 0 into 120: a drained worker would count as crashed."""
    with contextlib.suppress(OSError):  # started without any
        raw = io.FileIO(2, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)


def write_stderr(line: str) -> None:
    """Write a line, if that is possible."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
