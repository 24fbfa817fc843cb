"""Processes started by a task that may be cancelled at any moment, and more than once."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Coroutine
from typing import Any

from shared.tasks import completed


async def start_process(starting: Coroutine[Any, Any, Process]) -> Process:
    """Return the process that `create_subprocess_exec` starts. asyncio would leave behind one whose
    start is cancelled, and its transport: here it has ended when the cancellation is raised."""
    creating = asyncio.ensure_future(starting)
    try:
        return await completed(creating)
    except asyncio.CancelledError:
        if not creating.cancelled() and creating.exception() is None:
            await end_process(creating.result())
        raise


async def end_process(process: Process) -> None:
    """Kill a process if it still runs, and return when it has ended, however often this is
    cancelled meanwhile."""
    kill_process(process)
    await completed(asyncio.ensure_future(process.wait()))


def kill_process(process: Process) -> None:
    """Kill a process if it still runs."""
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            process.kill()
