"""Prices and sizes of models, from the table that LiteLLM ships, read without loading LiteLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from shared.log import logger
from shared.settings import ModelSettings
from worker.agent.model.model import TokenUsage

TABLE: Final = "model_prices_and_context_window_backup.json"
_PER_MILLION: Final = 1_000_000

log = logger("models")


class ModelFacts(msgspec.Struct, frozen=True):
    """Prices in USD per token, and sizes in tokens; 0 if unknown. `cached_usd` is for the part of a
    prompt that the provider's cache held. `context_tokens` is the limit of a prompt."""

    input_usd: float = 0.0
    output_usd: float = 0.0
    cached_usd: float = 0.0
    context_tokens: int = 0
    output_tokens: int = 0

    def cost_usd(self, usage: TokenUsage) -> float:
        """Return the cost of these tokens. Surcharges of some providers, for very long prompts or
        for filling a cache, are not included."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        return (
            (usage.prompt_tokens - cached) * self.input_usd
            + cached * self.cached_usd
            + usage.completion_tokens * self.output_usd
        )


class _CatalogueEntry(msgspec.Struct):
    """The fields of a table entry that we read."""

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
    """Facts about the models that the settings name. The table (3 MB) is read once, in a thread,
    and dropped.

    `model.prices` and `model.context_tokens` override it; the latter applies to `model.name`, and
    to a preset that the table does not list.
    """

    def __init__(self, settings: ModelSettings, *, table: Path | None = None) -> None:
        self._settings = settings
        self._table = table
        self._found: dict[str, ModelFacts] | None = None
        self._facts: dict[str, ModelFacts] = {}
        self._reading = asyncio.Lock()

    async def facts_of(self, name: str) -> ModelFacts:
        """Return the facts about a model by its name in the settings; empty ones for an unknown
        model."""
        if name in self._facts:
            return self._facts[name]
        found = await self._load()
        facts = found.get(name, ModelFacts())
        if name in self._settings.prices:
            input_usd, given = (usd / _PER_MILLION for usd in self._settings.prices[name])
            facts = msgspec.structs.replace(facts, input_usd=input_usd, output_usd=given, cached_usd=input_usd)
        context = self._settings.context_tokens
        if context is not None and (name == self._settings.name or not facts.context_tokens):
            facts = msgspec.structs.replace(facts, context_tokens=context)
        self._facts[name] = facts
        return facts

    async def _load(self) -> dict[str, ModelFacts]:
        if self._found is None:
            # Checked again under the lock: turns that begin together read the 3 MB once.
            async with self._reading:
                if self._found is None:
                    self._found = await asyncio.to_thread(self._read_table)
        return self._found

    def _read_table(self) -> dict[str, ModelFacts]:
        settings = self._settings
        names = {settings.name, *settings.fallbacks, *(preset.name for preset in settings.presets.values())}
        try:
            table = self._table or _shipped()
            entries = msgspec.json.decode(table.read_bytes(), type=dict[str, msgspec.Raw])
        except (OSError, msgspec.DecodeError) as exc:
            log.warning("no prices", error=type(exc).__name__, doing="counting tokens only")
            return {}
        return dict(_facts_by_name(names, entries))


def _shipped() -> Path:
    """Return the path of the table in LiteLLM's folder. Raises FileNotFoundError without
    LiteLLM."""
    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("litellm is not installed")
    return Path(spec.submodule_search_locations[0], TABLE)


def _facts_by_name(names: Iterable[str], entries: dict[str, msgspec.Raw]) -> Iterable[tuple[str, ModelFacts]]:
    for name in names:
        provider, _, short = name.partition("/")
        entry = _parse_entry(entries.get(name))
        if entry is None and short:
            entry = _parse_entry(entries.get(short))
            if entry is not None and not entry.litellm_provider.startswith(provider):
                entry = None  # the same name at somebody else's: another price, another context
        if entry is not None:
            yield name, entry.facts()


def _parse_entry(raw: msgspec.Raw | None) -> _CatalogueEntry | None:
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=_CatalogueEntry)
    except msgspec.DecodeError:
        return None
