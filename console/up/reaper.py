"""Ends the process groups it was told of when whoever started it is gone, however that died.

The supervisor holds the other end of its standard input and writes `watch <step> <pid>` or `forget
<pid>`. End of input means the supervisor is dead: groups get SIGTERM, lowest step first, then
SIGKILL. Standard library only; runs as a file, so that it starts in a moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

GRACE_S = 3.0


def main() -> None:
    """Read until the end, then clean up."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)
    steps: dict[int, int] = {}
    for line in sys.stdin:
        match line.split():
            case ["watch", step, pid]:
                steps[int(pid)] = int(step)
            case ["forget", pid]:
                steps.pop(int(pid), None)
    for step in sorted(set(steps.values())):
        _end([pid for pid, its_step in steps.items() if its_step == step])


def _end(groups: Iterable[int]) -> None:
    for sig, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 0.5)):
        deadline = time.monotonic() + wait_s
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, sig)
        while any(_alive(group) for group in groups) and time.monotonic() < deadline:
            time.sleep(0.02)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    main()
