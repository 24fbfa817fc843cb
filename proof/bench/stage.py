"""The whole of it for a bench: a Valkey, a model server, a gateway and workers, each a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from proof.bench import sampler
from proof.bench.chats import TOKEN
from proof.bench.children import Child, Children
from proof.bench.relay import Relay, relay
from proof.bench.server import calls, cpu_s, used_memory
from proof.bench.stub import Stub, model_name
from shared.embedded import EmbeddedValkey, Fsync
from shared.store.client.redis_client import RedisClient
from tests.gateway.harness import answers, free_port
from tests.helpers.fleet import workers
from tests.helpers.wait import eventually

WITHIN_S: Final = 60.0

SILENT: Final = model_name(20, first_ms=3_600_000)
"""A model that does not answer."""

NO_FSYNC: Final[Fsync] = "no"
"""Where a disk's pauses would be in figures that are not about it."""

Fill = Callable[[RedisClient], Awaitable[None]]


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What shall be there. `model` says how it answers (`stub.model_name`); `ready` is without a client of models,
    `redis_py` with that library instead of our own connection to Redis. With `relayed` gateway and workers reach Redis
    through a relay that counts; with `unkept` text that grows is only shown."""

    model: str = model_name(50)
    ready: bool = False
    redis_py: bool = False
    unkept: bool = False
    workers: int = 1
    turns: int = 100
    gateway: bool = True
    relayed: bool = False
    fsync: Fsync = "always"
    settings: Mapping[str, str] = {}


class Stage:
    """What is there."""

    def __init__(self, server: EmbeddedValkey, client: RedisClient, stub: Stub, folder: Path) -> None:
        assert server.pid is not None
        self.url: Final = server.url
        self.redis_pid: Final = server.pid
        self.client: Final = client
        self.stub: Final = stub
        self.workers: list[Child] = []
        self.relay: Relay | None = None
        self.gateway: Child
        self.address = ""
        self._folder = folder

    async def used(self) -> dict[str, float]:
        """CPU seconds of each until now, and commands of the server."""
        found = {"worker": sum(one.cpu_s for one in self.workers), "model server": self.stub.process.cpu_s}
        if self.address:
            found["gateway"] = self.gateway.cpu_s
        return found | {"Redis": await cpu_s(self.client), "commands": float(await calls(self.client))}

    async def memory(self) -> dict[str, float]:
        """kB of each now."""
        found = {"worker": sum(one.memory_kb for one in self.workers), "Redis": await used_memory(self.client) / 1024}
        return found | ({"gateway": self.gateway.memory_kb} if self.address else {})

    async def asked(self, many: int) -> None:
        """Wait until so many requests are at the model."""

        async def so_many() -> bool:
            return (await asyncio.to_thread(self.stub.stats)).open >= many

        await eventually(so_many, within_s=WITHIN_S, every_s=0.2, what=f"{many} turns at once")

    @contextlib.asynccontextmanager
    async def sampled(self) -> AsyncIterator[dict[str, sampler.Stacks]]:
        """What the first worker and the gateway do meanwhile, by name; filled at the end."""
        found: dict[str, sampler.Stacks] = {}
        sides = {"worker": self.workers[0], "gateway": self.gateway}
        for side in sides.values():
            side.signal(signal.SIGUSR1)
        yield found
        for name, side in sides.items():
            path = self.samples_of(name)
            side.signal(signal.SIGUSR2)
            await eventually(path.exists, within_s=WITHIN_S)
            found[name] = sampler.read(path)
            path.unlink()

    def samples_of(self, name: str) -> Path:
        """Where a process writes what its sampler saw."""
        return self._folder / f"{name}.samples"


@contextlib.asynccontextmanager
async def stage(folder: Path, want: Want, fill: Fill | None = None) -> AsyncIterator[Stage]:
    """All of it, ready. `fill` puts things into the store before anybody works on them."""
    folder.mkdir(parents=True, exist_ok=True)
    with Children() as start:
        server = EmbeddedValkey(folder / "valkey", fsync=want.fsync, spawned=start.watch)
        await asyncio.to_thread(server.start)
        client = RedisClient(server.url, timeout_s=20.0)
        try:
            if fill is not None:
                await fill(client)
            async with contextlib.AsyncExitStack() as stack:
                made = Stage(server, client, Stub(start), folder)
                if want.relayed:
                    made.relay = await stack.enter_async_context(relay(server.url))
                await _people_it(start, made, want)
                yield made
        finally:
            await client.close()
            pid = server.pid
            await asyncio.to_thread(server.stop)
            if pid is not None:
                start.forget(pid)


async def _people_it(start: Children, made: Stage, want: Want) -> None:
    folder, port = made.samples_of("x").parent, free_port()
    env = {
        "SHOAL_REDIS__URL": made.relay.url if made.relay else made.url,
        "SHOAL_DATA__DIR": str(folder),
        "SHOAL_WORKSPACE__ROOT": str(folder / "workspaces"),
        "SHOAL_MODEL__NAME": f"openai/{want.model}",
        "SHOAL_MODEL__API_BASE": made.stub.base_url,
        "SHOAL_MODEL__API_KEY": "none",
        "SHOAL_MODEL__CLIENT": "direct",
        "SHOAL_AGENT__TITLES": "false",  # one call a chat, not one a turn
        "SHOAL_WEB__PORT": str(port),
        "SHOAL_WEB__TOKENS__OWNER": TOKEN,
        "SHOAL_WORKER__TURNS": str(want.turns),
        "SHOAL_INBOX__SENDER_PER_MINUTE": "0",
        "SHOAL_INBOX__CHATS_PER_PERSON": "0",
        **want.settings,
    }
    library = ["--redis-py"] if want.redis_py else []
    model = [*(["--ready"] if want.ready else []), *(["--unkept"] if want.unkept else [])]
    for number in range(want.workers):
        samples = made.samples_of("worker" if number == 0 else f"worker{number}")
        words = ["worker", *model, *library, "--samples", str(samples)]
        made.workers.append(start("proof.bench.side", *words, env=env, log=folder / f"worker{number}.log"))
    if want.gateway:
        samples = made.samples_of("gateway")
        words = ["gateway", *library, "--samples", str(samples)]
        made.gateway = start("proof.bench.side", *words, env=env, log=folder / "gateway.log")
        made.address = f"127.0.0.1:{port}"
        await made.gateway.until(lambda: answers(made.address))
    for child in made.workers:
        await child.until(partial(_has_model, child))
    if want.workers:
        await workers(made.client, want.workers, within_s=WITHIN_S)


def _has_model(worker: Child) -> bool:
    return "model ready" in worker.log
