"""Context sizes of OpenRouter's models. LiteLLM's table has none of them."""

from __future__ import annotations

from typing import Final

SIZES: Final = {
    "amazon/nova-": 128_000,
    "anthropic/claude-": 200_000,
    "cohere/command-": 128_000,
    "cohere/command-a": 256_000,
    "deepseek/deepseek-": 128_000,
    "google/gemini-": 1_000_000,
    "google/gemini-2.5-flash-image": 32_768,
    "google/gemini-3-pro-image": 65_536,
    "google/gemma-3-": 131_072,
    "meta-llama/llama-3.": 131_072,
    "meta-llama/llama-4-": 131_072,
    "minimax/minimax-m": 196_608,
    "mistralai/ministral-": 128_000,
    "mistralai/mistral-large": 128_000,
    "mistralai/mistral-medium": 131_072,
    "mistralai/mistral-nemo": 131_072,
    "mistralai/mistral-small": 32_768,
    "mistralai/mistral-small-3.": 128_000,
    "mistralai/mixtral-": 32_768,
    "moonshotai/kimi-k2": 131_072,
    "moonshotai/kimi-k2.": 262_144,
    "openai/gpt-4": 8_191,
    "openai/gpt-4-turbo": 128_000,
    "openai/gpt-4.1": 1_047_576,
    "openai/gpt-4o": 128_000,
    "openai/gpt-5": 400_000,
    "openai/gpt-5-chat": 128_000,
    "openai/gpt-5.1-chat": 128_000,
    "openai/gpt-5.2-chat": 128_000,
    "openai/gpt-5.3-chat": 128_000,
    "openai/gpt-oss-": 131_072,
    "openai/o1": 128_000,
    "openai/o3": 200_000,
    "openai/o4": 200_000,
    "perplexity/sonar": 127_000,
    "qwen/qwen-2.5-": 32_768,
    "qwen/qwen-max": 32_768,
    "qwen/qwen-plus": 131_072,
    "qwen/qwen3-": 40_960,
    "qwen/qwen3-coder": 128_000,
    "qwen/qwen3-max": 256_000,
    "x-ai/grok-3": 131_072,
    "x-ai/grok-4": 256_000,
    "x-ai/grok-code-": 256_000,
    "z-ai/glm-4.5": 65_536,
    "z-ai/glm-4.6": 200_000,
    "z-ai/glm-4.6v": 131_072,
    "z-ai/glm-4.7": 200_000,
    "z-ai/glm-5": 200_000,
}
"""Tokens by the beginning of a name, from OpenRouter's public list of models. Where the models of a
family differ it is the smallest: too small compacts early, too big is refused."""


def openrouter_tokens(name: str) -> int:
    """Return the context size of a model, by its name with or without `openrouter/`; 0 if unknown.
    The longest beginning that fits counts."""
    plain = name.lower().removeprefix("openrouter/")
    best = max((start for start in SIZES if plain.startswith(start)), key=len, default="")
    return SIZES.get(best, 0)
