"""Documents as text. Each is taken apart in a process of its own that can be killed and that knows
no secret."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import Final

from shared.errors import ToolFailed
from worker.documents.kinds import NAMES, Document
from worker.documents.limits import CPU_S, FILE_LIMIT_BYTES, MEMORY_BYTES, REFUSED, TEXT_LIMIT_CHARS, WALL_S

AT_ONCE: Final = 2
_TOP: Final = Path(__file__).parents[2]
_READ_LIMIT_BYTES: Final = TEXT_LIMIT_CHARS * 4 + 1024


class DocumentReader:
    """Reads `AT_ONCE` documents of a worker at a time; others wait. Each may take `cpu_s` and
    `memory_bytes`."""

    def __init__(self, *, cpu_s: int = CPU_S, memory_bytes: int = MEMORY_BYTES) -> None:
        self._cpu_s = cpu_s
        self._memory_bytes = memory_bytes
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def text(self, path: str, kind: Document, data: bytes) -> str:
        """The text of the document `data`; `path` is what it is called in errors.

        Raises ToolFailed, `file refused: <reason>`, for one that is too big, damaged, locked, or a
        bomb. Cancelled, it leaves no process behind.
        """
        if len(data) > FILE_LIMIT_BYTES:
            raise _refused(path, f"it has {len(data):,} bytes; at most {FILE_LIMIT_BYTES:,} are read")
        async with self._slots:
            try:
                code, told = await self._run(kind, data)
            except TimeoutError:
                raise _refused(path, f"reading it takes more than {WALL_S} s") from None
            except OSError:
                raise ToolFailed(f"{path!r} cannot be read just now: no process can be started. Try later") from None
        match code:
            case 0:
                return told
            case _ if code == REFUSED:
                raise _refused(path, told.rpartition("\n")[2])
            case _ if code in (-signal.SIGXCPU, -signal.SIGALRM):
                raise _refused(path, f"reading it takes more than {self._cpu_s} s of work")
        raise _refused(path, f"it is no {NAMES[kind]} that can be read with {self._memory_bytes // 2**20} MB of memory")

    async def _run(self, kind: Document, data: bytes) -> tuple[int, str]:
        limits = (str(self._cpu_s), str(self._memory_bytes))
        command = (sys.executable, "-B", "-m", "worker.documents.child", kind, *limits)
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        child = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=nothing, cwd=_TOP, env={"LANG": "C.UTF-8"}
        )
        try:
            async with asyncio.timeout(WALL_S):
                feeding = asyncio.create_task(_feed(child, data))
                try:
                    told = await _all(child)
                finally:
                    feeding.cancel()
                return await child.wait(), told.decode("utf-8", "replace")
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()


async def _feed(child: asyncio.subprocess.Process, data: bytes) -> None:
    assert child.stdin is not None
    with contextlib.suppress(ConnectionError):
        child.stdin.write(data)
        await child.stdin.drain()
    child.stdin.close()


async def _all(child: asyncio.subprocess.Process) -> bytes:
    """What it writes, up to what it may write."""
    assert child.stdout is not None
    pieces: list[bytes] = []
    left = _READ_LIMIT_BYTES
    while left > 0 and (piece := await child.stdout.read(min(left, 64 * 1024))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _refused(path: str, why: str) -> ToolFailed:
    return ToolFailed(f"file refused: {why} ({path!r}). Go on without it, or ask the user for another copy")
