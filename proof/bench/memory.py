"""What is held: of a session in Redis, of a turn in a worker, of an open socket in a gateway.

Redis is asked for `used_memory` with so many sessions more, each left by the product's own writes; no worker is there.
A worker's and a gateway's figure is what the process grew by, divided by how many came. *Bare* is the same server with
the same settings and an app that only accepts: what no gateway on it can go below.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Final

import uvloop

from proof.bench.children import Child, Children
from proof.bench.crowd import crowd
from proof.bench.plan import Plan
from proof.bench.server import emptied, server, used_memory
from proof.bench.sessions import history, make_sessions
from proof.bench.stage import NO_FSYNC, SILENT, Want, stage
from proof.bench.table import Report, Rounds
from proof.bench.waves import waves
from shared.store import keys
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say

ROUNDS: Final = 3
CONVERSATIONS: Final = {"after one turn": 2, "of 40 messages, 21 kB": 40, "of 100 messages, 52 kB": 100}
KINDS: Final = ("session", "history", "outbox", "inbox")


def measure(plan: Plan) -> Report:
    """Bytes of everything that there are many of."""
    found = Rounds()
    for _ in range(plan.repeats(ROUNDS)):
        with server() as valkey:
            uvloop.run(_sessions(found, plan, valkey.url))
        with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
            uvloop.run(_processes(found, plan, Path(folder)))
    by_name = {figure.name: figure.median for figure in found.figures()}
    beyond = by_name["open socket: gateway"] - by_name["open socket: bare server"]
    notes = (f"an open page costs a gateway {beyond:.1f} kB beyond its socket",)
    return Report(title="memory: of what there are many of", figures=found.figures(), notes=notes)


async def _sessions(found: Rounds, plan: Plan, url: str) -> None:
    many = plan.of(1000, 5)
    for name, messages in CONVERSATIONS.items():
        async with emptied(url) as client:
            await make_sessions(client, ["warm"], history(2))
            before = await used_memory(client)
            await make_sessions(client, [f"c{n}" for n in range(many)], history(messages))
            found.add(f"session {name}", "kB in Redis", (await used_memory(client) - before) / many / 1024)
            if messages == 40:
                for kind in KINDS:
                    size = await client.command("MEMORY", "USAGE", f"shoal:{{0ax}}:{kind}:web:owner/c0", "SAMPLES", 0)
                    if size:
                        found.add(f"  of it: {kind}", "kB in Redis", size / 1024)
                inbox = Inbox(client)
                before = await used_memory(client)
                await asyncio.gather(*(say(inbox, "x" * 200, chat=f"owner/c{n}") for n in range(many)))
                waiting = (await used_memory(client) - before) / many / 1024
                found.add("message of 200 characters that waits", "kB in Redis", waiting)
                size = await client.command("MEMORY", "USAGE", keys.queue("turns"), "SAMPLES", 0)
                found.add("  of it: queue", "kB in Redis", size / many / 1024)


async def _processes(found: Rounds, plan: Plan, folder: Path) -> None:
    turns, pages = plan.of(1000, 10), plan.of(1000, 10)
    async with stage(folder, Want(model=SILENT, turns=turns, fsync=NO_FSYNC)) as on:
        found.add("gateway, idle", "MB", on.gateway.memory_kb / 1024)
        found.add("worker, idle", "MB", on.workers[0].memory_kb / 1024)
        async with waves(on.client, [f"c{n}" for n in range(turns)]) as sea:
            before = on.workers[0].memory_kb
            await sea.push(turns)
            await on.asked(turns)
            found.add("turn that waits for its model", "kB in the worker", (on.workers[0].memory_kb - before) / turns)
        found.add("open socket: gateway", "kB each", await _pages(on.gateway, on.address, pages))
    with Children() as start:
        bare = start("proof.bench.bare", talks=True)
        found.add("open socket: bare server", "kB each", await _pages(bare, bare.line(), pages, last="welcome"))


async def _pages(server: Child, address: str, many: int, *, last: str = "resumed") -> float:
    """kB that a process grows by with each of so many pages, which look at a chat each in which nothing happens."""
    async with crowd(address, last=last) as people:
        await people.come([f"w{n}" for n in range(20)])  # warms up
        before = server.memory_kb
        await people.come([f"m{n}" for n in range(many)])
        return (server.memory_kb - before) / many
