"""How long a turn goes on after a person said stop: `python -m proof.chaos.stops --stops 100`.

A gateway and two workers; a client of the gateway's socket stops turns in a streaming call of the model, in one that
hangs, in a command of exec, and while they wait for a subagent, in turn. Taken is the time from the `stop` frame to the
`stopped` line on the same socket. The exit code is 1 when p99 of one of them is over a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect

from proof.chaos.recovery import times_of
from shared.embedded import EmbeddedValkey
from shared.ids import folder_name
from tests.gateway.harness import free_port
from tests.helpers.fleet import warm
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

PROMISE_S: Final = 1.0
PATIENCE_S: Final = 60.0
TOKEN: Final = "a-token-of-this-program"
STREAM, HANG, EXEC, SUBAGENT = "streaming model", "hanging model", "exec", "subagent"
STATES: Final = (STREAM, HANG, EXEC, SUBAGENT)
_BEGAN: Final = "began"

Frame = dict[str, Any]


def script(model: ScriptedOpenAI) -> None:
    """What the model says to the name of a state."""
    command = json.dumps({"command": f"touch {_BEGAN}; sleep 60"})
    task = json.dumps({"task": "dig", "wait": True})
    model.script(
        Answer(match=f"^{STREAM}", text="and " * 600, delta_s=0.1, times=0),
        Answer(match=f"^{HANG}", fault="hang", times=0),
        Answer(match=f"^{EXEC}", calls=[Call("exec", command, "e1")], times=0),
        Answer(match=f"^{SUBAGENT}", calls=[Call("spawn", task, "s1")], times=0),
        Answer(match="^dig", fault="hang", times=0),
    )


class Fleet:
    """A gateway and two workers, which share their files."""

    def __init__(self, folder: Path, url: str, model: ScriptedOpenAI) -> None:
        self.port = free_port()
        self.root = folder / "workspaces"
        env = {
            "SHOAL_WORKER__LEASE_S": "3",
            "SHOAL_REDIS__URL": url,
            "SHOAL_DATA__DIR": str(folder),
            "SHOAL_WORKSPACE__ROOT": str(self.root),
            "SHOAL_WEB__PORT": str(self.port),
            "SHOAL_WEB__TOKEN": TOKEN,
            "SHOAL_INBOX__SENDER_PER_MINUTE": "10000",
            "SHOAL_MODEL__NAME": "openai/scripted",
            "SHOAL_MODEL__API_BASE": model.base_url,
            "SHOAL_MODEL__API_KEY": "none",
            "SHOAL_MODEL__CLIENT": "direct",
            "SHOAL_AGENT__TITLES": "false",  # calls of the model are counted
        }
        self.workers = [Process("worker", env=env, log=folder / f"worker-{at}.log") for at in range(2)]
        self.gateway = Process("gateway", env=env, log=folder / "gateway.log")

    def end(self) -> None:
        for member in (self.gateway, *self.workers):
            if member.alive:
                member.kill_group()


async def stops(folder: Path, url: str, *, many: int) -> Mapping[str, list[float]]:
    """The times in seconds of `many` stops, by what the turn was at."""
    times: dict[str, list[float]] = defaultdict(list)
    with ScriptedOpenAI() as model:
        script(model)
        fleet = Fleet(folder, url, model)
        try:
            await warm(*fleet.workers)
            await eventually(lambda: all("sandbox ready" in one.log for one in fleet.workers), within_s=PATIENCE_S)
            await eventually(lambda: _listens(fleet.port), within_s=PATIENCE_S, what="the gateway")
            async with connect(f"ws://127.0.0.1:{fleet.port}/ws", compression=None) as client:
                await _send(client, "hello", token=TOKEN)
                for number in range(many):
                    state = STATES[number % len(STATES)]
                    times[state].append(await _stop(client, fleet, model, state, f"c{number}"))
        finally:
            fleet.end()
    return times


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


async def _stop(client: ClientConnection, fleet: Fleet, model: ScriptedOpenAI, state: str, chat: str) -> float:
    """Say the name of the state in a new chat, wait until the turn is in it, and stop it; the seconds that took."""
    asked = len(model.requests())
    await _send(client, "message", id=f"m-{chat}", chat=chat, text=state)
    turn = (await _received(client, chat, lambda frame: frame["type"] == "accepted"))["turn"]

    async def model_asked(times: int) -> None:
        await eventually(lambda: len(model.requests()) >= asked + times, within_s=PATIENCE_S, what=state)

    async def command_began() -> None:
        mark = fleet.root / folder_name(f"web:owner/{chat}") / _BEGAN
        await eventually(mark.exists, within_s=PATIENCE_S, what="the command")

    async def text_came() -> None:
        await _received(client, chat, lambda frame: frame["type"] == "delta")

    at_work: dict[str, Callable[[], Awaitable[None]]] = {
        STREAM: text_came,
        HANG: lambda: model_asked(1),
        EXEC: command_began,
        SUBAGENT: lambda: model_asked(2),
    }
    await at_work[state]()
    began = time.monotonic()
    await _send(client, "stop", chat=chat, turn=turn)
    line = await _received(client, chat, lambda frame: frame["type"] == "reply")
    took = time.monotonic() - began
    if line["kind"] != "stopped":
        raise AssertionError(f"the turn in {state!r} ended with {line!r}, and not by the stop")
    return took


async def _received(client: ClientConnection, chat: str, wanted: Callable[[Frame], bool]) -> Frame:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            frame: Frame = json.loads(await client.recv())
            if frame["type"] == "error":
                raise AssertionError(f"the gateway refused: {frame!r}")
            if frame.get("chat") == chat and wanted(frame):
                return frame


async def _send(client: ClientConnection, type: str, **fields: Any) -> None:
    await client.send(json.dumps({"type": type, **fields}))


def main() -> int:
    """Measure and print a line for each state, and one for all."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.stops")
    parser.add_argument("--stops", type=int, default=100)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shoal-stops-"))
    server = EmbeddedValkey(folder / "valkey")
    server.start()
    try:
        times = asyncio.run(stops(folder, server.url, many=given.stops))
    finally:
        server.stop()
    shutil.rmtree(folder)
    kept = True
    for state, seconds in {**times, "all": [one for some in times.values() for one in some]}.items():
        found = times_of(seconds)
        kept &= found.p99 <= PROMISE_S
        sys.stdout.write(
            f"{state}: stopped {found.many} times, p50 {1000 * found.p50:.0f} ms, p99 {1000 * found.p99:.0f} ms, "
            f"max {1000 * found.worst:.0f} ms\n"
        )
    sys.stdout.write(f"{os.cpu_count()} cores; promise p99 <= {PROMISE_S:g} s {'kept' if kept else 'BROKEN'}\n")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
