"""Another key for the model of the settings, in the file that has the one before."""

from __future__ import annotations

from pathlib import Path

from console.init.model_setup import ask_model
from shared.errors import SettingsError, ShoalError


def replace_key(text: str) -> Path:
    """Test the model with another key, then write it. Raises ShoalError; nothing is written
    then."""
    from msgspec.structs import replace

    from shared.embedded import write_private
    from shared.settings import Secret, load, own_key_file

    settings = load()
    file = own_key_file(settings)
    if file is None:
        raise SettingsError("model.api_key_file names no file of this folder, so there is no key to replace here")
    ask_model(replace(settings.model, api_key=Secret(text)))
    try:
        write_private(file, f"{text}\n")
    except OSError as exc:
        raise ShoalError(f"{str(file)!r} cannot be written: {exc.strerror}") from None
    return file
