"""Read documents as text. Each is parsed in a process of its own, which can be killed and gets none
of our secrets."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import Final

from shared.errors import ToolFailed
from worker.documents.kinds import (
    CPU_S,
    FILE_LIMIT_BYTES,
    KIND_NAMES,
    MEMORY_BYTES,
    REFUSED_EXIT_CODE,
    TEXT_LIMIT_CHARS,
    WALL_S,
    Document,
)

AT_ONCE: Final = 2
_TOP: Final = Path(__file__).parents[2]
_READ_LIMIT_BYTES: Final = TEXT_LIMIT_CHARS * 4 + 1024


class DocumentReader:
    """Reads at most AT_ONCE documents of a worker at a time; others wait. Each may use `cpu_s`
    seconds of processor time and `memory_bytes`."""

    def __init__(self, *, cpu_s: int = CPU_S, memory_bytes: int = MEMORY_BYTES) -> None:
        self._cpu_s = cpu_s
        self._memory_bytes = memory_bytes
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read_document(self, path: str, kind: Document, data: bytes) -> str:
        """Return the text of the document `data`; errors call it `path`.

        Raises ToolFailed, `file refused: <reason>`, for a document that is too big, damaged, locked
        or a bomb. Cancelled, it leaves no process running.
        """
        if len(data) > FILE_LIMIT_BYTES:
            raise _refusal(path, f"it has {len(data):,} bytes; at most {FILE_LIMIT_BYTES:,} are read")
        async with self._slots:
            try:
                code, text = await self._run_child(kind, data)
            except TimeoutError:
                raise _refusal(path, f"reading it takes more than {WALL_S} s") from None
            except OSError:
                raise ToolFailed(f"{path!r} cannot be read just now: no process can be started. Try later") from None
        match code:
            case 0:
                return text
            case _ if code == REFUSED_EXIT_CODE:
                raise _refusal(path, text.rpartition("\n")[2])
            case _ if code in (-signal.SIGXCPU, -signal.SIGALRM):
                raise _refusal(path, f"reading it takes more than {self._cpu_s} s of work")
        memory_mb = self._memory_bytes // 2**20
        raise _refusal(path, f"it is not a {KIND_NAMES[kind]} that can be read with {memory_mb} MB of memory")

    async def _run_child(self, kind: Document, data: bytes) -> tuple[int, str]:
        limits = (str(self._cpu_s), str(self._memory_bytes))
        command = (sys.executable, "-B", "-m", "worker.documents.child", kind, *limits)
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        child = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=nothing, cwd=_TOP, env={"LANG": "C.UTF-8"}
        )
        try:
            async with asyncio.timeout(WALL_S):
                # Both pipes are served at once: a child that writes before it has read everything
                # would otherwise block us, and we it.
                feeding = asyncio.create_task(_feed_input(child, data))
                try:
                    output = await _read_output(child)
                finally:
                    feeding.cancel()
                return await child.wait(), output.decode("utf-8", "replace")
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()


async def _feed_input(child: asyncio.subprocess.Process, data: bytes) -> None:
    assert child.stdin is not None
    with contextlib.suppress(ConnectionError):
        child.stdin.write(data)
        await child.stdin.drain()
    child.stdin.close()


async def _read_output(child: asyncio.subprocess.Process) -> bytes:
    """Return what the child writes, at most as much as it is allowed to."""
    assert child.stdout is not None
    pieces: list[bytes] = []
    left = _READ_LIMIT_BYTES
    while left > 0 and (piece := await child.stdout.read(min(left, 64 * 1024))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _refusal(path: str, reason: str) -> ToolFailed:
    return ToolFailed(f"file refused: {reason} ({path!r}). Go on without it, or ask the user for another copy")
