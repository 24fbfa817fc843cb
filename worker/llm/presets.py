"""The settings of fallbacks and presets, made from those of the default model."""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec.structs import replace

from shared.errors import SettingsError
from shared.settings import ModelSettings, PresetSettings
from worker.llm.routes import choose, detect

DEMO: Final = "demo"


def preset_settings(settings: ModelSettings, preset: PresetSettings) -> ModelSettings:
    """Return the settings of a preset's model: those of a fallback, overridden by the preset. At an
    address of its own it has its own key or none: `model.api_key` belongs to `model.api_base`."""
    made = fallback_settings(settings, preset.name)
    if preset.api_base == settings.api_base and preset.api_base is not None:
        made = replace(settings, name=preset.name, fallbacks=())
    elif preset.api_base is not None:
        client = _elsewhere(settings)
        made = replace(made, api_base=preset.api_base, api_key=None, client=client, headers={})
    return replace(
        made,
        api_key=preset.api_key or made.api_key,
        client=preset.client or made.client,
        max_tokens=preset.max_tokens or settings.max_tokens,
        temperature=settings.temperature if preset.temperature is None else preset.temperature,
    )


def fallback_settings(settings: ModelSettings, name: str) -> ModelSettings:
    """Return the settings of a fallback: the same endpoint and key, unless its name begins with
    another provider. That provider's key is in `model.fallback_keys`. Without one the provider
    needs none, or LiteLLM finds it; at a gateway it is a model of the gateway."""
    first = name.partition("/")[0] if "/" in name else ""
    key = settings.fallback_keys.get(first)
    spec = detect(settings)
    other = detect(ModelSettings(name=name))
    same = first in ("", settings.name.partition("/")[0]) or (spec is not None and spec is other)
    vendor = other is None or (other.needs_key and not other.gateway)
    here = replace(settings, name=name, fallbacks=())
    if key is None and (same or (spec is not None and spec.gateway and vendor)):
        return here
    return replace(here, client=_elsewhere(settings), api_base=None, api_key=key, headers={})


def all_fallbacks(settings: ModelSettings) -> list[ModelSettings]:
    """Return the settings of each fallback, in order."""
    return [fallback_settings(settings, name) for name in settings.fallbacks]


def _elsewhere(settings: ModelSettings) -> Any:
    # A direct client for this endpoint implies nothing about the other one.
    return "litellm" if settings.client == "litellm" else "auto"


def checked_preset(settings: ModelSettings, name: str) -> ModelSettings:
    """Return the settings of a preset. Raises SettingsError if it cannot be reached."""
    made = preset_settings(settings, settings.presets[name])
    if made.name != DEMO:
        try:
            choose(made)
        except SettingsError as exc:
            text = re.sub(r"\bmodel\.(?=api_|client)", f"model.presets.{name}.", str(exc))
            raise SettingsError(text) from None
    return made
