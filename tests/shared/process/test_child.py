"""Processes whose start or end is cancelled; the processes are made up."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from typing import cast

import pytest

from shared.process.child import end_process, start_process


class FakeProcess:
    """A process that ends some turns of the event loop after it was killed."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.killed = asyncio.Event()

    def kill(self) -> None:
        self.killed.set()

    async def wait(self) -> int:
        await self.killed.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        self.returncode = -9
        return self.returncode


async def cancel_often(task: asyncio.Task[object]) -> None:
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)


async def test_a_process_whose_start_is_cancelled_has_ended_then() -> None:
    process, begun, finish = FakeProcess(), asyncio.Event(), asyncio.Event()

    async def start() -> Process:
        begun.set()
        await finish.wait()
        return cast(Process, process)

    starting = asyncio.create_task(start_process(start()))
    await begun.wait()
    await cancel_often(starting)
    finish.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert process.returncode == -9


async def test_a_start_that_fails_says_so() -> None:
    async def start() -> Process:
        raise FileNotFoundError("python")

    with pytest.raises(FileNotFoundError):
        await start_process(start())


async def test_an_end_that_is_cancelled_is_awaited_all_the_same() -> None:
    process = FakeProcess()
    ending = asyncio.create_task(end_process(cast(Process, process)))
    await asyncio.sleep(0)
    await cancel_often(ending)
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert process.returncode == -9
