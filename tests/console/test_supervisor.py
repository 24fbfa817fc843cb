"""One process of `shoal up`: how it is ended and started again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys

import pytest

from console.up.supervisor import Child, Reaper
from tests.helpers.wait import eventually

# SIGWINCH, because Python runs its handler after that of a SIGTERM which came with it.
DRAINING = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked to end", flush=True))
signal.signal(signal.SIGWINCH, lambda *_: (print("drained", flush=True), os._exit(0)))
print("pid %d" % os.getpid(), flush=True)
while True: time.sleep(3600)
"""


class Lines:
    """What the process printed."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def add(self, name: str, line: str) -> None:
        self.all.append(line)

    def pids(self) -> list[int]:
        return [int(found[1]) for line in self.all if (found := re.match(r"pid (\d+)", line))]


@pytest.mark.parametrize("again", ["restart", "stop"])
async def test_a_process_that_drains_is_not_asked_again(again: str) -> None:
    """A second SIGTERM would cut its running turns. The next process is asked like the first."""
    lines = Lines()
    reaper = Reaper()
    child = Child("worker", [sys.executable, "-c", DRAINING], dict(os.environ), 1, lines.add, reaper, asyncio.Event())
    child.start()
    try:
        [first] = await eventually(lines.pids)
        child.restart()
        await eventually(lambda: "asked to end" in lines.all)
        if again == "stop":
            stopping = asyncio.create_task(child.stop(30.0))
            await asyncio.sleep(0)
        else:
            child.restart()
        os.kill(first, signal.SIGWINCH)
        await eventually(lambda: "drained" in lines.all)
        assert lines.all.count("asked to end") == 1
        if again == "stop":
            await stopping
            return
        [_, second] = await eventually(lambda: lines.pids()[1:] and lines.pids())
        child.restart()
        await eventually(lambda: lines.all.count("asked to end") == 2)
        os.kill(second, signal.SIGWINCH)
    finally:
        child.kill()
        await child.stop(1.0)
        await asyncio.to_thread(reaper.close)
