"""The file with the lines of all processes of `shoal up`, which `shoal logs` reads.

A line is `2026-11-23T22:57:30.123Z worker | text`, with the time in UTC and without colours. The
file is bounded: a full one becomes `up.log.1`, which replaces the one before.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from shared.terminal_text import clean

LOG_FILE: Final = "up.log"
OLDER_FILE: Final = "up.log.1"
FILE_BYTES: Final = 8 * 1024 * 1024
LEVELS: Final = ("debug", "info", "warning", "error", "critical")

_LINE: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([\w.-]+) *\| ?(.*)")
_LEVEL: Final = re.compile(rf"\[({'|'.join(LEVELS)}) *\]|\"level\": ?\"({'|'.join(LEVELS)})\"")


class LogLine(NamedTuple):
    """One line. `level` of a line without one is that of the line before it: a traceback's."""

    at: datetime
    process: str
    text: str
    level: str


class LogFile:
    """Appends lines for their owner alone. Never fails: a full disk costs lines, not Shoal."""

    def __init__(self, folder: Path, *, file_bytes: int = FILE_BYTES) -> None:
        self._file = folder / LOG_FILE
        self._older = folder / OLDER_FILE
        self._file_bytes = file_bytes
        self._out: BinaryIO | None = None
        self._open()

    def write(self, process: str, line: str) -> None:
        """Append a line of a process."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        data = f"{at}Z {process:<7} | {clean(line)}\n".encode(errors="replace")
        with contextlib.suppress(OSError):
            if self._out is not None and self._out.tell() + len(data) > self._file_bytes:
                self.close()
                self._file.replace(self._older)
                self._open()
            if self._out is not None:
                self._out.write(data)

    def close(self) -> None:
        """End it; later lines are dropped."""
        if self._out is not None:
            with contextlib.suppress(OSError):
                self._out.close()
        self._out = None

    def _open(self) -> None:
        with contextlib.suppress(OSError):
            number = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.fchmod(number, 0o600)  # also one that another umask made
            self._out = os.fdopen(number, "ab", buffering=0)
            self._out.seek(0, os.SEEK_END)


class LogFileReader:
    """Reads the lines of both files, then what is appended. `wanted` chooses lines."""

    def __init__(self, folder: Path, wanted: Callable[[LogLine], bool]) -> None:
        self._folder = folder
        self._wanted = wanted
        self._levels: dict[str, str] = {}
        self._inode = 0
        self._read_to = 0

    def read_all(self) -> Iterator[LogLine]:
        """Yield the lines that there are, the oldest first. Raises OSError without a log."""
        with contextlib.suppress(FileNotFoundError):
            yield from self._read(self._folder / OLDER_FILE, 0)
        yield from self._read(self._folder / LOG_FILE, 0)

    def read_new(self) -> Iterator[LogLine]:
        """Yield what was appended since, over a rotation, too."""
        file = self._folder / LOG_FILE
        older = self._folder / OLDER_FILE
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_ino != self._inode:
                if older.exists() and older.stat().st_ino == self._inode:
                    yield from self._read(older, self._read_to)
                self._read_to = 0
            yield from self._read(file, self._read_to)

    def _read(self, file: Path, start: int) -> Iterator[LogLine]:
        with file.open("rb") as lines:
            self._inode = os.fstat(lines.fileno()).st_ino
            lines.seek(start)
            for raw in lines:
                if not raw.endswith(b"\n"):  # the rest of it is being written
                    break
                start += len(raw)
                line = self._parse(raw.decode(errors="replace"))
                if line is not None and self._wanted(line):
                    self._read_to = start
                    yield line
        self._read_to = start

    def _parse(self, raw: str) -> LogLine | None:
        match = _LINE.match(raw.rstrip("\n"))
        if match is None:
            return None
        at, process, text = match.groups()
        if found := _LEVEL.search(text):
            self._levels[process] = found[1] or found[2]
        return LogLine(datetime.fromisoformat(at), process, clean(text), self._levels.get(process, "info"))
