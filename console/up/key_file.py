"""The file of the model's key, which the page and `shoal init --replace-key` replace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from shared.errors import SettingsError
from shared.settings import load, own_key_file

LOOK_S: Final = 0.5


async def new_keys(*, look_s: float = LOOK_S) -> AsyncGenerator[None]:
    """Yield once for each time that the file of the model's key has changed, for ever; end at once
    where the key is in no file of this folder."""
    try:
        file = own_key_file(load())
    except SettingsError:  # the processes say what is wrong with them
        return
    if file is None:
        return
    seen = _stamp(file)
    while True:
        await asyncio.sleep(look_s)
        stamp = _stamp(file)
        # One that is gone is being replaced, or was taken away: what runs has the key.
        if stamp is not None and stamp != seen:
            seen = stamp
            yield


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino
