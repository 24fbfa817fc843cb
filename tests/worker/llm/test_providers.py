"""Name, key and address lead to a provider, and to the way to it."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import SettingsError
from shared.settings import ModelSettings, Secret
from worker.llm.providers import PROVIDERS
from worker.llm.routes import choose, detect


def settings(name: str, key: str = "", base: str | None = None, client: Any = "auto") -> ModelSettings:
    return ModelSettings(name=name, api_key=Secret(key) if key else None, api_base=base, client=client)


OWN = "http://10.0.0.1:9000/v1"


@pytest.mark.parametrize(
    ("name", "key", "base", "provider"),
    [
        ("groq/x", "", None, "groq"),
        ("groq/x", "xai-k", None, "groq"),  # the name goes before the key
        ("x", "gsk_k", None, "groq"),
        ("x", "gsk_k", OWN, "custom"),  # an address goes before the key
        ("x", "xai-k", "https://api.groq.com/openai/v1", "groq"),
        ("openai/x", "", "https://api.groq.com/openai/v1", "openai"),  # and the name before the address
        ("openrouter/openai/x", "", None, "openrouter"),
        ("openai/x", "sk-or-k", None, "openrouter"),  # a gateway's key is never shown to a vendor
        ("anthropic/x", "sk-or-k", None, "openrouter"),
        ("google/x", "", "https://openrouter.ai/api/v1", "openrouter"),
        ("ollama/x", "sk-or-k", None, "ollama"),  # what runs here is no vendor
        ("x", "", "http://127.0.0.1:11434", "ollama"),
        ("anthropic/x", "sk-ant-k", None, "anthropic"),
        ("x", "", OWN, "custom"),
        ("qwen/x", "", OWN, None),
        ("gpt-4o", "sk-k", None, "openai"),
        ("gpt-4o", "", OWN, "custom"),  # an address says who serves it, whatever the name is
        ("gpt-4o", "gsk_k", None, "groq"),
        ("deepseek-chat", "sk-or-k", None, "openrouter"),
        ("gemini/x", "k", None, None),
    ],
)
def test_name_then_key_then_address_tell_the_provider(
    name: str, key: str, base: str | None, provider: str | None
) -> None:
    """In this order; a gateway goes before the vendors whose models it serves."""
    spec = detect(settings(name, key, base))
    assert (spec and spec.name) == provider


@pytest.mark.parametrize(
    ("name", "key", "base", "model", "api_base"),
    [
        ("openai/gpt-4o", "sk-k", None, "gpt-4o", "https://api.openai.com/v1"),
        ("openai/my/model", "", OWN + "/", "my/model", OWN),
        ("my-model", "", OWN, "my-model", OWN),
        ("custom/my/model", "", OWN, "my/model", OWN),
        ("hosted_vllm/a/b", "", OWN, "a/b", OWN),
        ("vllm/b", "", None, "b", "http://127.0.0.1:8000/v1"),
        ("ollama/llama3.2", "", None, "llama3.2", "http://127.0.0.1:11434/v1"),
        ("ollama_chat/llama3.2", "", "http://box:11434/", "llama3.2", "http://box:11434/v1"),
        ("ollama/llama3.2", "", "http://box/api/v1", "llama3.2", "http://box/api/v1"),
        ("openrouter/anthropic/claude", "sk-or-k", None, "anthropic/claude", "https://openrouter.ai/api/v1"),
        ("openrouter/auto", "sk-or-k", None, "openrouter/auto", "https://openrouter.ai/api/v1"),
        ("anthropic/claude", "sk-or-k", None, "anthropic/claude", "https://openrouter.ai/api/v1"),
        ("openai/openai/gpt-4o", "", "https://openrouter.ai/api/v1", "openai/gpt-4o", "https://openrouter.ai/api/v1"),
        ("aihubmix/anthropic/claude", "k", None, "claude", "https://aihubmix.com/v1"),
        ("deepseek/deepseek-chat", "k", None, "deepseek-chat", "https://api.deepseek.com/v1"),
    ],
)
def test_what_speaks_openais_protocol_is_reached_directly(
    name: str, key: str, base: str | None, model: str, api_base: str
) -> None:
    """Under the name that the provider itself gave the model."""
    route = choose(settings(name, key, base))
    assert (route.client, route.model, route.api_base) == ("direct", model, api_base)


@pytest.mark.parametrize(
    ("name", "key", "base", "model"),
    [
        ("anthropic/claude", "sk-ant-k", None, "anthropic/claude"),
        ("claude", "sk-ant-k", None, "anthropic/claude"),
        ("gemini/x", "k", None, "gemini/x"),
        ("llama-x", "sk-k", None, "llama-x"),
        ("anthropic/claude", "k", OWN, "anthropic/claude"),
        ("openai/gpt-4o", "", None, "openai/gpt-4o"),  # no key: LiteLLM looks into the environment
    ],
)
def test_the_others_are_litellms(name: str, key: str, base: str | None, model: str) -> None:
    """Another protocol, an unknown name, or a key that only the environment has."""
    route = choose(settings(name, key, base))
    assert (route.client, route.model, route.api_base) == ("litellm", model, base)


@pytest.mark.parametrize(
    ("name", "key", "model"),
    [
        ("openai/x", "k", "openai/x"),
        ("anthropic/claude", "sk-or-k", "openrouter/anthropic/claude"),
        ("openrouter/anthropic/claude", "sk-or-k", "openrouter/anthropic/claude"),
        ("vllm/a/b", "", "hosted_vllm/a/b"),
        ("ollama_chat/x", "", "ollama_chat/x"),
        ("custom/x", "", "openai/x"),
        ("aihubmix/anthropic/claude", "k", "openai/claude"),
        ("together/a/b", "k", "together_ai/a/b"),
    ],
)
def test_litellm_gets_its_prefix_once(name: str, key: str, model: str) -> None:
    """It finds the provider by it, and a doubled one finds nothing."""
    assert choose(settings(name, key, client="litellm")).model == model


def test_direct_can_be_forced_where_an_address_is_set() -> None:
    """Many servers speak the protocol under names that say nothing; the name is then sent whole."""
    for name in ("Qwen/Qwen3-32B", "anthropic/claude"):
        route = choose(settings(name, base=OWN, client="direct"))
        assert (route.client, route.model, route.api_base) == ("direct", name, OWN)
    assert choose(settings("openai/x", client="direct")).client == "direct"


@pytest.mark.parametrize("name", ["anthropic/claude", "gemini/x", "claude-x", "llama-x"])
def test_direct_cannot_be_forced_where_nothing_speaks_the_protocol(name: str) -> None:
    """The start ends with a line that says what to set."""
    with pytest.raises(SettingsError, match=r"model\.client is 'direct'.*set model\.api_base"):
        choose(settings(name, "k", client="direct"))


@pytest.mark.parametrize(
    ("name", "key", "sent"),
    [
        ("moonshot/kimi-k2.5", "k", {"temperature": 1.0, "max_tokens": 5}),
        ("openrouter/moonshotai/kimi-k2.5", "k", {"temperature": 1.0, "max_tokens": 5}),
        ("moonshot/kimi-k2", "k", {"temperature": 0.7, "max_tokens": 5}),
        ("openai/o3-mini", "k", {"max_completion_tokens": 5}),
        ("openai/gpt-5", "k", {"max_completion_tokens": 5}),
        ("openai/gpt-5-chat-latest", "k", {"temperature": 0.7, "max_tokens": 5}),
        ("openai/gpt-4o", "k", {"temperature": 0.7, "max_tokens": 5}),
    ],
)
def test_some_models_want_their_own_parameters(name: str, key: str, sent: dict[str, Any]) -> None:
    """Kimi K2.5 knows one temperature; OpenAI's reasoning models refuse theirs, and call max_tokens otherwise."""
    route = choose(settings(name, key))
    assert route.apply_overrides({"temperature": 0.7, route.max_tokens_key: 5}) == sent
    given = route.apply_overrides({"top_p": 0.9, "seed": 7})
    assert ("top_p" in given, given["seed"]) == (route.max_tokens_key == "max_tokens", 7)


def test_no_two_providers_share_a_name_or_the_beginning_of_a_key() -> None:
    """What leads to a provider leads to one."""
    names = [name for spec in PROVIDERS for name in spec.names]
    prefixes = [spec.key_prefix for spec in PROVIDERS if spec.key_prefix]
    assert len(set(names)) == len(names)
    assert [a for a in prefixes for b in prefixes if a != b and a.startswith(b)] == []
