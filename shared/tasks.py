"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

AGAIN_S: Final = 0.2


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they are done; what they raise is dropped.

    Once is not always enough: before Python 3.12 a cancellation that meets the end of an awaited
    call or of a timeout can be swallowed on the way up, and the task goes on.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
