"""Providers that LiteLLM reaches in ways of their own."""

from __future__ import annotations

from typing import Final

SDK_ONLY: Final = frozenset(
    {
        "abliteration",
        "aihubmix",
        "aiml",
        "anyscale",
        "chatgpt",
        "crusoe",
        "docker_model_runner",
        "empiriolabs",
        "github_copilot",
        "gmi",
        "litellm_proxy",
        "llamagate",
        "sarvam",
        "veniceai",
        "xinference",
    }
)
"""Providers that LiteLLM reaches through the openai SDK only, or differently than through its own
HTTP handler. All other providers of OpenAI's protocol get the same requests from both."""
PREPARED_AT_ONCE: Final = frozenset(
    {
        "deepseek",
        "groq",
        "hosted_vllm",
        "lm_studio",
        "mistral",
        "moonshot",
        "openai",
        "openrouter",
        "together_ai",
        "xai",
    }
)
"""Providers for which LiteLLM prepares a request without waiting. `acompletion` uses a thread for
that, because other providers look up a token or a model first; that is a quarter of such a call."""
