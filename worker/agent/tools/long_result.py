"""Long results of tools: the whole goes to the files of the turn, the beginning to the model."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from shared.errors import LeaseLost, ToolFailed, TurnEnded
from worker.agent.tools.text import SMALLER, cut
from worker.agent.tools.tool import Report, ToolContext

KEEP_LIMIT_S: Final = 10.0  # for storing a long result whole; then only its beginning is kept


async def fit_result(text: str, context: ToolContext, limit_bytes: int, report: Report) -> str:
    """Return the text, or the beginning of one over the limit with the path of the whole. Raises
    LeaseLost and TurnEnded; other faults of the files are reported."""
    if len(text.encode()) <= limit_bytes:
        return text
    call_id = re.sub(r"[^A-Za-z0-9_-]", "_", context.call_id)[:64]
    path, rest = f"results/{context.turn}-{call_id}.txt", SMALLER
    try:
        async with asyncio.timeout(KEEP_LIMIT_S):
            await context.files.replace(path, text, was=None)
        rest = f"the whole is in the file {path!r}"
    except (LeaseLost, TurnEnded):
        raise
    except Exception as exc:
        if not isinstance(exc, ToolFailed):
            report(f"keeping {path}", exc)
    return cut(text, limit_bytes, rest=rest)
