"""The file of the model's key, which the page and `shoal init --replace-key` replace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, NamedTuple

from shared.errors import SettingsError
from shared.settings import load, own_key_file

LOOK_S: Final = 0.5


async def new_keys(*, look_s: float = LOOK_S) -> AsyncGenerator[str]:
    """Yield once for each time that the file of the model's key has changed, for ever: "", or why no
    process could start with it as it is now. End at once where the key is in no file of this folder."""
    try:
        file = own_key_file(load())
    except SettingsError:  # the processes say what is wrong with them
        return
    if file is None:
        return
    seen = _stamp(file)
    fault = ""
    while True:
        await asyncio.sleep(look_s)
        stamp = _stamp(file)
        # One that is gone is being replaced, or was taken away: what runs has the key.
        if stamp is None or seen == stamp:
            continue
        # A change of owner or mode alone is another key only where that was what was wrong.
        if fault or seen is None or (seen.written_ns, seen.inode) != (stamp.written_ns, stamp.inode):
            fault = _settings_fault()
            yield fault
        seen = stamp


class _Stamp(NamedTuple):
    written_ns: int
    inode: int
    changed_ns: int
    """Also by another owner or mode."""


def _stamp(file: Path) -> _Stamp | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return _Stamp(stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns)


def _settings_fault() -> str:
    """Return why the settings cannot be loaded; "" if they can. An editor may have saved half a
    file."""
    try:
        load()
    except SettingsError as exc:
        return str(exc)
    return ""
