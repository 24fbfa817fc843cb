"""A model's name without a provider leads to the one that made it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from shared.settings import ModelSettings, Secret
from worker.llm.bare_names import BEGINNINGS, with_provider
from worker.llm.catalogue import TABLE
from worker.llm.registry import fallback_settings
from worker.llm.routes import choose

NAMES = {
    "ai21": "jamba-large-1.7 jamba-mini-1.6",
    "anthropic": "claude-sonnet-4-5 claude-opus-4-1-20250805 claude-3-5-haiku-latest Claude-Sonnet-5",
    "cohere": "command-a-03-2025 command-r-plus-08-2024 command-r7b-12-2024 c4ai-aya-expanse-32b",
    "dashscope": "qwen-max qwen-plus-latest qwen-turbo qwen3-max qwen3-coder-plus qwen3.5-plus qwq-plus qvq-max",
    "deepseek": "deepseek-chat deepseek-reasoner deepseek-v4-pro",
    "gemini": "gemini-2.5-pro gemini-2.5-flash gemini-3-pro-preview gemini-flash-latest",
    "minimax": "MiniMax-M2 MiniMax-M2.5-lightning minimax-m2",
    "mistral": "mistral-large-latest mistral-small-2603 codestral-latest devstral-latest magistral-small-latest "
    "ministral-8b-latest pixtral-large-latest open-mistral-nemo voxtral-small-latest",
    "moonshot": "kimi-k2.5 kimi-k2-thinking kimi-latest moonshot-v1-128k",
    "openai": "gpt-4o gpt-4.1-mini gpt-5 gpt-5-chat-latest chatgpt-4o-latest o1 o3-mini o4-mini",
    "perplexity": "sonar sonar-pro sonar-reasoning-pro",
    "volcengine": "doubao-seed-1-6",
    "xai": "grok-4 grok-code-fast-1 grok-3-mini",
    "zai": "glm-4.5 glm-4.6 glm-4.5-air glm-5",
}


@pytest.mark.parametrize(("provider", "names"), NAMES.items())
def test_a_bare_name_gets_its_provider(provider: str, names: str) -> None:
    """Once: a name that has a prefix keeps it. The route begins with it, or goes there directly."""
    for name in names.split():
        full = f"{provider}/{name}"
        assert with_provider(ModelSettings(name=name, api_key=Secret("k"))) == full
        assert with_provider(ModelSettings(name=full)) == full
        route = choose(ModelSettings(name=name, api_key=Secret("k")))
        assert (route.provider, route.model) == (provider, name if route.client == "direct" else full)


@pytest.mark.parametrize(
    "settings",
    [
        ModelSettings(),  # the demo
        ModelSettings(name="deepseek-chat", api_base="http://10.0.0.1/v1"),
        ModelSettings(name="gpt-4o", api_key=Secret("sk-or-k")),
        ModelSettings(name="qwen-2.5-32b", api_key=Secret("gsk_k")),
        ModelSettings(name="qwen3:8b"),  # a tag of a local server
        ModelSettings(name="ft:gpt-4o:us"),
        ModelSettings(name="gpt-oss-120b"),  # many serve it, its maker does not
        ModelSettings(name="llama-3.3-70b-versatile"),
        ModelSettings(name="groq/qwen3"),
    ],
)
def test_what_says_itself_who_serves_it_keeps_its_name(settings: ModelSettings) -> None:
    """An address, a key of a known form, a prefix; and names that say nothing."""
    assert with_provider(settings) == settings.name


def test_the_table_that_is_installed_agrees() -> None:
    """A chat model that it lists under one of these providers and none of the others leads there."""
    spec = find_spec("litellm")
    assert spec is not None
    assert spec.submodule_search_locations
    entries = msgspec.json.decode(Path(spec.submodule_search_locations[0], TABLE).read_bytes())
    checked = 0
    for name in entries:
        provider, _, bare = name.partition("/")
        starts = BEGINNINGS.get(provider, ())
        if bare.lower().startswith(starts) and not {"/", ":"} & set(bare) and not bare.startswith("gpt-oss"):
            others = {other for other, some in BEGINNINGS.items() if bare.lower().startswith(some)}
            assert others == {provider}, name
            assert with_provider(ModelSettings(name=bare)) == name
            checked += 1
    assert checked > 100


def test_a_bare_fallback_never_gets_the_key_of_another_vendor() -> None:
    """`gpt-4o` behind `deepseek-chat` is reached as if both had their prefixes."""
    keys = {"openai": Secret("sk-openai")}
    main = ModelSettings(name="deepseek-chat", api_key=Secret("sk-deep"), fallback_keys=keys)
    reached = {name: fallback_settings(main, name) for name in ("gpt-4o", "kimi-k2.5", "deepseek-reasoner", "other")}
    revealed = {name: one.api_key and one.api_key.reveal() for name, one in reached.items()}
    assert revealed == {"gpt-4o": "sk-openai", "kimi-k2.5": None, "deepseek-reasoner": "sk-deep", "other": "sk-deep"}
    gateway = ModelSettings(name="aihubmix/openai/gpt-5", api_key=Secret("hub"))
    assert fallback_settings(gateway, "gpt-4o").api_key is None
    endpoint = ModelSettings(name="mine", api_base="http://10.0.0.1/v1", api_key=Secret("own"))
    assert fallback_settings(endpoint, "gpt-4o").api_base == endpoint.api_base
