"""What is left of a call that was cancelled, and of a result that is too long: for every Tool there is."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests.contracts.offered import BIG, FILES, OFFERED, Ask, Offered
from tests.helpers.text_files import TextFiles
from tests.helpers.wait import eventually
from worker.agent.model.model import ToolCallRequest
from worker.agent.tools.tool import ToolOutcome
from worker.agent.tools.toolbox import Toolbox

LIMIT_BYTES = 10_000
NOTE_BYTES = 200
LONG_S = 30.0
"""For a slow, loaded machine."""

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=list(OFFERED))
async def offered(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Offered]:
    async with OFFERED[request.param](tmp_path) as made:
        yield made


class Running(msgspec.Struct, frozen=True):
    """What this process has at work: tasks, processes below it, threads that do something, open files and sockets."""

    tasks: frozenset[int]
    processes: frozenset[int]
    threads: frozenset[str]
    handles: int

    def more_than(self, before: Running) -> str:
        """What was not there before; `""` when there is nothing."""
        new = {
            "tasks": self.tasks - before.tasks,
            "processes": self.processes - before.processes,
            "threads": self.threads - before.threads,
            "handles": max(0, self.handles - before.handles),
        }
        return ", ".join(f"{what}: {found}" for what, found in new.items() if found)


def running() -> Running:
    me = psutil.Process()
    processes = set()
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.status() != psutil.STATUS_ZOMBIE:
                processes.add(child.pid)
    return Running(frozenset(map(id, asyncio.all_tasks())), frozenset(processes), frozenset(busy()), me.num_fds())


def busy() -> list[str]:
    """Threads of pools that do not just wait for work."""
    names = {
        thread.ident: thread.name for thread in threading.enumerate() if thread.name.startswith(("asyncio", "files"))
    }
    frames = sys._current_frames()
    return [name for ident, name in names.items() if ident in frames and frames[ident].f_code.co_name != "_worker"]


async def call(offered: Offered, asked: Ask | None = None, **more: Any) -> ToolOutcome:
    tool, arguments = asked or (offered.tool, offered.good)
    box = Toolbox([tool], result_limit_bytes=LIMIT_BYTES)
    return await box.call(ToolCallRequest("c1", tool.name, arguments, ""), offered.context(**more))


async def test_a_cancelled_call_leaves_nothing_running(offered: Offered) -> None:
    """No task, process, thread at work, open file or connection: the turn belongs to another worker by then."""
    if offered.hangs is None:
        pytest.skip("it has nothing to wait for")
    assert (await call(offered)).ok  # what a first call makes for good, such as threads that wait for work
    before = running()
    for _ in range(3):
        hanging = asyncio.create_task(call(offered, offered.hangs, **offered.hanging))
        await begun(offered, hanging)
        hanging.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await hanging
        await eventually(partial(_as_before, offered, before), LONG_S, what="the end of all that a call was")
    assert (await call(offered)).ok, "others are served as before"


def _as_before(offered: Offered, before: Running) -> bool:
    return not running().more_than(before)


async def begun(offered: Offered, hanging: asyncio.Task[ToolOutcome]) -> None:
    """Wait until the call is at work, if it can be told."""
    for _ in range(20):
        await asyncio.sleep(0)
    waiting = offered.begun()
    if waiting is None:
        return
    async with asyncio.timeout(LONG_S):
        await waiting
    assert not hanging.done()


async def test_a_cancellation_at_any_step_leaves_nothing_running(offered: Offered) -> None:
    """Also one that comes before the call is at work, or while it starts a process."""
    assert (await call(offered)).ok
    before = running()
    for steps in (0, 1, 2, 3, 5, 8, 13, 21):
        task = asyncio.create_task(call(offered))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await eventually(partial(_as_before, offered, before), LONG_S, what="the end of all that calls were")


async def test_a_long_result_is_cut_with_a_note_and_kept_whole(offered: Offered) -> None:
    """The note names the file; of a tool that shows its results in parts, no part is over the limit."""
    files = TextFiles(
        dict.fromkeys(FILES, "- Ada likes tea and é\n" * (BIG // 20)) | {f"skills/{n:05}.md": "" for n in range(3000)}
    )
    outcome = await call(offered, offered.big, files=files)
    assert len(outcome.content.encode()) <= LIMIT_BYTES + NOTE_BYTES
    if offered.big is None:
        return
    assert outcome.ok
    assert "the whole is in the file 'results/1-c1.txt']" in outcome.content[-NOTE_BYTES:]
    whole = files.texts["results/1-c1.txt"]
    assert whole.count("x") >= BIG
    assert outcome.content.startswith(whole[: LIMIT_BYTES // 2])
