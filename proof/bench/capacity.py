"""What an installation needs: CPU of each process for one turn, and memory of what is open, waits or is kept.

A turn is a message on a web socket, a model call that wants a tool, the tool, and a call that streams 100 words to the
page; `CHATS` chats talk at once. CPU is counted, waiting is not. The model server is a process of its own and not in
the figures. Memory is what the process grew by, divided by how many there were.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from proof.bench.plan import Plan
from proof.bench.table import Report, Rounds
from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from tests.gateway.harness import TOKENS, Client, answers, client, free_port
from tests.helpers.fleet import workers
from tests.helpers.openai_server import Answer, Call, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually

ROUNDS: Final = 3
CHATS, TURNS_EACH = 8, 25
WORDS: Final = " ".join(f"word{n}" for n in range(100))
SOCKETS: Final = 300
WAITING: Final = 50


class Stage(NamedTuple):
    """One of each."""

    gateway: psutil.Process
    worker: psutil.Process
    redis: psutil.Process
    address: str
    client: RedisClient
    model: ScriptedOpenAI


@contextmanager
def processes(folder: Path, server: EmbeddedValkey, model: ScriptedOpenAI) -> Iterator[tuple[Process, Process, str]]:
    port = free_port()
    env = {
        "SHOAL_REDIS__URL": server.url,
        "SHOAL_DATA__DIR": str(folder),
        "SHOAL_MODEL__NAME": "openai/scripted",
        "SHOAL_MODEL__API_BASE": model.base_url,
        "SHOAL_MODEL__API_KEY": "none",
        "SHOAL_AGENT__TITLES": "false",  # one call a chat, not one a turn
        "SHOAL_WEB__PORT": str(port),
        "SHOAL_WEB__TOKENS__OWNER": TOKENS["owner"],
        "SHOAL_WORKER__LEASE_S": "15",
        "SHOAL_INBOX__SENDER_PER_MINUTE": "0",
        "SHOAL_INBOX__CHATS_PER_PERSON": "0",
    }
    fleet = [Process(kind, env=env, log=folder / f"{kind}.log") for kind in ("gateway", "worker")]
    try:
        yield fleet[0], fleet[1], f"127.0.0.1:{port}"
    finally:
        for process in fleet:
            process.kill_group()


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    server = EmbeddedValkey(folder / "valkey", fsync="always")
    await asyncio.to_thread(server.start)
    redis = RedisClient(server.url)
    try:
        with ScriptedOpenAI() as model, processes(folder, server, model) as (gateway, worker, address):
            await eventually(lambda: answers(address), within_s=60)
            await workers(redis, 1, within_s=60)
            [child] = [one for one in worker.children() if "worker.main" in one.cmdline()]
            assert server.pid is not None
            yield Stage(psutil.Process(gateway.pid), child, psutil.Process(server.pid), address, redis, model)
    finally:
        await redis.close()
        await asyncio.to_thread(server.stop)


def cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


async def talk(person: Client, chat: str, turns: int) -> None:
    for n in range(turns):
        await person.say(chat, f"tool please, {n}")
        await person.next("reply", chat=chat)


async def turns(on: Stage, each: int, *, warm: int) -> dict[str, float]:
    """What a turn costs."""
    on.model.reset()
    on.model.script(
        Answer(role="user", text="Let me see.", calls=[Call("calculate", '{"expression": "6*7"}')], times=0),
        Answer(role="tool", text=WORDS, times=0),
    )
    async with contextlib.AsyncExitStack() as stack:
        people = [await stack.enter_async_context(client(on.address)) for _ in range(CHATS)]
        for number, person in enumerate(people):
            await person.send("resume", chat=f"c{number}", after=0)
            await talk(person, f"c{number}", warm)
        parts = {"gateway": on.gateway, "worker": on.worker, "Redis": on.redis}
        before = {name: cpu_s(process) for name, process in parts.items()}
        asked = await _calls(on.client)
        await asyncio.gather(*(talk(person, f"c{n}", each) for n, person in enumerate(people)))
        many = CHATS * each
        found = {f"CPU of the {name}": 1000 * (cpu_s(parts[name]) - before[name]) / many for name in parts}
        return found | {"commands to Redis": (await _calls(on.client) - asked) / many}


async def _calls(redis: RedisClient) -> int:
    info = (await redis.command("INFO", "stats")).decode()
    return int(info.partition("total_commands_processed:")[2].split()[0])


def held(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


async def sockets(on: Stage, many: int) -> float:
    """kB of an open page that shows a chat in which nothing happens."""
    before = held(on.gateway)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(many):
            person = await stack.enter_async_context(client(on.address, ping_interval=None))
            await person.send("resume", chat=f"s{number}", after=0)
            await person.next("resumed", chat=f"s{number}")
        return (held(on.gateway) - before) / many / 1024


async def waiting(on: Stage, many: int) -> float:
    """kB of a turn whose model has not said anything yet."""
    on.model.reset()
    on.model.script(Answer(first_s=600, times=0))
    before = held(on.worker)
    async with client(on.address) as person:
        for number in range(many):
            await person.say(f"w{number}", "slow")
        await eventually(lambda: on.model.stats()["open"] == many, within_s=60)
        grown = (held(on.worker) - before) / many / 1024
        for number in range(many):
            await person.send("stop", chat=f"w{number}")
        await eventually(lambda: on.model.stats()["open"] == 0, within_s=60)
    return grown


async def _measure(found: Rounds, plan: Plan) -> None:
    units = {"CPU": "ms a turn", "commands": "a turn", "memory of the": "MB idle", "memory": "kB"}
    for _ in range(plan.repeats(ROUNDS)):
        with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
            async with stage(Path(folder)) as on:
                idle = {name: held(one) / 2**20 for name, one in (("gateway", on.gateway), ("worker", on.worker))}
                result = await turns(on, plan.of(TURNS_EACH, 1), warm=plan.of(1, 0)) | {
                    "memory of the gateway": idle["gateway"],
                    "memory of the worker": idle["worker"],
                    "memory of an open page": await sockets(on, plan.of(SOCKETS, 10)),
                    "memory of a waiting turn": await waiting(on, plan.of(WAITING, 5)),
                }
        for name, value in result.items():
            found.add(name, next(unit for start, unit in units.items() if name.startswith(start)), value)


def measure(plan: Plan) -> Report:
    """All of it."""
    found = Rounds()
    asyncio.run(_measure(found, plan))
    by_name = {figure.name: figure.median for figure in found.figures()}
    # A quick round may cost less than a tick of the processor's clock.
    notes = tuple(
        f"a core of the {name} carries {1000 / max(by_name[f'CPU of the {name}'], 0.01):.0f} such turns a second"
        for name in ("gateway", "worker", "Redis")
    )
    return Report(title="capacity: a turn with a tool and 100 streamed words", figures=found.figures(), notes=notes)
