"""The route to a model: its provider is recognised by a name, a key or an address. A model's name
is LiteLLM's (`groq/llama-3.3-70b`)."""

from __future__ import annotations

from typing import Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from shared.errors import SettingsError
from shared.settings import ModelSettings
from worker.llm.bare_names import with_provider
from worker.llm.provider_spec import Override, Prefix, ProviderSpec
from worker.llm.providers import PROVIDERS

Client = Literal["direct", "litellm"]


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
    prefix: Prefix | None = None

    def apply_overrides(self, request: dict[str, Any]) -> dict[str, Any]:
        request = request | self.overrides
        return {key: value for key, value in request.items() if value is not None}


_MARKED: Final = ("claude", "gemini")  # whose caches need marks; others find what stays the same
_CUSTOM: Final = next(spec for spec in PROVIDERS if spec.name == "custom")


def detect(settings: ModelSettings) -> ProviderSpec | None:
    """Return the provider: by the name, then by the key, then by the address; None if none tells.

    A gateway's key or address beats a vendor's name: `openai/x` and `anthropic/x` are also its own
    names for models, and its key is of no use at the vendor. A key counts only without an address.
    The name of a vendor's own model tells if nothing else does.
    """
    name = with_provider(settings)
    first = name.partition("/")[0] if "/" in name else ""
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
    key = _key(settings)
    name = with_provider(settings)
    address = settings.api_base
    if not (key.isascii() and key.isprintable()):
        raise SettingsError("model.api_key has characters that no HTTP header can hold; copy it again")
    spec = detect(settings)
    speaks = spec is not None and spec.speaks_openai
    keyed = settings.api_key is not None or address is not None
    keyed = keyed or (spec is not None and not spec.needs_key)
    auto: Client = "direct" if speaks and keyed else "litellm"
    client: Client = auto if settings.client == "auto" else settings.client
    if client == "litellm":
        model = name if spec is None else spec.litellm_name(name)
    elif spec is not None and speaks:
        model = spec.model_of(name)
        address = spec.base_of(address)
    elif address is not None:  # it was set on purpose: the name is its business
        spec = _CUSTOM
        model = name
        address = _CUSTOM.base_of(address)
    else:
        raise SettingsError(
            f"model.client is 'direct', but nothing says that {name!r} is served over OpenAI's protocol; "
            "set model.api_base to an endpoint that speaks it, or model.client to 'auto'"
        )
    if client == "direct" and address is None:
        raise SettingsError(f"model.api_base is missing: {name!r} does not say where it is served; set it")
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
        prefix=_prefix(spec, address),
    )


def _prefix(spec: ProviderSpec, address: str | None) -> Prefix | None:
    """Return the provider's way to go on with a reply, if it is known to work at this address."""
    prefix = spec.prefix
    elsewhere = prefix is not None and prefix.api_base is not None and address not in (None, spec.base_of(None))
    return None if elsewhere else prefix


def _key(settings: ModelSettings) -> str:
    return settings.api_key.reveal() if settings.api_key is not None else ""
