"""The description of a provider: its names, its address, and what its models need."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct


class Override(Struct, frozen=True, kw_only=True):
    """Parameters for models whose names start with one of `starts`; None removes one."""

    starts: tuple[str, ...]
    parameters: dict[str, Any] = {}
    max_tokens_key: str = "max_tokens"

    def fits(self, model: str) -> bool:
        return model.rpartition("/")[2].lower().startswith(self.starts)


class Prefix(Struct, frozen=True, kw_only=True):
    """How a provider is asked to go on with a reply by itself: the reply is the last message, with
    the fields of `message`, and the request has those of `body`; at `api_base`, if it is served only
    there."""

    message: dict[str, Any] = {}
    body: dict[str, Any] = {}
    api_base: str | None = None


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
    prefix: Prefix | None = None

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
