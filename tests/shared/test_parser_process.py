"""Parsers that run where they can be ended, confined, with a deadline for each text."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.confinement import landlock
from shared.confinement.parser_process import ParserFailed, ParserProcess
from tests.helpers.need import need
from tests.helpers.wait import eventually

SOON_S = 30.0
ONE = b"b'1'"
BAD_EXPRESSION = "__import__('re').match(r'(a|aa)+$', 'a' * 60 + 'b')"
"""Takes for ever, in one call that no exception of Python interrupts."""


@asynccontextmanager
async def parsing(cpu_s: float = 10.0, wall_s: float = 20.0, idle_s: float = 60.0) -> AsyncIterator[ParserProcess]:
    """Their parser is `eval`: what an expression says is what the process does."""
    made = ParserProcess(
        "builtins:eval", cpu_s=cpu_s, wall_s=wall_s, memory_bytes=256 * 2**20, result_bytes=1000, idle_s=idle_s
    )
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize(
    "text",
    [
        BAD_EXPRESSION,
        "bytes(10**9)",
        "b'x' * 1001",
        "'no bytes'",
        "1 / 0",
        "__import__('os')._exit(0)",
        "__import__('os').kill(__import__('os').getpid(), 9)",
    ],
)
async def test_a_text_that_cannot_be_parsed_fails_and_the_next_one_does_not(text: str) -> None:
    """Time, memory, a result without measure, an exception, an end: the process goes on."""
    async with parsing(cpu_s=0.5) as parser:
        assert await parser.parse(ONE) == b"1"
        first = parser._process
        with pytest.raises(ParserFailed):
            await asyncio.wait_for(parser.parse(text.encode()), SOON_S)
        assert await parser.parse(ONE) == b"1"
        assert parser._process is first


async def test_a_text_without_work_is_ended_by_the_clock() -> None:
    """Time that it spends waiting counts for the second limit."""
    async with parsing(wall_s=0.5) as parser:
        with pytest.raises(ParserFailed):
            await parser.parse(b"__import__('time').sleep(60)")


async def test_texts_that_come_together_do_not_wait_for_each_other() -> None:
    """A slow one holds up nobody, also while the process starts."""
    async with parsing(cpu_s=3.0) as parser:
        slow = asyncio.create_task(parser.parse(BAD_EXPRESSION.encode()))
        quick = [parser.parse(f"b'%d' % {n}".encode()) for n in range(20)]
        assert await asyncio.gather(*quick) == [str(n).encode() for n in range(20)]
        assert not slow.done()
        with pytest.raises(ParserFailed):
            await slow


async def test_a_process_that_was_killed_is_started_again() -> None:
    """By the next text; a text that was waiting learns that it is not to blame."""
    async with parsing() as parser:
        await parser.parse(ONE)
        assert parser._process is not None
        os.kill(parser._process.pid, signal.SIGKILL)
        await parser._process.wait()
        assert await parser.parse(ONE) == b"1"


async def test_the_process_ends_when_nothing_comes() -> None:
    """An idle gateway keeps no memory for it."""
    async with parsing(idle_s=0.5) as parser:
        parsed = asyncio.create_task(parser.parse(ONE))
        process = await eventually(lambda: parser._process, within_s=SOON_S, what="its start")
        assert await parsed == b"1"
        assert process is not None
        await eventually(lambda: process.returncode == 0, within_s=SOON_S, what="its end")
        assert await parser.parse(ONE) == b"1"


async def test_the_end_of_its_owner_ends_the_process() -> None:
    """Nothing outlives a gateway that was killed: its end of the socket is closed then."""
    async with parsing() as parser:
        await parser.parse(ONE)
        process, control = parser._process, parser._control
        assert process is not None
        assert control is not None
        control.close()
        await asyncio.wait_for(process.wait(), SOON_S)


async def test_nothing_of_ours_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, no network, no other process, no environment, no handle."""
    need("Landlock", found=landlock.abi() >= landlock.NEEDED_ABI, install="Linux 6.2 or newer with Landlock on")
    secret = tmp_path / "secret"
    secret.write_text("canary")
    monkeypatch.setenv("SHOAL_CANARY", "canary")
    async with parsing() as parser:
        for text in (
            f"open({str(secret)!r}, 'rb').read()",
            f"open('/proc/{os.getpid()}/environ', 'rb').read()[:1]",
            "b'%d' % __import__('socket').socket().fileno()",
            f"b'%s' % str(__import__('os').kill({os.getpid()}, 0)).encode()",
            "open('pyproject.toml', 'rb').read()[:1]",
        ):
            with pytest.raises(ParserFailed):
                await parser.parse(text.encode())
        names = await parser.parse(b"' '.join(sorted(__import__('os').environ)).encode()")
        assert set(names.decode().split()) <= {"LANG", "LC_CTYPE"}


async def test_a_cancelled_start_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the process, which was made at that moment, nor its transport; also when it is cancelled again."""
    create, made, finish = asyncio.create_subprocess_exec, asyncio.Event(), asyncio.Event()

    async def created(*words: Any, **how: Any) -> asyncio.subprocess.Process:
        process = await create(*words, **how)
        made.set()
        await finish.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", created)
    async with parsing() as parser:
        task = asyncio.create_task(parser.parse(ONE))
        await made.wait()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        finish.set()
        with pytest.raises(asyncio.CancelledError):
            await task
