"""What people read while a model cannot answer: why, and until when."""

from __future__ import annotations

import math
from typing import Final

WHY: Final = {
    "overloaded": "the model is overloaded",
    "rate_limit": "the model's provider asked for a pause",
    "timeout": "the model does not answer",
    "connection": "the model cannot be reached",
    "bad_reply": "the model's answer could not be read",
}
"""By the kind of a fault; another kind counts as the first."""


def why_waiting(kind: str, wait_s: float, *, alone: bool = False) -> str:
    """Return why a turn waits, and until when: `the model is overloaded; trying again in 12 s`.
    `alone`: the provider serves others, so the model as such is not to blame."""
    why = WHY.get(kind, WHY["overloaded"])
    if alone and kind == "overloaded":
        why = "the model failed at this message"
    return f"{why}; trying again in {max(1, math.ceil(wait_s))} s"
