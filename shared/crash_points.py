"""Named places at which a test kills this process, as a power cut would: SIGKILL, without any
cleanup. Active only where SHOAL_CRASH_FILE names a file, which no installation does: `<point>
<visit>` in it arms one point, and the first process that reaches it for that time deletes the file
and dies. Everywhere else a point costs one comparison."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Final

VARIABLE: Final = "SHOAL_CRASH_FILE"

_file = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
_visits: Counter[str] = Counter()
_armed = ""


def crash_point(name: str) -> None:
    """Kill this process if a test armed the point."""
    global _armed
    if _file is None:
        return
    try:
        armed = _file.read_text()
    except FileNotFoundError:
        return
    if armed != _armed:  # visits count from the moment of arming
        _armed = armed
        _visits.clear()
    _visits[name] += 1
    wanted, _, visit = armed.partition(" ")
    if name == wanted and _visits[name] == int(visit or 1):
        _file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
