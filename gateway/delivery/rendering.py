"""Where replies are rendered: short texts at once, long ones beside the event loop, which they
would hold up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

LONG_CHARS: Final = 4096
"""A text of so many characters takes some ms to render, and a worse one of the same length far
more."""

T = TypeVar("T")


async def render_off_loop(text: str, work: Callable[[], T]) -> T:
    """The result of `work`, which renders `text`. It is pure, and may run in another thread."""
    return work() if len(text) < LONG_CHARS else await asyncio.to_thread(work)
