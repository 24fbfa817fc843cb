"""A name leads to a model."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.errors import SettingsError
from shared.settings import ModelSettings, PresetSettings, Secret
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import ProviderLimits
from tests.helpers.openai_server import ScriptedOpenAI
from worker.agent.model.model import ModelRequest
from worker.llm.demo.demo_model import DemoModel
from worker.llm.policies.retry import FallbackModel, RetryingModel
from worker.llm.policies.throttle import provider_route
from worker.llm.registry import ModelLimits, Models, fallback_settings, preset_settings
from worker.llm.routes import choose

KEY = Secret("sk-x")


def loaded_by(settings: str, then: str = "pass") -> set[str]:
    """What a process has imported after it made the model of these settings."""
    script = (
        "import asyncio, sys; from shared.settings import ModelSettings, Secret;"
        "from worker.llm.registry import Models;"
        f"model = Models(ModelSettings({settings})).get(); {then}; print(*sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return set(process.stdout.split())


def test_demo_is_the_default() -> None:
    """Whatever else is set."""
    assert isinstance(Models(ModelSettings()).get(), DemoModel)
    assert isinstance(Models(ModelSettings(name="demo", client="litellm")).get(), DemoModel)


@pytest.mark.parametrize("client", ["auto", "direct", "litellm"])
def test_every_other_model_has_retries_around_it(client: str) -> None:
    """Whichever way leads there, under the name of the settings."""
    settings = ModelSettings(name="openai/x", api_key=KEY, client=client)  # type: ignore[arg-type]
    model = Models(settings).get()
    assert isinstance(model, RetryingModel)
    assert model.name == "openai/x"


def test_fallbacks_stand_behind_the_model() -> None:
    """All in one Model, under the first one's name."""
    model = Models(ModelSettings(name="openai/x", api_key=KEY, fallbacks=("openai/y", "demo"))).get()
    assert isinstance(model, FallbackModel)
    assert model.name == "openai/x"


def test_a_way_that_is_not_there_is_a_settings_error() -> None:
    """At the start, in one line that names the key and says what to do, also for a fallback."""
    with pytest.raises(SettingsError, match=r"model\.client is 'direct'.*'gemini/x'.*set model\.api_base.*'auto'"):
        Models(ModelSettings(name="gemini/x", client="direct")).get()
    with pytest.raises(SettingsError, match=r"model\.api_base is missing: 'custom/x'"):
        Models(ModelSettings(name="openai/x", api_key=KEY, fallbacks=("custom/x",))).get()


def test_the_direct_way_needs_no_litellm() -> None:
    """Neither made nor preloaded; a worker with such a model never pays the 3 s and 170 MB."""
    loaded = loaded_by("name='openai/x', api_base='http://127.0.0.1:1/v1'", "asyncio.run(model.preload())")
    assert "aiohttp" in loaded
    assert loaded & {"litellm", "openai", "httpx", "pydantic", "json_repair", "mcp"} == set()


def test_no_client_is_imported_before_it_is_needed() -> None:
    """The demo needs neither library, and LiteLLM waits for preload()."""
    assert loaded_by("") & {"litellm", "aiohttp"} == set()
    assert loaded_by("name='anthropic/x'") & {"litellm", "aiohttp"} == set()


MAIN = ModelSettings(name="openai/x", api_base="http://h/v1", api_key=KEY, client="direct", fallbacks=("a", "b"))
GATEWAY = ModelSettings(name="openrouter/openai/gpt-5", api_key=Secret("sk-or-x"), max_tokens=7)


@pytest.mark.parametrize(
    ("main", "name", "api_base", "key", "client"),
    [
        (MAIN, "openai/y", "http://h/v1", "sk-x", "direct"),
        (MAIN, "y", "http://h/v1", "sk-x", "direct"),
        (MAIN, "groq/y", None, "gsk_own", "auto"),
        (MAIN, "gemini/y", None, None, "auto"),
        (MAIN, "ollama/y", None, None, "auto"),
        (GATEWAY, "anthropic/y", None, "sk-or-x", "auto"),
        (GATEWAY, "qwen/y", None, "sk-or-x", "auto"),
        (GATEWAY, "openrouter/qwen/y", None, "sk-or-x", "auto"),
        (GATEWAY, "groq/y", None, "gsk_own", "auto"),
        (GATEWAY, "ollama/y", None, None, "auto"),
        (GATEWAY, "together_ai/a/y", None, None, "auto"),
    ],
)
def test_a_fallback_has_the_endpoint_and_the_key_that_belong_to_it(
    main: ModelSettings, name: str, api_base: str | None, key: str | None, client: str
) -> None:
    """No provider is ever shown the key of another one."""
    keyed = ModelSettings(
        **{field: getattr(main, field) for field in main.__struct_fields__}
        | {"fallback_keys": {"groq": Secret("gsk_own")}}
    )
    settings = fallback_settings(keyed, name)
    revealed = settings.api_key.reveal() if settings.api_key else None
    assert (settings.name, settings.api_base, revealed, settings.client) == (name, api_base, key, client)
    assert (settings.max_tokens, settings.fallbacks) == (main.max_tokens, ())


# --- presets: what people may choose in a chat

HERE = "http://h/v1"
PRESETS = {
    "fast": PresetSettings(name="openai/gpt-4o-mini", max_tokens=500, temperature=0.1, about="quick"),
    "offline": PresetSettings(name="demo"),
    "claude": PresetSettings(name="anthropic/claude-sonnet-4-5"),
}
CHOICE = ModelSettings(name="openai/gpt-4o", api_key=KEY, presets=PRESETS, max_tokens=20_000, temperature=0.3)


@pytest.mark.parametrize(
    ("preset", "api_base", "key", "client"),
    [
        (PresetSettings(name="openai/y"), HERE, "sk-x", "direct"),
        (PresetSettings(name="groq/y"), None, "gsk_own", "auto"),
        (PresetSettings(name="gemini/y"), None, None, "auto"),
        (PresetSettings(name="openai/y", client="litellm"), HERE, "sk-x", "litellm"),
        (PresetSettings(name="openai/y", api_key=Secret("sk-y")), HERE, "sk-y", "direct"),
        (PresetSettings(name="gemini/y", api_key=Secret("sk-y")), None, "sk-y", "auto"),
        (PresetSettings(name="groq/y", api_key=Secret("sk-y")), None, "sk-y", "auto"),
        (PresetSettings(name="openai/y", api_base="http://other/v1"), "http://other/v1", None, "auto"),
        (PresetSettings(name="groq/y", api_base="http://other/v1"), "http://other/v1", None, "auto"),
        (PresetSettings(name="custom/y", api_base=HERE), HERE, "sk-x", "direct"),
        (PresetSettings(name="y", api_base="http://other/v1", api_key=Secret("s")), "http://other/v1", "s", "auto"),
    ],
)
def test_a_preset_is_reached_as_a_fallback_is_but_for_what_it_says(
    preset: PresetSettings, api_base: str | None, key: str | None, client: str
) -> None:
    """No address is ever shown a key that was not meant for it."""
    main = ModelSettings(
        name="openai/x",
        api_base=HERE,
        api_key=KEY,
        client="direct",
        fallback_keys={"groq": Secret("gsk_own")},
        total_s=99.0,
    )
    settings = preset_settings(main, preset)
    revealed = settings.api_key.reveal() if settings.api_key else None
    assert (settings.name, settings.api_base, revealed, settings.client) == (preset.name, api_base, key, client)
    assert (settings.max_tokens, settings.temperature, settings.total_s) == (4096, 0.7, 99.0)


async def test_a_chat_gets_the_model_it_chose() -> None:
    """Made when it is first asked for, and then kept; a name that is no preset is the usual model."""
    models = Models(CHOICE)
    assert models.get("fast").name == "openai/gpt-4o-mini"
    assert models.get("fast") is models.get("fast")
    assert isinstance(models.get("offline"), DemoModel)
    assert models.get("") is models.get("gone") is models.get()
    assert (models.get().name, models.name) == ("openai/gpt-4o", "openai/gpt-4o")
    await models.close()


async def test_the_ways_to_all_models_are_known_without_making_them(client: RedisClient) -> None:
    """Of the usual one, of fallbacks and presets, as the calls themselves find them; of the demo, and without limits
    for the fleet, there are none."""
    presets = {"fast": PresetSettings(name="openai/fast"), "demo": PresetSettings(name="demo")}
    keys = {"anthropic": Secret("other")}
    settings = ModelSettings(
        name="openai/x", api_key=KEY, fallbacks=("openai/b", "anthropic/c"), fallback_keys=keys, presets=presets
    )
    models = Models(settings, ProviderLimits(client))
    assert models.provider_routes.keys() == {"openai/x", "openai/b", "anthropic/c", "openai/fast"}
    assert (
        models.provider_routes["openai/x"]
        == models.provider_routes["openai/b"]
        == models.provider_routes["openai/fast"]
    )
    assert models.provider_routes["anthropic/c"].startswith("anthropic:")
    assert models.provider_routes["openai/x"] == provider_route(settings, choose(settings))
    assert Models(settings).provider_routes == {}
    await models.close()


async def test_a_preset_has_limits_of_its_own() -> None:
    """What it does not say is as usual; nobody is asked for more than the model can say at once."""
    models = Models(CHOICE)
    assert await models.limits_of("fast") == ModelLimits(128_000, 500, 0.1)
    assert await models.limits_of("claude") == ModelLimits(200_000, 20_000, 0.3)
    assert await models.limits_of() == await models.limits_of("gone") == ModelLimits(128_000, 16_384, 0.3)
    assert await models.limits_of("offline") == ModelLimits(0, 20_000, 0.3)
    await models.close()


async def test_fallbacks_stand_behind_a_preset_too() -> None:
    """Who chose a model still wants an answer when it is away; the model itself is not asked twice."""
    presets = {"a": PresetSettings(name="openai/a"), "b": PresetSettings(name="openai/b")}
    models = Models(ModelSettings(name="openai/x", api_key=KEY, fallbacks=("openai/b",), presets=presets))
    assert isinstance(models.get("a"), FallbackModel)
    assert models.get("a").name == "openai/a"
    assert isinstance(models.get("b"), RetryingModel)
    await models.close()


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        (PresetSettings(name="custom/y"), r"^model\.presets\.fast\.api_base is missing: 'custom/y'.*; set it$"),
        (
            PresetSettings(name="gemini/y", client="direct"),
            r"^model\.presets\.fast\.client is 'direct'.*set model\.presets\.fast\.api_base",
        ),
        (PresetSettings(name="openai/y", api_key=Secret("sk-ü")), r"^model\.presets\.fast\.api_key has characters"),
    ],
)
def test_a_preset_that_cannot_be_used_stops_the_start(preset: PresetSettings, says: str) -> None:
    """In one line that names the setting, not in the first turn of somebody who chooses it."""
    with pytest.raises(SettingsError, match=says) as raised:
        Models(ModelSettings(name="openai/x", api_key=KEY, presets={"fast": preset}))
    assert "\n" not in str(raised.value)


def test_checking_presets_loads_no_client() -> None:
    """Neither a preset that needs LiteLLM nor a direct one costs anything before it is chosen."""
    script = (
        "import sys; from shared.settings import ModelSettings, PresetSettings, Secret;"
        "from worker.llm.registry import Models;"
        "presets = {'a': PresetSettings(name='gemini/a'), 'b': PresetSettings(name='groq/b', api_key=Secret('k'))};"
        "Models(ModelSettings(presets=presets)); print(*sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert set(process.stdout.split()) & {"litellm", "aiohttp", "openai"} == set()


async def test_the_demo_is_never_held_back(client: RedisClient) -> None:
    """It has no provider."""
    limits = ProviderLimits(client)
    assert isinstance(Models(ModelSettings(), limits).get(), DemoModel)
    assert isinstance(Models(ModelSettings(), limits).get(), DemoModel)


async def test_headers_of_the_settings_go_to_the_endpoint_they_are_for_and_nowhere_else() -> None:
    """A fallback elsewhere, or a preset with an address of its own, never sees them."""
    with ScriptedOpenAI(in_thread=True) as server, ScriptedOpenAI(in_thread=True) as other:
        settings = ModelSettings(
            name="openai/a",
            api_base=server.base_url,
            api_key=Secret("k"),
            client="direct",
            headers={"X-Team": Secret("the-chat-team")},
            presets={"own": PresetSettings(name="openai/b", api_base=other.base_url, api_key=Secret("o"))},
        )
        models = Models(settings)
        for preset in ("", "own"):
            await models.get(preset).chat(ModelRequest([{"role": "user", "content": "hi"}]))
        await models.close()
        assert [request.headers.get("x-team") for request in server.requests()] == ["the-chat-team"]
        assert [request.headers.get("x-team") for request in other.requests()] == [None]
    assert fallback_settings(settings, "anthropic/c").headers == {}
