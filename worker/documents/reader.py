"""Documents as text. Each is parsed in a process of its own, which gets none of our secrets."""

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
        """Return the text of the document `data`; errors call it `path`. Raises ToolFailed, `file
        refused: <reason>`, for a document that is too big, damaged, locked or a bomb. Cancelled, it
        leaves no process running."""
        if len(data) > FILE_LIMIT_BYTES:
            raise _refusal(path, f"it has {len(data):,} bytes; at most {FILE_LIMIT_BYTES:,} are read")
        async with self._slots:
            try:
                code, output = await run_parser(kind, data, self._cpu_s, self._memory_bytes)
            except TimeoutError:
                raise _refusal(path, f"reading it takes more than {WALL_S} s") from None
            except OSError:
                why = f"{path!r} cannot be read just now: no process can be started"
                raise ToolFailed(f"{why}. Try later") from None
        text = output.decode("utf-8", "replace")
        if code == 0:
            return text
        if code == REFUSED_EXIT_CODE:
            raise _refusal(path, text.rpartition("\n")[2])
        if code in (-signal.SIGXCPU, -signal.SIGALRM):
            raise _refusal(path, f"reading it takes more than {self._cpu_s} s of work")
        why = f"it is not a {KIND_NAMES[kind]} that can be read with"
        raise _refusal(path, f"{why} {self._memory_bytes // 2**20} MB of memory")


async def run_parser(
    kind: str,
    data: bytes,
    cpu_s: int,
    memory_bytes: int,
    *,
    wall_s: float = WALL_S,
    output_bytes: int = _READ_LIMIT_BYTES,
    url: str = "",
) -> tuple[int, bytes]:
    """Parse `data` in a process with an empty environment; return its exit code and its output, cut
    to `output_bytes`. Raises TimeoutError and OSError; leaves no process running."""
    limits = (str(cpu_s), str(memory_bytes))
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-B", "-m", "worker.documents.child", kind, *limits, url),
        stdin=pipe,
        stdout=pipe,
        stderr=nothing,
        cwd=_TOP,
        env={"LANG": "C.UTF-8"},
        start_new_session=True,
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(wall_s):
            # Both pipes are served at once: a child that writes before it has read everything
            # would otherwise block us, and we it.
            feeding = asyncio.create_task(_feed_input(child, data))
            output = bytearray()
            try:
                while piece := await child.stdout.read(min(output_bytes - len(output), 64 * 1024)):
                    output += piece
            finally:
                feeding.cancel()
            return await child.wait(), bytes(output)
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


def _refusal(path: str, reason: str) -> ToolFailed:
    advice = "Go on without it, or ask the user for another copy"
    return ToolFailed(f"file refused: {reason} ({path!r}). {advice}")
