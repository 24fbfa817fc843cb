"""The settings that `shoal init` makes: checked, tested with one call to the model, written."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shared.errors import ModelError, SettingsError, ShoalError

if TYPE_CHECKING:
    from shared.settings import ModelSettings

SETTINGS_FILE: Final = Path("shoal.toml")
SECRETS: Final = Path("secrets")
_TEST_S: Final = 60.0


def model_settings(prefix: str, model: str, api_base: str | None, key: str | None) -> ModelSettings:
    """Return the settings of the model. Raises SettingsError if they cannot work."""
    from shared.settings import ModelSettings, Secret
    from shared.settings.sections.language_models import http_url_problem
    from worker.llm.routes import choose

    if problem := http_url_problem(api_base):
        raise SettingsError(f"--api-base {problem}")
    if not model.isprintable():
        raise SettingsError(f"--model: {model!r} cannot be the name of a model")
    name = model if model.startswith(prefix) else f"{prefix}{model}"
    settings = ModelSettings(name=name, api_base=api_base, api_key=Secret(key) if key else None)
    choose(settings)
    return settings


def ask_model(settings: ModelSettings) -> None:
    """Ask the model one thing, by the route that a worker takes. Raises ShoalError with advice."""
    import asyncio

    from worker.llm.question import ask_once, describe_fault

    try:
        asyncio.run(ask_once(settings, within_s=_TEST_S))
    except ModelError as exc:
        raise ShoalError(f"{describe_fault(settings, exc, within_s=_TEST_S)}. Nothing is written") from None


def write_settings(settings: ModelSettings, channel: str | None, token: str | None) -> list[Path]:
    """Write secrets, then the settings that name them, each at once; return the files. The settings
    are trusted: their user has just chosen them."""
    from shared.embedded import write_private
    from shared.settings.trust import trust_folder

    lines = ["# Written by `shoal init`. deploy/shoal.example.toml has every setting.", "[model]"]
    lines.append(f"name = {_toml(settings.name)}")
    if settings.api_base:
        lines.append(f"api_base = {_toml(settings.api_base)}")
    secrets = {}
    if settings.api_key is not None:
        secrets[SECRETS / "model.key"] = settings.api_key.reveal()
        lines.append(f'api_key_file = "{SECRETS / "model.key"}"')
    if channel and token:
        secrets[SECRETS / f"{channel}.token"] = token
        lines += ["", f"[channels.{channel}]", f'token_file = "{SECRETS / channel}.token"']
    try:
        if secrets:
            SECRETS.mkdir(mode=0o700, exist_ok=True)
        for path, text in secrets.items():
            write_private(path, f"{text}\n")
        if SETTINGS_FILE.exists():
            SETTINGS_FILE.replace(SETTINGS_FILE.with_name("shoal.toml.old"))
        write_private(SETTINGS_FILE, "\n".join(lines) + "\n")
    except OSError as exc:
        raise ShoalError(f"the settings cannot be written here: {exc.strerror}") from None
    with contextlib.suppress(OSError, RuntimeError):
        trust_folder()
    return [SETTINGS_FILE, *secrets]


def _toml(text: str) -> str:
    """Return a string of TOML that is read as `text`: settings fill `${NAME}` in."""
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False)
