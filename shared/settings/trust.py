"""Trust in the settings of a folder. A settings file decides where secrets of the environment are
sent, so a `shoal.toml` of somebody else must not be used because a person typed `shoal status`, or
Tab, in a folder that they had just unpacked."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from shared.errors import SettingsError
from shared.settings.layers import CONFIG_VARIABLE, DEFAULT_FILE
from shared.settings.load import child_environment, load
from shared.settings.sections.settings import Settings

_TRUSTED: Final = Path(".config", "shoal", "trusted")  # below the user's home: a hash a line


def load_trusted() -> Settings:
    """Load the settings for a command that sends something somewhere. A file that SHOAL_CONFIG
    names was chosen by the user; ./shoal.toml must have been trusted as it is now. Raises
    SettingsError."""
    mark = _mark()
    if mark is not None:
        try:
            trusted = (Path.home() / _TRUSTED).read_text(encoding="ascii").split()
        except (OSError, ValueError, RuntimeError):  # none yet, or a user without a home
            trusted = []
        if mark not in trusted:
            raise SettingsError(
                f"{str(DEFAULT_FILE.absolute())!r} is new or has changed, and it decides where your secrets are sent; "
                f"read it, then run `shoal config trust`, or name it in {CONFIG_VARIABLE}"
            )
    return load()


def trust_folder() -> bool:
    """Trust ./shoal.toml as it is now. Return False if there is none. Raises OSError,
    RuntimeError."""
    mark = _mark()
    if mark is None:
        return False
    file = Path.home() / _TRUSTED
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as out:
        out.write(f"{mark}\n")
    return True


def _mark() -> str | None:
    """Return the hash of ./shoal.toml and its place; None if it is not what would be loaded."""
    if child_environment({}).get(CONFIG_VARIABLE):
        return None
    try:
        content = DEFAULT_FILE.read_bytes()
    except OSError:
        return None  # there is none, or it cannot be loaded either
    return hashlib.sha256(os.fsencode(DEFAULT_FILE.resolve()) + b"\0" + content).hexdigest()
