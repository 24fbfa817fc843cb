"""The models of a process, by name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shared.errors import SettingsError
from shared.settings import ModelSettings, PresetSettings
from shared.store.fleet.provider_limits import ProviderLimits
from worker.agent.model.model import LLMResponse, Model, ModelRequest, OnDelta
from worker.llm.bare_names import with_provider
from worker.llm.catalogue import ModelCatalogue, ModelFacts
from worker.llm.policies.retry import FallbackModel, RetryingModel
from worker.llm.policies.throttle import ThrottledModel, limit_rules, provider_route
from worker.llm.policies.traced import traced
from worker.llm.routes import choose, detect

DEMO: Final = "demo"


def preset_settings(settings: ModelSettings, preset: PresetSettings) -> ModelSettings:
    """Return the settings of a preset's model: those of a fallback, overridden by the preset. At an
    address of its own it has its own key or none: `model.api_key` belongs to `model.api_base`."""
    made = fallback_settings(settings, preset.name)
    if preset.api_base == settings.api_base and preset.api_base is not None:
        made = replace(settings, name=preset.name, fallbacks=())
    elif preset.api_base is not None:
        client = _elsewhere(settings)
        made = replace(made, api_base=preset.api_base, api_key=None, client=client, headers={})
    return replace(
        made,
        api_key=preset.api_key or made.api_key,
        client=preset.client or made.client,
        max_tokens=preset.max_tokens or settings.max_tokens,
        temperature=settings.temperature if preset.temperature is None else preset.temperature,
        top_p=settings.top_p if preset.top_p is None else preset.top_p,
        seed=settings.seed if preset.seed is None else preset.seed,
    )


def fallback_settings(settings: ModelSettings, name: str) -> ModelSettings:
    """Return the settings of a fallback: the same endpoint and key, unless its name is of another
    provider. That provider's key is in `model.fallback_keys`. Without one the provider needs none,
    or LiteLLM finds it; at a gateway it is a model of the gateway."""
    # A key must not reach another vendor: `gpt-4o` after `deepseek-chat` is as if both had
    # prefixes.
    full = with_provider(replace(settings, name=name))
    first = full.partition("/")[0] if "/" in full else ""
    key = settings.fallback_keys.get(first)
    spec = detect(settings)
    other = detect(ModelSettings(name=full))
    same = first in ("", with_provider(settings).partition("/")[0]) or (spec is not None and spec is other)
    vendor = other is None or (other.needs_key and not other.gateway)
    here = replace(settings, name=name, fallbacks=())
    if key is None and (same or (spec is not None and spec.gateway and vendor and "/" in name)):
        return here
    return replace(here, client=_elsewhere(settings), api_base=None, api_key=key, headers={})


def all_fallbacks(settings: ModelSettings) -> list[ModelSettings]:
    """Return the settings of each fallback, in order."""
    return [fallback_settings(settings, name) for name in settings.fallbacks]


def _elsewhere(settings: ModelSettings) -> Any:
    # A direct client for this endpoint implies nothing about the other one.
    return "litellm" if settings.client == "litellm" else "auto"


def checked_preset(settings: ModelSettings, name: str) -> ModelSettings:
    """Return the settings of a preset. Raises SettingsError if it cannot be reached."""
    made = preset_settings(settings, settings.presets[name])
    if made.name != DEMO:
        try:
            choose(made)
        except SettingsError as exc:
            text = re.sub(r"\bmodel\.(?=api_|client)", f"model.presets.{name}.", str(exc))
            raise SettingsError(text) from None
    return made


class LazyModel:
    """Another model, called `name`, that `make` builds in a thread when it is preloaded or first
    called: a client imports an HTTP library, which would delay the start of a worker. The cost of
    each reply is set from the price in `catalogue`."""

    def __init__(self, name: str, make: Callable[[], Model], catalogue: ModelCatalogue) -> None:
        self.name = name
        self._make = make
        self._catalogue = catalogue
        self._model: Model | None = None
        self._making = asyncio.Lock()

    async def preload(self) -> None:
        await self._catalogue.facts_of(self.name)
        await (await self._load()).preload()

    async def close(self) -> None:
        if self._model is not None:
            await self._model.close()

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        model = self._model or await self._load()
        reply = await model.chat(request, on_delta)
        facts = await self._catalogue.facts_of(self.name)
        cost_usd = facts.cost_usd(reply.usage)
        if cost_usd == reply.usage.cost_usd:
            return reply
        return replace(reply, usage=replace(reply.usage, cost_usd=cost_usd))

    async def _load(self) -> Model:
        async with self._making:  # turns that begin at the same time build one client
            if self._model is None:
                self._model = await asyncio.to_thread(self._make)
        return self._model


CLIENTS: Final = {
    DEMO: "worker.llm.demo.demo_model:DemoModel",
    "direct": "worker.llm.clients.direct_client:DirectModel",
    "litellm": "worker.llm.clients.litellm_client:LiteLLMModel",
}


class ModelLimits(msgspec.Struct, frozen=True):
    """The limits of a call to a model. `context_tokens` is an assumption if it is unknown, and 0
    for the demo; `max_tokens` is the value of the settings, or the model's own maximum if lower."""

    context_tokens: int
    max_tokens: int
    temperature: float
    top_p: float | None = None
    seed: int | None = None


class Models:
    """The models of one process: the default one, and those that a chat may choose, each built when
    first needed. Raises SettingsError at once if one cannot be reached as the settings want it."""

    def __init__(self, settings: ModelSettings, limits: ProviderLimits | None = None) -> None:
        self._settings = settings
        self._limits = limits
        self._catalogue = ModelCatalogue(settings)
        self._presets = {name: checked_preset(settings, name) for name in settings.presets}
        self._usual = self._chain([settings, *all_fallbacks(settings)])
        self._made: dict[str, Model] = {}

    @property
    def name(self) -> str:
        return self._usual.name

    def get(self, preset: str = "") -> Model:
        """Return the model of a preset; the default one for an unknown name or a removed preset."""
        if preset not in self._presets:
            return self._usual
        if preset not in self._made:
            chosen = self._presets[preset]
            others = (one for one in all_fallbacks(self._settings) if one.name != chosen.name)
            self._made[preset] = self._chain([chosen, *others])
        return self._made[preset]

    @property
    def provider_routes(self) -> dict[str, str]:
        """The rate-limit key of each model whose calls the fleet limits, by the model's name."""
        if self._limits is None:
            return {}
        every = [self._settings, *all_fallbacks(self._settings), *self._presets.values()]
        # Of two that have one name the usual one counts.
        limited = (one for one in reversed(every) if one.name != DEMO)
        return {one.name: provider_route(one, choose(one)) for one in limited}

    async def limits_of(self, preset: str = "") -> ModelLimits:
        settings = self._presets.get(preset, self._settings)
        facts = await self.facts_of(preset)
        most = min(settings.max_tokens, facts.output_tokens or settings.max_tokens)
        context = facts.context_tokens
        if not context and settings.name != DEMO:
            # Whoever asks for long replies has a model with room for them and a prompt.
            context = max(self._settings.context_default, 2 * most)
        return ModelLimits(context, most, settings.temperature, settings.top_p, settings.seed)

    async def facts_of(self, preset: str = "") -> ModelFacts:
        """Return prices and sizes of the model of a preset, as far as they are known."""
        return await self._catalogue.facts_of(self._presets.get(preset, self._settings).name)

    async def unpriced(self) -> list[str]:
        """Return the names of models without a known price: no budget in dollars stops them."""
        known = {DEMO, *self._settings.prices}
        unpriced = await self._catalogue.without("input_usd", "output_usd")
        return [name for name in unpriced if name not in known]

    async def unsized(self) -> list[str]:
        """Return the names of models without a known context: `model.context_default` is
        assumed."""
        return [name for name in await self._catalogue.without("context_tokens") if name != DEMO]

    async def preload(self) -> None:
        await self._usual.preload()

    async def close(self) -> None:
        for model in (self._usual, *self._made.values()):
            await model.close()

    def _chain(self, each: Iterable[ModelSettings]) -> Model:
        models = [self._build_one(settings) for settings in each]
        return models[0] if len(models) == 1 else FallbackModel(models)

    def _build_one(self, settings: ModelSettings) -> Model:
        if settings.name == DEMO:
            return traced(_client(DEMO), asked=DEMO, provider=DEMO)
        route = choose(settings)
        made = partial(_client, route.client, settings, route=route)
        model: Model = LazyModel(settings.name, made, self._catalogue)
        model = traced(model, asked=route.model, provider=route.provider, address=route.api_base)
        if self._limits is not None:
            way = provider_route(settings, route)
            rules = limit_rules(settings)
            model = ThrottledModel(model, self._limits, route_key=way, rules=rules)
        return RetryingModel(model, waits_s=settings.retry_waits_s, deadline_s=settings.total_s)


def _client(name: str, *arguments: Any, **options: Any) -> Any:
    module, _, made = CLIENTS[name].partition(":")
    return getattr(import_module(module), made)(*arguments, **options)
