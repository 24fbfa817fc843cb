"""Fail a fast test that starts a process: fast tests run on any machine, and nothing of theirs outlives them."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any, Final

_EVENTS: Final = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system"})
_allowed: Final[set[str]] = set()
_started: Final[list[str]] = []


def watch() -> None:
    """Note each start of a process from now on; Python has no way to take this back."""
    sys.addaudithook(_note)


def allow(folder: Path) -> None:
    """Let a server that works in `folder` be started: the Valkey of the fixture, which all tests of a run share."""
    _allowed.add(str(folder))


def collected() -> list[str]:
    """Return the starts since the last call, each with the lines that led to it, and forget them."""
    starts = _started.copy()
    _started.clear()
    return starts


def _note(event: str, args: tuple[Any, ...]) -> None:
    if event not in _EVENTS:
        return
    if event == "subprocess.Popen" and str(args[2]) in _allowed:  # its working folder
        return
    ours = [frame for frame in traceback.extract_stack() if "site-packages" not in frame.filename][-4:-1]
    lines = " <- ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(ours))
    _started.append(f"{event} {args[1] if event == 'subprocess.Popen' else args!r} at {lines}")
