"""A job that does nothing: `shoal doctor --probe` uses it to see whether workers run jobs."""

from __future__ import annotations

from typing import Any


async def probe(ctx: dict[str, Any], text: str = "") -> str:
    """Return `text`."""
    return text
