"""Whether bubblewrap starts in this process's place: prints `started`, or why not. For tests.helpers.pod."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from worker.sandbox.bubblewrap import Bubblewrap
from worker.sandbox.command import SandboxBroken


def main(_: Sequence[str]) -> int:
    """0 when it starts."""
    try:
        asyncio.run(Bubblewrap.find())
    except SandboxBroken as exc:
        print(exc)
        return 1
    print("started")
    return 0
