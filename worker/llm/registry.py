"""Which model a name stands for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from msgspec.structs import replace

from shared.settings import ModelSettings
from worker.agent.model import Model
from worker.llm.fallback import FallbackModel
from worker.llm.providers import choose, detect
from worker.llm.retry import RetryingModel

CLIENTS: Final = {
    "demo": "worker.llm.demo:DemoModel",
    "direct": "worker.llm.direct_client:DirectModel",
    "litellm": "worker.llm.litellm_client:LiteLLMModel",
}


def build_model(settings: ModelSettings) -> Model:
    """The model of the settings, with retries, and its fallbacks behind it. Imports only the clients that they need.

    Raises SettingsError for one that cannot be reached as the settings want it.
    """
    models = [_build(settings), *(_build(fallback_settings(settings, name)) for name in settings.fallbacks)]
    return models[0] if len(models) == 1 else FallbackModel(models)


def fallback_settings(settings: ModelSettings, name: str) -> ModelSettings:
    """The settings of a fallback: the same endpoint and key, unless its name begins with another provider.

    That provider's key is in `model.fallback_keys`; without one it is a server that needs none, or LiteLLM finds the
    key in the environment. At a gateway, `anthropic/…` without such a key is a model of the gateway.
    """
    first = name.partition("/")[0] if "/" in name else ""
    key = settings.fallback_keys.get(first)
    spec = detect(settings)
    other = detect(ModelSettings(name=name))
    same = not first or first == settings.name.partition("/")[0] or (spec is not None and spec is other)
    at_gateway = spec is not None and spec.gateway and (other is None or (other.needs_key and not other.gateway))
    if key is None and (same or at_gateway):
        return replace(settings, name=name, fallbacks=())
    client = "litellm" if settings.client == "litellm" else "auto"
    return replace(settings, name=name, fallbacks=(), client=client, api_base=None, api_key=key)


def _build(settings: ModelSettings) -> Model:
    if settings.name == "demo":
        model: Model = _client("demo")()
        return model
    route = choose(settings)
    return RetryingModel(_client(route.client)(settings, route=route), deadline_s=settings.total_s)


def _client(name: str) -> Any:
    module, _, made = CLIENTS[name].partition(":")
    return getattr(import_module(module), made)
