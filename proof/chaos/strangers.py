"""Strangers who hold connections open, beside people who use them: `python -m proof.chaos.strangers`.

A gateway that may open few files serves the page, the API and a webhook. Against it, one after the other: sockets that
say nothing, headers that come byte by byte, calls of the API with a wrong token and a body that comes byte by byte, and
the same at the webhooks. Whoever is cut off comes again five seconds later. Meanwhile others load the page and log in,
somebody who was logged in before stays so, and a chat platform calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import aiohttp
import msgspec

from proof.chaos.stage import Row, perform
from shared.embedded import EmbeddedValkey
from shared.process.places import raise_file_limit
from shared.tasks import cancel_all
from tests.contracts.channels.bench import PersonAction
from tests.contracts.channels.benches.whatsapp import WhatsAppBench
from tests.fakes.whatsapp import FakeWhatsApp
from tests.gateway.harness import answers, free_port
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

TOKEN = "a-token-that-nobody-guesses"
LOADS = 20
CALLS = 50
SLOWEST_S = 1.0
AGAIN_S = 5.0

HEAD = "POST {} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n"
WRONG = "Authorization: Bearer wrong\r\n"


class Attack(msgspec.Struct, frozen=True):
    """What each of `sockets` connections sends: `first`, then a byte a second."""

    name: str
    sockets: int
    first: str = ""
    drips: bool = False


class Attackers:
    """The connections of an attack; `tried` counts those that were made."""

    def __init__(self, port: int, attack: Attack) -> None:
        self._port = port
        self._attack = attack
        self.tried = 0
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def attacking(self) -> AsyncIterator[None]:
        """Attack while the block runs; it begins when each has connected once."""
        self._tasks = [asyncio.create_task(self._one()) for _ in range(self._attack.sockets)]
        try:
            with contextlib.suppress(AssertionError):  # a gateway without limits accepts no more than it has files
                await eventually(lambda: self.tried >= self._attack.sockets, within_s=10)
            yield
        finally:
            await cancel_all(self._tasks)

    async def _one(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                self.tried += 1
                try:
                    await self._hold(reader, writer)
                finally:
                    writer.close()
            await asyncio.sleep(AGAIN_S)

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._attack.first.encode())
        ended = asyncio.create_task(reader.read())
        try:
            while not ended.done():
                if self._attack.drips:
                    writer.write(b"x")
                await asyncio.wait([ended], timeout=1)
            ended.result()
        finally:
            await cancel_all([ended])


async def strangers(folder: Path, *, files: int, silent: int, slow: int, spread_s: float = 5.0) -> Sequence[Row]:
    """All attacks, judged; what others do meanwhile is spread over so many seconds for each."""
    raise_file_limit()  # the attackers are in this process
    server, page, hooks = EmbeddedValkey(folder / "valkey"), free_port(), free_port()
    await asyncio.to_thread(server.start)
    async with FakeWhatsApp(known={"15550000000"}).serving() as platform:
        bench = WhatsAppBench(platform)
        lines = [f"{key} = {json.dumps(value)}" for key, value in bench.table().items()]  # JSON of texts is TOML, too
        (folder / "shoal.toml").write_text("\n".join(["[channels.whatsapp]", *lines]))
        env = {
            "SHOAL_CONFIG": str(folder / "shoal.toml"),
            "SHOAL_REDIS__URL": server.url,
            "SHOAL_DATA__DIR": str(folder),
            "SHOAL_WEB__TOKEN": TOKEN,
            "SHOAL_WEB__PORT": str(page),
            "SHOAL_HOOKS__PORT": str(hooks),
            "SHOAL_INBOX__SENDER_PER_MINUTE": "0",
        }
        gateway = Process("proof.chaos.strangers", "--serve", str(files), env=env, log=folder / "gateway.log")
        try:
            async with aiohttp.ClientSession() as http:
                await eventually(lambda: answers(f"127.0.0.1:{page}") and answers(f"127.0.0.1:{hooks}"), within_s=30)
                number = iter(range(1_000_000))
                load = partial(_load_page, f"127.0.0.1:{page}")
                call = partial(_call_hook, http, f"http://127.0.0.1:{hooks}/hooks/whatsapp", bench, number)
                await eventually(call, within_s=30, what="the channel")
                measure = partial(_measure, spread_s=spread_s)
                rows = await _at_page(page, load, measure, silent=silent, slow=slow)
                rows += await _at_hooks(hooks, call, measure, slow)
        finally:
            gateway.terminate()
            await asyncio.to_thread(gateway.wait)
            await asyncio.to_thread(server.stop)
    return [
        *rows,
        Row("lines in the gateway's log", (logged := gateway.log.count("\n")), logged < 60),
        Row("of them about places", (warned := gateway.log.count("places nearly used up")), warned > 0),
    ]


Try = Callable[[], Awaitable[bool]]
Measure = Callable[[str, Try, int], Awaitable[list[Row]]]


async def _at_page(port: int, load: Try, measure: Measure, *, silent: int, slow: int) -> list[Row]:
    attacks = [
        Attack("silent", silent),
        Attack("header by bytes", slow, "GET / HTTP/1.1\r\nHost: h\r\nX-Long: ", drips=True),
        Attack("wrong token, body by bytes", slow, HEAD.format("/v1/chat/completions") + WRONG + "\r\n", drips=True),
    ]
    rows = []
    async with aiohttp.ClientSession() as http, http.ws_connect(f"http://127.0.0.1:{port}/ws") as known:
        await known.send_json({"type": "hello", "token": TOKEN})
        await known.receive_json()
        for attack in attacks:
            attackers = Attackers(port, attack)
            async with attackers.attacking():
                rows += await measure(f"{attack.sockets} {attack.name}: pages", load, LOADS)
        answered = await _talks(known)
        rows.append(Row("who was logged in before is answered", answered, answered))
    return rows


async def _talks(socket: aiohttp.ClientWebSocketResponse) -> bool:
    """Whether a message on a socket that has been open for a while is accepted."""
    with contextlib.suppress(OSError, TimeoutError, aiohttp.ClientError, TypeError):
        await socket.send_json({"type": "message", "id": "known", "chat": "a", "text": "hello"})
        return bool((await socket.receive_json(timeout=10))["type"] == "accepted")
    return False


async def _at_hooks(port: int, call: Try, measure: Measure, slow: int) -> list[Row]:
    attack = Attack("slow strangers at the webhooks", slow, HEAD.format("/hooks/whatsapp") + "\r\n", drips=True)
    async with Attackers(port, attack).attacking():
        return await measure(f"{slow} {attack.name}: calls", call, CALLS)


async def _measure(name: str, one: Try, times: int, *, spread_s: float) -> list[Row]:
    """Do something so many times, and count what worked and how long it took."""
    took = []
    for _ in range(times):
        began = time.monotonic()
        with contextlib.suppress(OSError, TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(10):
                if await one():
                    took.append(time.monotonic() - began)
        await asyncio.sleep(spread_s / times)
    worst = max(took, default=10.0)
    return [
        Row(f"{name} of {times}", len(took), len(took) == times),
        Row(f"{name}, slowest s", worst, worst <= SLOWEST_S),
    ]


async def _load_page(address: str) -> bool:
    """Load the page and its script on a connection each, and log in."""
    base = f"http://{address}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        for path in ("/", "/static/app.js"):
            async with http.get(base + path) as answer:
                if answer.status != 200 or not await answer.read():
                    return False
        async with http.ws_connect(f"{base}/ws") as socket:
            await socket.send_json({"type": "hello", "token": TOKEN})
            return bool((await socket.receive_json())["type"] == "welcome")


async def _call_hook(http: aiohttp.ClientSession, url: str, bench: WhatsAppBench, number: object) -> bool:
    """Deliver one signed message."""
    asked = bench.hook(PersonAction(chat=bench.chat(0), text="hello", id=f"m{next(number)}"))  # type: ignore[call-overload]
    async with http.post(
        url, data=asked.body, headers=dict(asked.headers), timeout=aiohttp.ClientTimeout(10)
    ) as answer:
        return answer.status == 200


def serve(files: int) -> None:
    """Become a gateway that may open this many files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    os.execv(sys.executable, [sys.executable, "-m", "gateway"])


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.strangers")
    parser.add_argument("--silent", type=int, default=1500)
    parser.add_argument("--slow", type=int, default=300)
    parser.add_argument("--files", type=int, default=1024)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
    return perform(
        f"{given.silent} silent and {given.slow} slow strangers, {given.files} files",
        partial(strangers, files=given.files, silent=given.silent, slow=given.slow),
        within_s=300,
    )


if __name__ == "__main__":
    sys.exit(main())
