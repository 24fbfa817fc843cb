"""The table of model providers. Most of them speak OpenAI's protocol and are reached by the direct
client; LiteLLM reaches the others. A new provider is an entry of PROVIDERS."""

from __future__ import annotations

from typing import Final

from worker.llm.provider_spec import Override, Prefix, ProviderSpec

_KIMI: Final = Override(starts=("kimi-k2.5",), parameters={"temperature": 1.0})
# OpenAI's reasoning models have their own word for max_tokens, and one way of sampling only.
_THINKERS: Final = Override(
    starts=("o1", "o3", "o4", "gpt-5"),
    parameters={"temperature": None, "top_p": None},
    max_tokens_key="max_completion_tokens",
)
_GPT_CHAT: Final = Override(starts=("gpt-5-chat",))

# Providers that go on with a reply which is the last message; where each says so.
# https://docs.claude.com/en/docs/build-with-claude/prompt-engineering/prefill-claudes-response
_LAST_MESSAGE: Final = Prefix()
# https://api-docs.deepseek.com/guides/chat_prefix_completion
_DEEPSEEK: Final = Prefix(message={"prefix": True}, api_base="https://api.deepseek.com/beta")
# https://docs.mistral.ai/capabilities/completion/prefix/
_MISTRAL: Final = Prefix(message={"prefix": True})
# https://platform.moonshot.ai/docs/guide/use-partial-mode-feature-of-kimi-api
_PARTIAL: Final = Prefix(message={"partial": True})
# https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html#chat-api
_VLLM: Final = Prefix(body={"continue_final_message": True, "add_generation_prompt": False})

PROVIDERS: Final = (
    ProviderSpec(
        ("openrouter",),
        "https://openrouter.ai/api/v1",
        key_prefix="sk-or-",
        base_keyword="openrouter",
        gateway=True,
        supports_prompt_caching=True,
        overrides=(_KIMI,),
    ),
    ProviderSpec(
        ("aihubmix",),
        "https://aihubmix.com/v1",
        base_keyword="aihubmix",
        gateway=True,
        strip_model_prefix=True,
        route_prefix="openai",
    ),
    ProviderSpec(("together_ai", "together"), "https://api.together.xyz/v1", base_keyword="together", gateway=True),
    ProviderSpec(
        ("openai",),
        "https://api.openai.com/v1",
        base_keyword="api.openai.com",
        overrides=(_GPT_CHAT, _THINKERS),
    ),
    ProviderSpec(("groq",), "https://api.groq.com/openai/v1", key_prefix="gsk_", base_keyword="api.groq.com"),
    ProviderSpec(("deepseek",), "https://api.deepseek.com/v1", base_keyword="api.deepseek.com", prefix=_DEEPSEEK),
    ProviderSpec(  # its last chunk always counts the tokens, and it refuses fields it does not know
        ("mistral",), "https://api.mistral.ai/v1", base_keyword="api.mistral.ai", stream_usage=False, prefix=_MISTRAL
    ),
    ProviderSpec(
        ("moonshot",), "https://api.moonshot.ai/v1", base_keyword="moonshot", overrides=(_KIMI,), prefix=_PARTIAL
    ),
    ProviderSpec(("xai",), "https://api.x.ai/v1", key_prefix="xai-", base_keyword="api.x.ai"),
    ProviderSpec(
        ("ollama", "ollama_chat"),
        "http://127.0.0.1:11434",
        base_path="/v1",
        base_keyword=":11434",
        needs_key=False,
        skip_prefixes=("ollama_chat/",),
        prefix=_LAST_MESSAGE,
    ),
    ProviderSpec(("lm_studio",), "http://127.0.0.1:1234/v1", base_keyword=":1234", needs_key=False),
    ProviderSpec(("hosted_vllm", "vllm"), "http://127.0.0.1:8000/v1", needs_key=False, prefix=_VLLM),
    ProviderSpec(("custom", "custom_openai"), needs_key=False, route_prefix="openai"),
    ProviderSpec(
        ("anthropic",),
        speaks_openai=False,
        key_prefix="sk-ant-",
        base_keyword="api.anthropic.com",
        supports_prompt_caching=True,
        prefix=_LAST_MESSAGE,
    ),
)
