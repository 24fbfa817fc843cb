"""`make up` as a newcomer meets it: the demo model, a killed worker, Ctrl-C, and the chats still there afterwards."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import psutil

from tests.gateway.harness import client, free_port
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

READY = re.compile(r"Shoal is ready: http://(\S+)/#token=(\S+)")


def up(folder: Path, port: int, log: str) -> Process:
    env = {
        "SHOAL_DATA__DIR": str(folder / "data"),
        "SHOAL_WEB__PORT": str(port),
        "SHOAL_LOG__FORMAT": "auto",
        "SHOAL_WORKER__LEASE_S": "15",
    }
    return Process("console", "up", env=env, log=folder / log)


async def ready(shoal: Process) -> tuple[str, str]:
    """The address and the token of the line that it prints."""
    found = await eventually(lambda: READY.findall(shoal.log), within_s=60)
    [(address, token)] = found
    return address, token


async def end(shoal: Process) -> list[psutil.Process]:
    """Ctrl-C; the processes that were there before."""
    processes = shoal.children()
    os.kill(shoal.pid, signal.SIGINT)
    assert await asyncio.to_thread(shoal.wait, 30) == 0
    return processes


async def test_a_newcomer_asks_kills_and_comes_back(tmp_path: Path) -> None:
    """The whole first hour: an answer with a tool, a killed worker, a clean end, the chat after a restart."""
    port = free_port()
    shoal = up(tmp_path, port, "first.log")
    try:
        address, token = await ready(shoal)
        async with client(address, token) as person:
            await person.say("first", "Calculate 37 * 91")
            assert "3367" in (await person.next("reply", chat="first"))["text"]
            await person.say("first", "tell me a long story")
            await person.next("delta", chat="first")
            worker = shoal.child("worker.main")  # the spare is younger
            worker.kill()
            again = await person.next("delta", chat="first", attempt=2)
            assert again["turn"] == 2
            await person.send("stop", chat="first")
            assert (await person.next("reply", chat="first"))["kind"] == "stopped"
        assert "demo" in shoal.log
        left = await end(shoal)
        await eventually(lambda: not any(process.is_running() for process in left), within_s=30)

        shoal = up(tmp_path, port, "second.log")
        address, token = await ready(shoal)
        async with client(address, token) as person:
            await person.send("resume", chat="first", after=0)
            resumed = await person.next("resumed", chat="first")
            assert resumed["seq"] == 4
            assert person.seqs("first") == [1, 2, 3, 4]
            await person.send("chats")
            [chat] = (await person.next("chats"))["chats"]
            assert chat["title"] == "Calculate 37 * 91"
        await end(shoal)
    finally:
        if shoal.alive:
            shoal.kill_group()


async def test_settings_that_a_worker_cannot_start_with_end_it_all(tmp_path: Path) -> None:
    """One clear line and code 2, instead of a page that says ready and never answers."""
    env = {
        "SHOAL_DATA__DIR": str(tmp_path / "data"),
        "SHOAL_WEB__PORT": str(free_port()),
        "SHOAL_MODEL__NAME": "anthropic/x",
        "SHOAL_MODEL__CLIENT": "direct",
    }
    shoal = Process("console", "up", env=env, log=tmp_path / "up.log")
    try:
        assert await asyncio.to_thread(shoal.wait, 30) == 2
        assert "model.client" in shoal.log
        assert "cannot start" in shoal.log
    finally:
        if shoal.alive:
            shoal.kill_group()
