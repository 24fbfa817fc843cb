"""What a sandbox costs: one command in each tier that this machine has, against the same command without one."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from proof.bench.plan import Plan
from proof.bench.table import Figure, Report
from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.command import SandboxCommand

ROUNDS: Final = 200
LINE: Final = "echo done"


def measure(plan: Plan) -> Report:
    """Both."""
    return asyncio.run(_measure(plan.rounds or plan.of(ROUNDS, 5)))


async def _measure(rounds: int) -> Report:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "workspace"
        await asyncio.to_thread(_made, folder)
        sandbox = await Bubblewrap.find()
        command = SandboxCommand(what=LINE, folder=str(folder), session="bench", shown={"MEMORY.md": b"fact\n"})

        async def walled() -> None:
            await sandbox.run(command)

        async def bare() -> None:
            child = await asyncio.create_subprocess_exec("/bin/bash", "-c", LINE, stdout=asyncio.subprocess.PIPE)
            await child.communicate()

        figures = [await _figure(name, call, rounds) for name, call in (("bare", bare), (sandbox.tier, walled))]
    added = [statistics.quantiles(one.values, n=100) for one in figures]
    notes = (f"the sandbox adds p50 {added[1][49] - added[0][49]:.1f} ms, p99 {added[1][98] - added[0][98]:.1f} ms",)
    return Report(title=f"exec: {LINE!r}, {rounds} times", figures=tuple(figures), notes=notes)


def _made(folder: Path) -> None:
    folder.parent.chmod(0o711)
    folder.mkdir()


async def _figure(name: str, call: Callable[[], Awaitable[None]], rounds: int) -> Figure:
    await call()
    values = []
    for _ in range(rounds):
        began = time.perf_counter()
        await call()
        values.append((time.perf_counter() - began) * 1000)
    return Figure(name, "ms", tuple(values))
