"""The models of the settings as an operator sees them: by which way they are reached, and whether a
key is there. A key itself is in no card."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

from shared.errors import SettingsError
from shared.settings import ModelSettings
from worker.llm.policies.throttle import provider_route
from worker.llm.registry import DEMO, all_fallbacks, preset_settings
from worker.llm.routes import choose, detect

Role = Literal["usual", "preset", "fallback"]


def model_cards(settings: ModelSettings) -> list[dict[str, Any]]:
    """Return a card for the usual model, for each preset, and for each fallback, in this order, as
    plain values: a job returns them."""
    cards = [_card("usual", "", settings)]
    cards += [_card("preset", name, preset_settings(settings, one)) for name, one in settings.presets.items()]
    return cards + [_card("fallback", "", one) for one in all_fallbacks(settings)]


def _card(role: Role, preset: str, settings: ModelSettings) -> dict[str, Any]:
    card: dict[str, Any] = {
        "role": role,
        "preset": preset,
        "model": settings.name,
        "provider": DEMO,
        "client": "",
        "host": "",
        "route": "",
        "key": settings.api_key is not None and settings.name != DEMO,
        "needs_key": False,
        "problem": "",
    }
    if settings.name == DEMO:
        return card
    spec = detect(settings)
    card |= {"provider": "", "needs_key": spec is None or spec.needs_key}
    try:
        route = choose(settings)
    except SettingsError as exc:
        return card | {"problem": str(exc)}
    return card | {
        "provider": route.provider,
        "client": route.client,
        # Only the host: an address may hold a password.
        "host": urlsplit(route.api_base or "").hostname or "",
        "route": provider_route(settings, route),
    }
