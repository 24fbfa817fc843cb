"""Prices and sizes of models, from the table that LiteLLM ships, read without loading LiteLLM, and
from a small one of OpenRouter's sizes."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from shared.log import logger
from shared.settings import ModelSettings
from worker.agent.model.model import TokenUsage
from worker.llm.bare_names import with_provider
from worker.llm.openrouter_sizes import openrouter_tokens
from worker.llm.routes import detect

TABLE: Final = "model_prices_and_context_window_backup.json"

log = logger("models")


class ModelFacts(msgspec.Struct, frozen=True):
    """Prices in USD per token (`cached_usd` for a cached part of a prompt), and sizes in tokens; 0
    if unknown. `context_tokens` is the limit of a prompt."""

    input_usd: float = 0.0
    output_usd: float = 0.0
    cached_usd: float = 0.0
    context_tokens: int = 0
    output_tokens: int = 0

    def cost_usd(self, usage: TokenUsage) -> float:
        """Return the cost of these tokens, without surcharges for long prompts or caches."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        prompt_usd = (usage.prompt_tokens - cached) * self.input_usd + cached * self.cached_usd
        return prompt_usd + usage.completion_tokens * self.output_usd


class _CatalogueEntry(msgspec.Struct):
    litellm_provider: str = ""
    input_cost_per_token: float = 0.0
    output_cost_per_token: float = 0.0
    cache_read_input_token_cost: float | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_tokens: int | None = None

    def facts(self) -> ModelFacts:
        cached = self.cache_read_input_token_cost
        return ModelFacts(
            self.input_cost_per_token,
            self.output_cost_per_token,
            self.input_cost_per_token if cached is None else cached,
            self.max_input_tokens or self.max_tokens or 0,
            self.max_output_tokens or self.max_tokens or 0,
        )


class ModelCatalogue:
    """Facts about the models of the settings. The table (3 MB) is read once, in a thread, and
    dropped. `model.prices` and `model.context_tokens` override it; the latter applies to
    `model.name`, and to a preset that the table does not list."""

    def __init__(self, settings: ModelSettings, *, table: Path | None = None) -> None:
        presets = (preset.name for preset in settings.presets.values())
        self.names = tuple(dict.fromkeys((settings.name, *settings.fallbacks, *presets)))
        self._settings = settings
        self._table = table
        self._facts: dict[str, ModelFacts] | None = None
        self._reading = asyncio.Lock()

    async def facts_of(self, name: str) -> ModelFacts:
        """Return the facts about a model by its name in the settings; empty ones if unknown."""
        if self._facts is None:
            # Checked again under the lock: turns that begin together read the 3 MB once.
            async with self._reading:
                if self._facts is None:
                    self._facts = await asyncio.to_thread(self._read_table)
        return self._facts.get(name) or ModelFacts()

    async def without(self, *fields: str) -> list[str]:
        """Return the names of the settings' models of which none of these facts is known."""
        facts = {name: await self.facts_of(name) for name in self.names}
        return [name for name, one in facts.items() if not any(getattr(one, field) for field in fields)]

    def _read_table(self) -> dict[str, ModelFacts]:
        try:
            table = self._table or _shipped()
            entries = msgspec.json.decode(table.read_bytes(), type=dict[str, msgspec.Raw])
        except (OSError, msgspec.DecodeError) as exc:
            log.warning("no prices", error=type(exc).__name__, doing="counting tokens only")
            entries = {}
        return {name: self._with_settings(name, self._look_up(name, entries)) for name in self.names}

    def _look_up(self, name: str, entries: dict[str, msgspec.Raw]) -> ModelFacts:
        settings = msgspec.structs.replace(self._settings, name=name)
        facts = _find(with_provider(settings), entries)
        spec = detect(settings)
        if not facts.context_tokens and spec is not None and spec.name == "openrouter":
            facts = msgspec.structs.replace(facts, context_tokens=openrouter_tokens(name))
        return facts

    def _with_settings(self, name: str, facts: ModelFacts) -> ModelFacts:
        settings = self._settings
        replace = msgspec.structs.replace
        if name in settings.prices:
            input_usd, output_usd = (usd / 1_000_000 for usd in settings.prices[name])
            facts = replace(facts, input_usd=input_usd, output_usd=output_usd, cached_usd=input_usd)
        context = settings.context_tokens
        if context is not None and (name == settings.name or not facts.context_tokens):
            facts = replace(facts, context_tokens=context)
        return facts


def _shipped() -> Path:
    """Return the path of the table in LiteLLM's folder. Raises FileNotFoundError without it."""
    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("litellm is not installed")
    return Path(spec.submodule_search_locations[0], TABLE)


def _find(name: str, entries: dict[str, msgspec.Raw]) -> ModelFacts:
    provider, _, short = name.partition("/")
    for known in (name, short):
        try:
            entry = msgspec.json.decode(entries.get(known, b"null"), type=_CatalogueEntry | None)
        except msgspec.DecodeError:
            continue
        # The same name at somebody else's has another price and another context.
        if entry and (known == name or entry.litellm_provider.startswith(provider)):
            return entry.facts()
    return ModelFacts()
