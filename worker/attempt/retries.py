"""How often, and after which waits, the work of a lease is tried again before it is given up."""

from __future__ import annotations

import random
from typing import Final

from shared.errors import ModelError
from shared.settings import AgentSettings

CRASH_LIMIT: Final = 8
"""So many deaths of workers under it end it, whatever a quarantine says."""

NEWER_RELEASE_WAIT_S: Final = 5.0
"""How long what a newer release began is left to that release's workers."""

ERROR_WAITS_S: Final = (1.0, 5.0)
"""Ceilings of the waits between tries after an error; there is one try more than waits."""

MODEL_WAITS_S: Final = (2.0, 4.0, 8.0, 15.0, 30.0)
MODEL_WAIT_CAP_S: Final = 60.0


def unavailable_wait(
    error: ModelError, attempt: int, away_s: float, settings: AgentSettings, rng: random.Random
) -> float | None:
    """Seconds until a model that has been away for `away_s` is asked again; None when it was away
    for too long."""
    if away_s > settings.give_up_s:
        return None
    ceiling = MODEL_WAITS_S[min(attempt, len(MODEL_WAITS_S)) - 1]
    wanted_s = max(error.retry_after_s or 0.0, rng.uniform(ceiling / 2, ceiling))
    return min(wanted_s, MODEL_WAIT_CAP_S, max(1.0, settings.give_up_s - away_s))


def error_wait(errors: int, rng: random.Random) -> float | None:
    """Seconds until the next try after an error that had `errors` before it; None when they were
    enough."""
    return rng.uniform(0, ERROR_WAITS_S[errors]) if errors < len(ERROR_WAITS_S) else None
