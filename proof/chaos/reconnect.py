"""How long a page stands without its gateway: `python -m proof.chaos.reconnect --kills 20`.

`make up` with one gateway, and a real browser at its page. The gateway is killed with SIGKILL again and again; measured
is the time until the page is welcomed by its successor. Needs chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import sys
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import psutil
from playwright.async_api import Page, WebSocket

from proof.chaos.recovery import times_of
from proof.chaos.stage import Row, perform
from tests.helpers.chromium import chromium
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

READY = re.compile(r"Shoal is ready: (http://\S+)")
P50_S, P99_S = 1.0, 2.5
BETWEEN_S = (2.0, 14.0)
"""Between a welcome and the next kill. After less than ten seconds `make up` does not count the life as a good one."""


@contextlib.asynccontextmanager
async def shoal_up(folder: Path) -> AsyncIterator[Process]:
    """Run `shoal up` on free ports."""
    env = {"SHOAL_DATA__DIR": str(folder / "data"), "SHOAL_WEB__PORT": "0"}
    process = Process("console", "up", env=env, log=folder / "up.log")
    try:
        yield process
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 30)


def gateway_of(process: Process) -> psutil.Process:
    """Return the gateway that runs under `process`."""
    [found] = [child for child in process.children() if child.cmdline()[-2:] == ["-m", "gateway"]]
    return found


async def reconnects(page: Page, process: Process, address: str, kills: int, chance: random.Random) -> list[float]:
    """Kill the gateway again and again; return how long each time the page was without one, in s."""
    welcomed: asyncio.Queue[float] = asyncio.Queue()

    def on_frame(data: str | bytes) -> None:
        if '"welcome"' in str(data)[:40]:
            welcomed.put_nowait(time.monotonic())

    def on_socket(socket: WebSocket) -> None:
        socket.on("framereceived", on_frame)

    page.on("websocket", on_socket)
    await page.goto(address)
    await welcomed.get()
    times = []
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(*BETWEEN_S))
        gateway_of(process).kill()
        killed_at = time.monotonic()
        times.append(await welcomed.get() - killed_at)
    return times


async def play(folder: Path, *, kills: int, seed: int) -> Sequence[Row]:
    """Run one page through all kills."""
    async with shoal_up(folder) as process, chromium() as browser:
        [address] = await eventually(lambda: READY.findall(process.log), within_s=60)
        page = await browser.new_page()
        times = times_of(await reconnects(page, process, address, kills, random.Random(seed)))
    return [
        Row("kills", times.many),
        Row("without a gateway, p50 s", times.p50, times.p50 <= P50_S),
        Row("p99 s", times.p99, times.p99 <= P99_S),
        Row("max s", times.worst),
    ]


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.reconnect")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return perform("killed gateways", partial(play, kills=given.kills, seed=given.seed), within_s=90 + given.kills * 25)


if __name__ == "__main__":
    sys.exit(main())
