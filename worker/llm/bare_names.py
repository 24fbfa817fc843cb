"""The provider of a model that is named without one: `deepseek-chat` is
`deepseek/deepseek-chat`."""

from __future__ import annotations

from typing import Final

from shared.settings import ModelSettings
from worker.llm.providers import PROVIDERS

BEGINNINGS: Final = {
    "ai21": ("jamba-",),
    "anthropic": ("claude-",),
    "cohere": ("command-", "c4ai-"),
    "dashscope": ("qwen", "qwq-", "qvq-"),
    "deepseek": ("deepseek-",),
    "gemini": ("gemini-",),
    "minimax": ("minimax-",),
    "mistral": (
        *("mistral-", "magistral-", "ministral-", "codestral-", "devstral-", "pixtral-", "voxtral-"),
        *("open-mistral-", "open-mixtral-"),
    ),
    "moonshot": ("kimi-", "moonshot-"),
    "openai": ("gpt-", "chatgpt-", "o1", "o3", "o4-"),
    "perplexity": ("sonar",),
    "volcengine": ("doubao-",),
    "xai": ("grok-",),
    "zai": ("glm-",),
}
"""How the names of a provider's own models begin, in small letters."""

_OPEN: Final = ("gpt-oss",)  # served by many, and not by the one that made them


def with_provider(settings: ModelSettings) -> str:
    """Return the model's name with its provider before it. It stays as it is where something else
    says who serves it: a `/`, an address, a key of a known form, or the `:` of a local model's tag
    (`qwen3:8b`)."""
    name = settings.name
    key = settings.api_key.reveal() if settings.api_key is not None else ""
    keyed = any(spec.key_prefix and key.startswith(spec.key_prefix) for spec in PROVIDERS)
    if keyed or settings.api_base is not None or "/" in name or ":" in name:
        return name
    plain = name.lower()
    if plain.startswith(_OPEN):
        return name
    fitting = (provider for provider, starts in BEGINNINGS.items() if plain.startswith(starts))
    provider = next(fitting, "")
    return f"{provider}/{name}" if provider else name
