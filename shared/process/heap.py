"""What the garbage collector looks at."""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 10_000
"""How many new objects start a collection, of those that came since: a turn makes some hundreds,
and few in circles."""


def freeze_heap() -> None:
    """What is loaded now stays: it is not looked through again and again. To be called when a
    process is ready."""
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 50)
