"""A job that does nothing but come back: `shoal doctor --probe` asks it whether workers take
jobs."""

from __future__ import annotations

from typing import Any


async def probe(ctx: dict[str, Any], text: str = "") -> str:
    """Return what was said."""
    return text
