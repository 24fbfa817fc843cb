"""`shoal init`: asks for a model and its key, in a terminal or by options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from console.init.model_setup import SECRETS, SETTINGS_FILE, ask_model, model_settings, write_settings
from console.init.replace_key import replace_key
from console.output import as_json, examples, print_json
from shared.errors import SettingsError, ShoalError

if TYPE_CHECKING:
    from shared.settings import ModelSettings


class _Provider(NamedTuple):
    """A provider as people know it: the prefix of its models' names, a model to begin with, its
    usual address if it has none of its own, and whether a key is needed."""

    title: str
    prefix: str
    model: str
    needs_key: bool = True
    api_base: str = ""


PROVIDERS: Final = {
    "anthropic": _Provider("Anthropic", "anthropic/", "claude-sonnet-4-5"),
    "openai": _Provider("OpenAI", "openai/", "gpt-5-mini"),
    "openrouter": _Provider("OpenRouter", "openrouter/", "anthropic/claude-sonnet-4.5"),
    "ollama": _Provider("Ollama", "ollama/", "llama3.2", False, "http://127.0.0.1:11434"),
    "vllm": _Provider("vLLM", "hosted_vllm/", "", False, "http://127.0.0.1:8000/v1"),
    "own": _Provider("your own address, which speaks OpenAI's protocol", "custom/", "", False),
}
_WITH_A_TOKEN: Final = ("telegram", "discord")
"""Chat platforms for which one secret is all that they need."""


@click.command(
    epilog=examples(
        "shoal init",
        "shoal init --provider anthropic --model claude-sonnet-4-5 --key-env ANTHROPIC_API_KEY",
        "shoal init --replace-key",
        "shoal init --provider own --model my-model --api-base http://10.0.0.7:8000/v1",
    )
)
@click.option("--provider", type=click.Choice(list(PROVIDERS)), help="Who serves the model; asked for if missing.")
@click.option("--model", metavar="NAME", help="The provider's name of the model.")
@click.option("--api-base", metavar="URL", help="Address of Ollama, vLLM or your own server.")
@click.option("--key-file", metavar="FILE", help="Read the key from this file; - is standard input.")
@click.option("--key-env", metavar="NAME", help="Read the key from this variable of the environment.")
@click.option("--channel", type=click.Choice(_WITH_A_TOKEN), help="Serve this chat platform, too.")
@click.option("--channel-token-file", metavar="FILE", help="Read the token of its bot from this file.")
@click.option("--no-test", is_flag=True, help="Write without asking the model.")
@click.option("--replace-key", "key_only", is_flag=True, help="Only test and replace the key of the model in use.")
@click.option("--force", is_flag=True, help="Replace an existing ./shoal.toml; it is kept as shoal.toml.old.")
@as_json
def init(
    provider: str | None,
    model: str | None,
    api_base: str | None,
    key_file: str | None,
    key_env: str | None,
    channel: str | None,
    channel_token_file: str | None,
    no_test: bool,
    key_only: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Choose a model, test it with one call, and write ./shoal.toml and the key's file.

    With --provider nothing is asked. A key is never an option, and never printed: others can read
    command lines.
    """
    if key_only:
        _replace_key(key_file, key_env, as_json)
        return
    asked = provider is None
    if channel and not channel_token_file:
        raise click.UsageError("--channel needs --channel-token-file.")
    _check_place(force)
    if provider is None:
        for name, one in PROVIDERS.items():
            click.echo(f"  {name:<11} {one.title}")
        provider = click.prompt("Who serves the model", type=click.Choice(list(PROVIDERS)), default="anthropic")
    chosen = PROVIDERS[provider]
    if asked and api_base is None and not chosen.needs_key:
        api_base = click.prompt("Its address", default=chosen.api_base or None)
    if model is None and asked:
        model = click.prompt("The name of the model", default=chosen.model or None)
    if not model:
        raise click.UsageError("--provider needs --model.")
    if provider == "own" and not api_base:
        raise click.UsageError("--provider own needs --api-base.")
    key = _read_secret("--key-file", key_file, key_env)
    if key is None and asked:
        hint = "" if chosen.needs_key else " (Enter: none)"
        key = click.prompt(
            f"The key{hint}", default=None if chosen.needs_key else "", hide_input=True, show_default=False
        )
    if chosen.needs_key and not key:
        raise click.UsageError(f"{chosen.title} needs a key: --key-file or --key-env.")
    settings = model_settings(chosen.prefix, model, api_base, key)
    if not no_test:
        if not as_json:
            click.echo(f"Asking {settings.name} one thing ...")
        try:
            ask_model(settings)
        except ShoalError as exc:
            if as_json:  # a program, or the page, has no use for an option
                raise
            raise ShoalError(f"{exc}; --no-test writes without asking") from None
        if not as_json:
            click.echo("It answers.")
    if asked and click.confirm("Also serve a chat platform (Telegram, Discord)?", default=False):
        channel = click.prompt("Which", type=click.Choice(_WITH_A_TOKEN))
    token = _read_secret("--channel-token-file", channel_token_file, None)
    if asked and channel and token is None:
        token = click.prompt("The token of its bot", hide_input=True)
    written = write_settings(settings, channel, token)
    if as_json:
        print_json({"model": settings.name, "tested": not no_test, "written": [str(path) for path in written]})
        return
    click.echo(f"Written: {', '.join(map(str, written))}.")
    for note in _notes(settings, channel):
        click.echo(note)


def _replace_key(key_file: str | None, key_env: str | None, as_json: bool) -> None:
    key = _read_secret("--key-file", key_file, key_env)
    if key is None:
        key = click.prompt("The key", hide_input=True)
    file = replace_key(key)
    if as_json:
        print_json({"tested": True, "written": [str(file)]})
    else:
        click.echo(f"It answers. Written: {file}. `shoal up` starts the workers again, if it runs in this folder.")


def _check_place(force: bool) -> None:
    """Raise an error if the settings would be written where they are not read, or over others."""
    from shared.settings import child_environment

    if child_environment({}).get("SHOAL_CONFIG"):
        raise SettingsError("SHOAL_CONFIG names another settings file; unset it, or change that file by hand")
    secrets = ("model.key", *(f"{channel}.token" for channel in _WITH_A_TOKEN))
    existing = [path for path in (SETTINGS_FILE, *(SECRETS / name for name in secrets)) if path.exists()]
    if existing and not force:
        raise ShoalError(f"{str(existing[0])!r} exists; --force replaces it, and keeps shoal.toml as shoal.toml.old")


def _read_secret(option: str, file: str | None, variable: str | None) -> str | None:
    """Return the secret of a file or a variable; None when neither is given."""
    from shared.settings import child_environment

    if file is not None and variable is not None:
        raise click.UsageError("--key-file and --key-env are both given; keep one of them.")
    if variable is not None:
        text = child_environment({}).get(variable, "")
        source = f"--key-env: {variable}"
    elif file is not None:
        source = f"{option}: {file!r}"
        try:
            text = sys.stdin.read() if file == "-" else Path(file).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise click.UsageError(f"{source} cannot be read ({type(exc).__name__}).") from None
    else:
        return None
    if not text.strip():
        raise click.UsageError(f"{source} is empty.")
    return text.strip()


def _notes(settings: ModelSettings, channel: str | None) -> list[str]:
    from importlib.util import find_spec

    from shared.settings import load

    notes = ["Start Shoal with `shoal up` (or `make up`); if it runs, end it with Ctrl-C first."]
    if load().model.name != settings.name:
        notes.append("SHOAL_MODEL__NAME in your environment overrides the model of the file: unset it.")
    if channel:
        notes.append(f"Write to your bot, and let yourself in: `shoal pair approve CODE` (docs/channels/{channel}.md).")
    if channel and find_spec({"telegram": "aiogram"}.get(channel, channel)) is None:
        notes.append("Its library is missing: run `make channels`, or install Shoal with its extra 'channels'.")
    return notes
