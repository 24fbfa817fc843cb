"""What models cost and how much they take."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from shared.settings import ModelSettings, PresetSettings, Secret
from worker.agent.model.model import TokenUsage
from worker.llm.catalogue import ModelCatalogue, ModelFacts
from worker.llm.registry import Models

TABLE = {
    "sample_spec": {"max_input_tokens": "a text, as in the real table"},
    "gpt-x": {
        "litellm_provider": "openai",
        "input_cost_per_token": 1e-6,
        "output_cost_per_token": 1e-5,
        "cache_read_input_token_cost": 1e-7,
        "max_input_tokens": 272_000,
        "max_output_tokens": 128_000,
        "max_tokens": 128_000,
    },
    "groq/llama": {"litellm_provider": "groq", "input_cost_per_token": 2e-6, "max_tokens": 8192},
    "gemini-x": {"litellm_provider": "vertex_ai-language-models", "max_input_tokens": 7},
    "broken": {"litellm_provider": "openai", "max_input_tokens": "many"},
}
GPT = ModelFacts(1e-6, 1e-5, 1e-7, 272_000, 128_000)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    path.write_bytes(msgspec.json.encode(TABLE))
    return path


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("gpt-x", GPT),
        ("openai/gpt-x", GPT),
        ("groq/llama", ModelFacts(2e-6, 0.0, 2e-6, 8192, 8192)),
        ("vertex_ai/gemini-x", ModelFacts(context_tokens=7)),
        ("custom/gpt-x", ModelFacts()),
        ("openrouter/openai/gpt-x", ModelFacts()),
        ("llama", ModelFacts()),
        ("broken", ModelFacts()),
        ("sample_spec", ModelFacts()),
        ("demo", ModelFacts()),
    ],
)
async def test_a_model_is_found_by_its_whole_name_or_at_its_own_provider(
    table: Path, name: str, facts: ModelFacts
) -> None:
    """The same name at somebody else's costs something else: not knowing is better than a wrong number."""
    assert await ModelCatalogue(ModelSettings(name=name), table=table).facts_of(name) == facts


async def test_fallbacks_and_presets_have_facts_of_their_own(table: Path) -> None:
    """Only the models of the settings are kept; a name that is in no setting is not known."""
    settings = ModelSettings(name="x", fallbacks=("groq/llama",), presets={"good": PresetSettings(name="openai/gpt-x")})
    catalogue = ModelCatalogue(settings, table=table)
    names = ("x", "groq/llama", "openai/gpt-x", "gpt-x")
    assert [(await catalogue.facts_of(name)).context_tokens for name in names] == [0, 8192, 272_000, 0]


async def test_settings_win(table: Path) -> None:
    """Prices by name, USD a million tokens, what a cache held as dear as the rest; the context of the usual model, and
    of a preset that nobody knows."""
    settings = ModelSettings(
        name="openai/gpt-x",
        prices={"openai/gpt-x": (3.0, 15.0), "mine": (0.5, 0.0)},
        context_tokens=9000,
        presets={"a": PresetSettings(name="mine"), "b": PresetSettings(name="groq/llama")},
    )
    catalogue = ModelCatalogue(settings, table=table)
    assert await catalogue.facts_of("openai/gpt-x") == ModelFacts(3e-6, 1.5e-5, 3e-6, 9000, 128_000)
    assert await catalogue.facts_of("mine") == ModelFacts(5e-7, 0.0, 5e-7, 9000)
    assert (await catalogue.facts_of("groq/llama")).context_tokens == 8192


async def test_a_bare_name_has_the_facts_of_its_provider(table: Path) -> None:
    """Not of another one that serves a model of this name, such as Vertex."""
    entries = {"gemini/gemini-x": {"litellm_provider": "gemini", "max_input_tokens": 9}, "gemini-x": TABLE["gemini-x"]}
    table.write_bytes(msgspec.json.encode(entries))
    assert (await ModelCatalogue(ModelSettings(name="gemini-x"), table=table).facts_of("gemini-x")).context_tokens == 9


@pytest.mark.parametrize(
    ("name", "key", "tokens"),
    [
        ("openrouter/anthropic/claude-sonnet-4.5", "", 200_000),
        ("anthropic/claude-sonnet-4.5", "sk-or-k", 200_000),
        ("openrouter/openai/gpt-5-chat", "", 128_000),  # the longest beginning counts
        ("openrouter/openai/gpt-5-mini", "", 400_000),
        ("openrouter/moonshotai/kimi-k2.5", "", 262_144),
        ("openrouter/nobody/new-model", "", 0),
        ("vllm/anthropic/claude-sonnet-4.5", "", 0),  # somebody else's
    ],
)
async def test_the_sizes_of_openrouters_models_are_known(table: Path, name: str, key: str, tokens: int) -> None:
    """By their beginnings, where the big table has nothing; the operator's number wins."""
    settings = ModelSettings(name=name, api_key=Secret(key) if key else None)
    assert (await ModelCatalogue(settings, table=table).facts_of(name)).context_tokens == tokens
    own = msgspec.structs.replace(settings, context_tokens=5000)
    assert (await ModelCatalogue(own, table=table).facts_of(name)).context_tokens == 5000


async def test_a_model_of_unknown_size_runs_with_an_assumed_one() -> None:
    """So that its prompts are compacted, too. Long replies make room for a prompt."""
    settings = ModelSettings(name="vllm/own", fallbacks=("openrouter/openai/gpt-4o", "demo"))
    models = Models(settings)
    assert (await models.limits_of()).context_tokens == 32_768
    assert (await Models(msgspec.structs.replace(settings, max_tokens=30_000)).limits_of()).context_tokens == 60_000
    assert await models.unsized() == ["vllm/own"]
    known = Models(msgspec.structs.replace(settings, context_tokens=9000))
    assert ((await known.limits_of()).context_tokens, await known.unsized()) == (9000, [])
    assert (await Models(ModelSettings()).limits_of()).context_tokens == 0  # the demo reads nothing


def test_a_cache_makes_a_prompt_cheaper() -> None:
    """A million tokens in, 900,000 of them cached, and a million out; a count that cannot be is not believed."""
    assert GPT.cost_usd(TokenUsage(1_000_000, 1_000_000, 900_000)) == pytest.approx(0.1 + 0.09 + 10.0)
    assert GPT.cost_usd(TokenUsage(1_000_000, 0, 2_000_000)) == pytest.approx(0.1)
    assert ModelFacts().cost_usd(TokenUsage(10, 10)) == 0.0


@pytest.mark.parametrize("text", [None, b"{", b"[]", b"\xff"])
async def test_without_a_table_nothing_is_known_and_nothing_breaks(tmp_path: Path, text: bytes | None) -> None:
    """A release of the library may move it; turns go on, their cost is 0."""
    table = tmp_path / "table.json"
    if text is not None:
        table.write_bytes(text)
    settings = ModelSettings(name="gpt-x", prices={"gpt-x": (1.0, 1.0)})
    facts = await ModelCatalogue(settings, table=table).facts_of("gpt-x")
    assert (facts.input_usd, facts.context_tokens) == (1e-6, 0)


async def test_the_table_is_read_once(table: Path) -> None:
    """Also when many turns begin at the same moment."""
    catalogue = ModelCatalogue(ModelSettings(name="gpt-x"), table=table)
    first = await asyncio.gather(*(catalogue.facts_of("gpt-x") for _ in range(20)))
    table.unlink()
    assert [*first, await catalogue.facts_of("gpt-x")] == [GPT] * 21


def test_the_table_that_is_installed_is_understood_without_its_library() -> None:
    """Well-known models of several providers have a price and a context in it."""
    script = (
        "import asyncio, sys\n"
        "from shared.settings import ModelSettings\n"
        "from worker.llm.catalogue import ModelCatalogue\n"
        "names = ('openai/gpt-4o', 'anthropic/claude-sonnet-4-5', 'gemini/gemini-2.5-pro', 'deepseek/deepseek-chat')\n"
        "catalogue = ModelCatalogue(ModelSettings(fallbacks=names))\n"
        "for name in names:\n"
        "    facts = asyncio.run(catalogue.facts_of(name))\n"
        "    assert 0 < facts.cached_usd < facts.input_usd < facts.output_usd < 1e-3, (name, facts)\n"
        "    assert facts.context_tokens > 50_000 and facts.output_tokens > 1000, (name, facts)\n"
        "assert 'litellm' not in sys.modules\n"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
