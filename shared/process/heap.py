"""Settings of the garbage collector."""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 10_000
"""New objects that start a collection. A turn creates some hundreds, few of them in cycles."""


def freeze_heap() -> None:
    """Move everything allocated so far out of the garbage collector's reach (`gc.freeze`). Call
    once start-up is complete."""
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 50)
