"""The models as the owner of an installation sees them: the way, the key's presence, and never the key."""

from __future__ import annotations

import json

from shared.settings import ModelSettings, PresetSettings, Secret
from worker.llm.cards import model_cards
from worker.llm.policies.throttle import provider_route
from worker.llm.question import try_preset
from worker.llm.routes import choose

KEY = "sk-a-key-that-nobody-may-read"
SETTINGS = ModelSettings(
    name="openai/gpt-5-mini",
    api_key=Secret(KEY),
    fallbacks=("ollama/llama3.2",),
    presets={
        "same": PresetSettings(name="openai/gpt-5-nano"),
        "other": PresetSettings(name="anthropic/claude-sonnet-4-5"),
        "here": PresetSettings(name="m", api_base="http://user:a-password@127.0.0.1:9/v1"),
        "wrong": PresetSettings(name="m", client="direct"),
        "demo": PresetSettings(name="demo"),
    },
)


def test_each_model_has_a_card_without_its_key() -> None:
    """A key of one provider is none of another's: a preset at another one has none until it is given one."""
    cards = model_cards(SETTINGS)
    assert [(one["role"], one["preset"]) for one in cards] == [
        ("usual", ""), *(("preset", name) for name in SETTINGS.presets), ("fallback", ""),
    ]  # fmt: skip
    keyed = {one["preset"] or one["role"]: (one["provider"], one["key"], one["needs_key"]) for one in cards}
    assert keyed["usual"] == keyed["same"] == ("openai", True, True)
    assert keyed["other"] == ("anthropic", False, True)
    assert keyed["here"][1] is False
    assert keyed["fallback"] == ("ollama", False, False)
    assert keyed["demo"] == ("demo", False, False)
    text = json.dumps(cards)
    assert KEY not in text
    assert "a-password" not in text


def test_a_card_has_the_route_of_the_fleets_record() -> None:
    """So the state of the breaker belongs to this model."""
    assert model_cards(SETTINGS)[0]["route"] == provider_route(SETTINGS, choose(SETTINGS))


def test_what_is_wrong_with_a_model_is_on_its_card() -> None:
    """And the others have theirs nevertheless."""
    wrong = next(one for one in model_cards(SETTINGS) if one["preset"] == "wrong")
    assert "api_base" in wrong["problem"] or wrong["client"] == "direct"


async def test_a_preset_that_the_worker_does_not_know_is_named() -> None:
    """Its settings may be older than those of the gateway."""
    answered, text = await try_preset(SETTINGS, "newer")
    assert (answered, "no preset 'newer'" in text) == (False, True)
    assert await try_preset(ModelSettings(), "") == (True, "the demo is built in, and asks nobody")
