"""`shoal init`: what it asks, tests and writes, and that nobody ever sees the key."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from console.init.command import PROVIDERS
from console.main import cli
from shared.settings import load
from shared.settings.trust import load_trusted
from tests.gateway.harness import free_port
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from worker.llm.routes import choose

KEY = "sk-canary-0123456789"


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(in_thread=True) as server:
        yield server


@pytest.fixture
def server(provider: ScriptedOpenAI) -> ScriptedOpenAI:
    provider.reset()
    return provider


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of a user with a home of their own."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    return place


def run(*words: str, input: str | None = None, **environ: str) -> Result:
    """Run it; the key is in nothing that it prints."""
    result = CliRunner().invoke(cli, ["init", *words], input=input, env={"A_KEY": KEY, **environ})
    assert KEY not in result.output
    assert "Traceback" not in result.output
    return result


def own(server: ScriptedOpenAI, *words: str) -> tuple[str, ...]:
    return ("--provider", "own", "--model", "vendor/tiny", "--api-base", server.base_url, "--key-env", "A_KEY", *words)


def test_it_asks_the_model_once_and_writes_what_every_command_reads(server: ScriptedOpenAI, folder: Path) -> None:
    """With nothing asked; the files are their user's alone, and the settings are trusted."""
    result = run(*own(server))
    assert result.exit_code == 0, result.output
    [request] = server.requests()
    assert request.body["model"] == "vendor/tiny"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    settings = load_trusted().model
    assert (settings.name, settings.api_base) == ("custom/vendor/tiny", server.base_url)
    assert settings.api_key is not None
    assert settings.api_key.reveal() == KEY
    assert KEY not in (folder / "shoal.toml").read_text()
    modes = [stat.S_IMODE((folder / name).stat().st_mode) for name in ("shoal.toml", "secrets", "secrets/model.key")]
    assert modes == [0o600, 0o700, 0o600]


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (Answer(status=401, error={"message": f"no such key: {KEY}"}), "the key is wrong, or may not use this model"),
        (Answer(status=404, error={"message": "unknown"}), "it says: unknown"),
        (Answer(status=429, error={"message": "quota"}), "look at your plan and its credit"),
        (Answer(fault="garbage"), "it cannot be used now"),
    ],
)
def test_a_model_that_does_not_answer_is_explained_and_nothing_is_written(
    server: ScriptedOpenAI, folder: Path, answer: Answer, advice: str
) -> None:
    """One line, with what the provider says, but never the key that it quotes."""
    server.script(answer)
    result = run(*own(server))
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert advice in result.stderr
    assert list(folder.iterdir()) == []


def test_no_connection_names_the_address(folder: Path) -> None:
    """A wrong port, or a server that is not started."""
    address = f"http://127.0.0.1:{free_port()}/v1"
    result = run("--provider", "vllm", "--model", "tiny", "--api-base", address)
    assert result.exit_code == 1
    assert f"no connection to {address}" in result.stderr
    assert list(folder.iterdir()) == []


def test_settings_that_exist_are_kept_unless_force_is_given(server: ScriptedOpenAI, folder: Path) -> None:
    """And then the old ones lie beside the new ones. The provider is not even asked before."""
    (folder / "shoal.toml").write_text("[web]\nport = 8099\n")
    result = run(*own(server))
    assert result.exit_code == 1
    assert "'shoal.toml' exists; --force replaces it" in result.stderr
    assert server.requests() == []
    assert run(*own(server, "--force")).exit_code == 0
    assert (folder / "shoal.toml.old").read_text() == "[web]\nport = 8099\n"
    assert load().model.name == "custom/vendor/tiny"


@pytest.mark.parametrize("name", ["model.key", "telegram.token"])
def test_a_secret_that_exists_is_kept_too(server: ScriptedOpenAI, folder: Path, name: str) -> None:
    """It may be named by other settings."""
    (folder / "secrets").mkdir()
    (folder / "secrets" / name).write_text("mine\n")
    result = run(*own(server))
    assert (result.exit_code, name in result.stderr) == (1, True)
    assert (folder / "secrets" / name).read_text() == "mine\n"


def test_a_person_is_asked_for_each_thing(server: ScriptedOpenAI, folder: Path) -> None:
    """Provider, address, model, key; then a channel with its token, which is as secret."""
    typed = ["own", server.base_url, "tiny", KEY, "y", "telegram", "123:token-of-the-bot"]
    result = run(input="".join(f"{line}\n" for line in typed))
    assert result.exit_code == 0, result.output
    assert "token-of-the-bot" not in result.output
    assert "shoal pair approve CODE" in result.output
    assert (folder / "secrets/telegram.token").read_text() == "123:token-of-the-bot\n"
    assert load().channels["telegram"]["token"].reveal() == "123:token-of-the-bot"


def test_without_a_key_none_is_sent_or_written(server: ScriptedOpenAI, folder: Path) -> None:
    """Ollama and vLLM on one's own machine; Enter and --no-test are enough."""
    typed = ["own", server.base_url, "tiny", "", "n"]
    assert run(input="".join(f"{line}\n" for line in typed)).exit_code == 0
    assert "authorization" not in server.requests()[0].headers
    assert {path.name for path in folder.iterdir()} == {"shoal.toml"}


@pytest.mark.parametrize("name", PROVIDERS)
def test_each_provider_is_reached_by_the_name_that_is_written(name: str, folder: Path) -> None:
    """Also when the person typed the prefix, too."""
    one = PROVIDERS[name]
    words = ["--provider", name, "--model", f"{one.prefix}some-model", "--no-test", "--key-env", "A_KEY"]
    address = ["--api-base", "http://127.0.0.1:1/v1"] if name == "own" else []
    assert run(*words, *address).exit_code == 0
    settings = load().model
    assert settings.name == f"{one.prefix}some-model"
    route = choose(settings)
    assert route.client == ("litellm" if name == "anthropic" else "direct")
    assert route.model.endswith("some-model")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--provider openai --model x", "OpenAI needs a key"),
        ("--provider ollama", "--provider needs --model"),
        ("--provider own --model x", "--provider own needs --api-base"),
        ("--provider openai --model x --key-env A_KEY --key-file k", "keep one of them"),
        ("--provider openai --model x --key-env NO_SUCH", "--key-env: NO_SUCH is empty"),
        ("--provider openai --model x --key-file nowhere", "cannot be read (FileNotFoundError)"),
        ("--provider ollama --model x --api-base ftp://a", "write a whole address"),
        ("--provider ollama --model x\x07y", "cannot be the name of a model"),
        ("--provider ollama --model x --channel telegram", "--channel needs --channel-token-file"),
    ],
)
def test_wrong_usage_is_exit_code_two_and_writes_nothing(words: str, message: str, folder: Path) -> None:
    """Each says what is missing."""
    result = run(*words.split(), "--no-test")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert list(folder.iterdir()) == []


def test_a_name_is_written_so_that_it_is_read_as_it_was_typed() -> None:
    """Quotes, letters of any language, and what looks like a variable of the environment."""
    name = 'a"b\\c-ü-😀-${HOME}-$${HOME}'
    assert run("--provider", "ollama", "--model", name, "--no-test").exit_code == 0
    assert load().model.name == f"ollama/{name}"


def test_a_file_that_shoal_config_names_is_not_passed_by(folder: Path) -> None:
    """What would be written is not what would be read."""
    result = run("--provider", "ollama", "--model", "x", "--no-test", SHOAL_CONFIG="other.toml")
    assert (result.exit_code, list(folder.iterdir())) == (2, [])
    assert "unset it" in result.stderr


def test_a_variable_that_overrides_the_file_is_named() -> None:
    """Or one wonders why the demo goes on answering."""
    result = run("--provider", "ollama", "--model", "x", "--no-test", SHOAL_MODEL__NAME="demo")
    assert "SHOAL_MODEL__NAME in your environment overrides" in result.stdout
