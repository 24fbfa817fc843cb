"""Model providers: recognised by a name, a key or an address, and the route to each. A model's name
is LiteLLM's (`groq/llama-3.3-70b`). Most providers speak OpenAI's protocol and are reached by the
direct client; LiteLLM reaches the others. A new provider is an entry of PROVIDERS."""

from __future__ import annotations

from typing import Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from shared.errors import SettingsError
from shared.settings import ModelSettings

Client = Literal["direct", "litellm"]


class Override(Struct, frozen=True, kw_only=True):
    """Parameters for models whose names start with one of `starts`; None removes one."""

    starts: tuple[str, ...]
    parameters: dict[str, Any] = {}
    max_tokens_key: str = "max_tokens"

    def fits(self, model: str) -> bool:
        return model.rpartition("/")[2].lower().startswith(self.starts)


class ProviderSpec(Struct, frozen=True):
    """One provider. `names` may stand before the first `/` of a model's name; the first is its own.

    A provider is recognised by such a name, by the prefix of its keys, or by a word in the host of
    `model.api_base`. A `gateway` serves models of others under names such as `anthropic/claude-x`;
    with `strip_model_prefix` it knows them without that part. With `api_base` None, only
    `model.api_base` has its address. `base_path` completes an address without a path. LiteLLM gets
    `route_prefix` before the name, unless the name begins with one of `skip_prefixes`.
    """

    names: tuple[str, ...]
    api_base: str | None = None
    speaks_openai: bool = True
    base_path: str = ""
    key_prefix: str = ""
    base_keyword: str = ""
    needs_key: bool = True
    gateway: bool = False
    strip_model_prefix: bool = False
    route_prefix: str = ""
    skip_prefixes: tuple[str, ...] = ()
    stream_usage: bool = True
    supports_prompt_caching: bool = False
    overrides: tuple[Override, ...] = ()

    @property
    def name(self) -> str:
        return self.names[0]

    def model_of(self, name: str) -> str:
        """Return the name by which the provider itself knows the model."""
        if self.strip_model_prefix:
            return name.rpartition("/")[2]
        first, _, rest = name.partition("/")
        if not self.gateway:
            return rest if first in self.names else name
        # LiteLLM's `openai/` before a vendor means "OpenAI's protocol"; openrouter/auto is whole.
        return rest if first in (*self.names, "openai") and "/" in rest else name

    def litellm_name(self, name: str) -> str:
        """Return the name by which LiteLLM finds both the provider and the model."""
        prefix = f"{self.route_prefix or self.name}/"
        if name.startswith((prefix, *self.skip_prefixes)) and not self.strip_model_prefix:
            return name
        return prefix + self.model_of(name)

    def base_of(self, api_base: str | None) -> str | None:
        """Return the address of its API, without a slash at the end."""
        base = (api_base or self.api_base or "").rstrip("/")
        if base and not urlsplit(base).path:
            base += self.base_path
        return base or None


class Route(Struct, frozen=True, kw_only=True):
    """The route to one model. `overrides` replace parameters of a request, or remove them: None."""

    client: Client
    model: str
    provider: str
    api_base: str | None = None
    overrides: dict[str, Any] = {}
    max_tokens_key: str = "max_tokens"
    stream_usage: bool = True
    caching: bool = False

    def apply_overrides(self, request: dict[str, Any]) -> dict[str, Any]:
        request = request | self.overrides
        return {key: value for key, value in request.items() if value is not None}


_MARKED: Final = ("claude", "gemini")  # whose caches need marks; others find what stays the same
_KIMI: Final = Override(starts=("kimi-k2.5",), parameters={"temperature": 1.0})
# OpenAI's reasoning models have their own word for max_tokens, and one temperature only.
_THINKERS: Final = Override(
    starts=("o1", "o3", "o4", "gpt-5"),
    parameters={"temperature": None},
    max_tokens_key="max_completion_tokens",
)
_GPT_CHAT: Final = Override(starts=("gpt-5-chat",))

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
    ProviderSpec(("deepseek",), "https://api.deepseek.com/v1", base_keyword="api.deepseek.com"),
    ProviderSpec(  # its last chunk always counts the tokens, and it refuses fields it does not know
        ("mistral",), "https://api.mistral.ai/v1", base_keyword="api.mistral.ai", stream_usage=False
    ),
    ProviderSpec(("moonshot",), "https://api.moonshot.ai/v1", base_keyword="moonshot", overrides=(_KIMI,)),
    ProviderSpec(("xai",), "https://api.x.ai/v1", key_prefix="xai-", base_keyword="api.x.ai"),
    ProviderSpec(
        ("ollama", "ollama_chat"),
        "http://127.0.0.1:11434",
        base_path="/v1",
        base_keyword=":11434",
        needs_key=False,
        skip_prefixes=("ollama_chat/",),
    ),
    ProviderSpec(("lm_studio",), "http://127.0.0.1:1234/v1", base_keyword=":1234", needs_key=False),
    ProviderSpec(("hosted_vllm", "vllm"), "http://127.0.0.1:8000/v1", needs_key=False),
    ProviderSpec(("custom", "custom_openai"), needs_key=False, route_prefix="openai"),
    ProviderSpec(
        ("anthropic",),
        speaks_openai=False,
        key_prefix="sk-ant-",
        base_keyword="api.anthropic.com",
        supports_prompt_caching=True,
    ),
)
_CUSTOM: Final = next(spec for spec in PROVIDERS if spec.name == "custom")


def detect(settings: ModelSettings) -> ProviderSpec | None:
    """Return the provider: by the name, then by the key, then by the address; None if none tells.

    A gateway's key or address beats a vendor's name: `openai/x` and `anthropic/x` are also its own
    names for models, and its key is of no use at the vendor. A key counts only without an address.
    """
    first = settings.name.partition("/")[0] if "/" in settings.name else ""
    key = _key(settings) if settings.api_base is None else ""
    host = urlsplit(settings.api_base or "").netloc.lower()
    named = next((spec for spec in PROVIDERS if first in spec.names), None)
    if named is not None and (named.gateway or not named.needs_key):
        return named
    recognised = [spec for spec in PROVIDERS if spec.key_prefix and key.startswith(spec.key_prefix)]
    recognised += [spec for spec in PROVIDERS if spec.base_keyword and spec.base_keyword in host]
    gateway = next((spec for spec in recognised if spec.gateway), None)
    custom = _CUSTOM if settings.api_base is not None and not first else None
    return gateway or named or next(iter(recognised), custom)


def choose(settings: ModelSettings) -> Route:
    """Return the route to the model of the settings. Raises SettingsError for a direct route that
    does not exist, and for a key that no header can hold. `auto` is direct if the endpoint speaks
    OpenAI's protocol. Without a key that it needs it is LiteLLM, for keys in the environment."""
    key, name, address = _key(settings), settings.name, settings.api_base
    if not (key.isascii() and key.isprintable()):
        wrong = "model.api_key has characters that no HTTP header can hold"
        raise SettingsError(f"{wrong}; copy it again")
    spec = detect(settings)
    speaks = spec is not None and spec.speaks_openai
    keyed = settings.api_key is not None or address is not None
    keyed = keyed or (spec is not None and not spec.needs_key)
    auto: Client = "direct" if speaks and keyed else "litellm"
    client: Client = auto if settings.client == "auto" else settings.client
    if client == "litellm":
        model = name if spec is None else spec.litellm_name(name)
    elif spec is not None and speaks:
        model, address = spec.model_of(name), spec.base_of(address)
    elif address is not None:  # it was set on purpose: the name is its business
        spec, model, address = _CUSTOM, name, _CUSTOM.base_of(address)
    else:
        raise SettingsError(
            f"model.client is 'direct', but nothing says that {name!r} is served over OpenAI's protocol; "
            "set model.api_base to an endpoint that speaks it, or model.client to 'auto'"
        )
    if client == "direct" and address is None:
        wrong = f"model.api_base is missing: {name!r} does not say where it is served"
        raise SettingsError(f"{wrong}; set it")
    provider = name.partition("/")[0] if spec is None else spec.name
    route = Route(client=client, model=model, provider=provider, api_base=address)
    if spec is None:
        return route
    override = next((one for one in spec.overrides if one.fits(model)), Override(starts=()))
    return replace(
        route,
        overrides=override.parameters,
        max_tokens_key=override.max_tokens_key,
        stream_usage=spec.stream_usage,
        caching=spec.supports_prompt_caching and any(word in model for word in _MARKED),
    )


def _key(settings: ModelSettings) -> str:
    return settings.api_key.reveal() if settings.api_key is not None else ""
