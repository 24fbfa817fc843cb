"""Files of exported sessions: names, contents in numbers, atomic writes."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shared.errors import BadInput
from shared.ids import log_id
from shared.terminal_text import counted

if TYPE_CHECKING:
    from shared.store.sessions.backup import SessionFile

NAME_CHARS: Final = 80


def file_name(session: str) -> str:
    """Return a readable file name that every file system accepts and no other session has."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', session)[:NAME_CHARS]}-{log_id(session)}.json"


def counts(file: SessionFile, session: str) -> dict[str, Any]:
    """Count the contents of a file, for programs."""
    return {
        "session": session,
        "memory_bytes": len(file.memory_md.encode()),
        "history_entries": len(file.history_md),
        "entries": None if file.conversation is None else len(file.conversation),
        "archived_entries": None if file.archive is None else len(file.archive),
        "unreadable": file.unreadable,
    }


def describe(file: SessionFile) -> str:
    """Describe the contents of a file in a sentence, for people."""
    parts = [
        f"MEMORY.md with {counted(len(file.memory_md.encode()), 'byte')}",
        f"HISTORY.md with {counted(len(file.history_md), 'entry', 'entries')}",
    ]
    if file.conversation is not None:
        parts.append(f"a conversation of {counted(len(file.conversation), 'entry', 'entries')}")
    if file.archive:
        parts.append(f"{counted(len(file.archive), 'earlier entry', 'earlier entries')} not in memory yet")
    return ", ".join(parts)


def write(path: Path, data: bytes) -> None:
    """Write the whole file or none, readable by its owner only: it holds conversations. Raises
    BadInput."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as exc:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise BadInput("no_file", f"{str(path)!r} cannot be written: {exc.strerror}") from None
