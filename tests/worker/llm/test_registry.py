"""A name leads to a model."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.errors import SettingsError
from shared.settings import ModelSettings, Secret
from worker.llm.demo import DemoModel
from worker.llm.fallback import FallbackModel
from worker.llm.registry import build_model, fallback_settings
from worker.llm.retry import RetryingModel

KEY = Secret("sk-x")


def loaded_by(settings: str, then: str = "pass") -> set[str]:
    """What a process has imported after it made the model of these settings."""
    script = (
        "import asyncio, sys; from shared.settings import ModelSettings, Secret;"
        "from worker.llm.registry import build_model;"
        f"model = build_model(ModelSettings({settings})); {then}; print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return set(told.stdout.split())


def test_demo_is_the_default() -> None:
    """Whatever else is set."""
    assert isinstance(build_model(ModelSettings()), DemoModel)
    assert isinstance(build_model(ModelSettings(name="demo", client="litellm")), DemoModel)


@pytest.mark.parametrize("client", ["auto", "direct", "litellm"])
def test_every_other_model_has_retries_around_it(client: str) -> None:
    """Whichever way leads there, under the name of the settings."""
    settings = ModelSettings(name="openai/x", api_key=KEY, client=client)  # type: ignore[arg-type]
    model = build_model(settings)
    assert isinstance(model, RetryingModel)
    assert model.name == "openai/x"


def test_fallbacks_stand_behind_the_model() -> None:
    """All in one Model, under the first one's name."""
    model = build_model(ModelSettings(name="openai/x", api_key=KEY, fallbacks=("openai/y", "demo")))
    assert isinstance(model, FallbackModel)
    assert model.name == "openai/x"


def test_a_way_that_is_not_there_is_a_settings_error() -> None:
    """At the start, in one line that names the key and says what to do, also for a fallback."""
    with pytest.raises(SettingsError, match=r"model\.client is 'direct'.*'gemini/x'.*set model\.api_base.*'auto'"):
        build_model(ModelSettings(name="gemini/x", client="direct"))
    with pytest.raises(SettingsError, match=r"model\.api_base is missing: 'custom/x'"):
        build_model(ModelSettings(name="openai/x", api_key=KEY, fallbacks=("custom/x",)))


def test_the_direct_way_needs_no_litellm() -> None:
    """Neither made nor warmed; a worker with such a model never pays the 3 s and 170 MB."""
    loaded = loaded_by("name='openai/x', api_base='http://127.0.0.1:1/v1'", "asyncio.run(model.warm())")
    assert "aiohttp" in loaded
    assert loaded & {"litellm", "openai", "httpx", "pydantic", "json_repair", "mcp"} == set()


def test_no_client_is_imported_before_it_is_needed() -> None:
    """The demo needs neither library, and LiteLLM waits for warm()."""
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
    told = settings.api_key.reveal() if settings.api_key else None
    assert (settings.name, settings.api_base, told, settings.client) == (name, api_base, key, client)
    assert (settings.max_tokens, settings.fallbacks) == (main.max_tokens, ())
