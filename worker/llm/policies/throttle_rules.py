"""The fleet's limits with a provider: whose they are, what they allow, and the refusal."""

from __future__ import annotations

import hashlib
import random
from typing import Final

from shared.errors import ModelClosed
from shared.settings import ModelSettings
from shared.store.fleet.provider_limits import CallHeld, LimitRules
from worker.llm.routes import Route

_WHY: Final = {
    "rate_limit": "its provider asked for a pause",
    "overloaded": "its provider failed several times in a row",
    "requests_per_minute": "model.requests_per_minute is reached",
}
_RNG: Final = random.Random()


def provider_route(settings: ModelSettings, route: Route) -> str:
    """Return the key of a rate limit: a provider, and a short hash of its address and API key."""
    key = settings.api_key.reveal() if settings.api_key is not None else ""
    digest = hashlib.blake2s(f"{route.api_base or ''}\n{key}".encode(), digest_size=6).hexdigest()
    return f"{route.provider}:{digest}"


def closed_error(name: str, held: CallHeld) -> ModelClosed:
    """Return the error for a call that the fleet holds back longer than its turn can wait."""
    # Jitter, so that all turns that were held back do not return at the same moment.
    wait_s = held.wait_s + _RNG.uniform(0.0, 1.0 + held.wait_s / 4)
    kind = "overloaded" if held.reason == "overloaded" else "rate_limit"
    text = f"the model {name!r} was not asked: {_WHY[held.reason]}"
    return ModelClosed(kind, f"{text}; it may be in {held.wait_s:.1f} s", retry_after_s=wait_s)


def limit_rules(settings: ModelSettings) -> LimitRules:
    """Return the limits of the settings."""
    return LimitRules(
        breaker_after=settings.breaker_after,
        breaker_s=settings.breaker_s,
        hang_s=settings.total_s,
        per_minute=settings.requests_per_minute,
    )
