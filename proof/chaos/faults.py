"""What is done to the fleet, each one bounded and undone by itself; each says whether there was anything to hit."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from functools import partial

import psutil

from proof.chaos.fleet import Fleet, Member
from tests.helpers.valkey import command

Fault = Callable[[Fleet, random.Random, float], Awaitable[bool]]


async def kill_worker(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """SIGKILL to a worker; its guardian lives."""
    children = [child for member in fleet.workers for child in member.process.children()]
    if not children:
        return False
    child = rng.choice(children)
    owners = await fleet.owners([child.pid])
    fleet.note("kill worker", owners, "taken")
    return _signal(child, signal.SIGKILL)


async def kill_group(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """SIGKILL to a guardian and its worker at once, as when a node is gone."""
    member = rng.choice(fleet.workers)
    if not member.process.alive:
        return False
    fleet.note("kill group", await _owners(fleet, member), "taken")
    member.process.kill_group()
    return True


async def kill_gateway(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """SIGKILL to a gateway."""
    member = rng.choice(fleet.gateways)
    if not member.process.alive:
        return False
    member.process.kill_group()
    return True


async def drain_worker(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """SIGTERM to a guardian, as in a rolling deploy."""
    member = rng.choice(fleet.workers)
    if not member.process.alive:
        return False
    fleet.note("drain worker", await _owners(fleet, member), "handed over")
    member.process.terminate()
    return True


async def pause_group(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """SIGSTOP to guardian and worker for half a lease to three, then SIGCONT."""
    member = rng.choice(fleet.workers)
    fleet.note("pause group", await _owners(fleet, member), "progress")
    if not _group(member, signal.SIGSTOP):
        return False
    try:
        await asyncio.sleep(lease_s * rng.choice([0.5, 0.95, 1.05, 2, 3]))
    finally:
        _group(member, signal.SIGCONT)
    return True


async def _tell(fleet: Fleet, *words: str) -> None:
    """A command to the server, which may be paused for more than a lease; all else goes on meanwhile."""
    await asyncio.to_thread(partial(command, fleet.server.url, *words, within_s=120))


async def cut_clients(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """All connections of one kind are cut by the server."""
    await _tell(fleet, "CLIENT", "KILL", "TYPE", rng.choice(["normal", "pubsub"]))
    return True


async def pause_redis(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """The server answers nobody, or no writer, for up to a third of a lease more than one."""
    ms = int(1000 * lease_s * rng.choice([0.2, 0.6, 1.3]))
    await _tell(fleet, "CLIENT", "PAUSE", str(ms), rng.choice(["WRITE", "ALL"]))
    fleet.note("pause redis", [""], "progress", in_s=ms / 1000)
    return True


async def restart_redis(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """SIGKILL to the server, then its start from what it had fsynced."""
    await asyncio.to_thread(fleet.server.kill)
    await asyncio.sleep(rng.uniform(0, 1))
    await asyncio.to_thread(fleet.server.start)
    fleet.note("restart redis", [""], "progress")
    return True


async def fill_memory(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """The server is over maxmemory for a while: new messages are refused, what runs is still committed."""
    await _tell(fleet, "CONFIG", "SET", "maxmemory", "1mb")
    try:
        await asyncio.sleep(rng.uniform(0.5, 3))
    finally:
        await _tell(fleet, "CONFIG", "SET", "maxmemory", "0")
    return True


async def fill_disk(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """The next bytes of the append-only file cannot be written: the server ends rather than confirm what it cannot
    keep. Then there is room again."""
    pid = fleet.server.pid
    if pid is None:
        return False
    newest = max(fleet.server_files("*.incr.aof"), key=lambda path: path.stat().st_mtime)
    size = newest.stat().st_size + rng.randrange(4096)
    server = psutil.Process(pid)
    server.rlimit(psutil.RLIMIT_FSIZE, (size, psutil.RLIM_INFINITY))
    for _ in range(100):
        if not fleet.server.running:
            break
        await asyncio.sleep(0.05)
    else:  # nothing was written meanwhile
        server.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
        return False
    await asyncio.to_thread(fleet.server.kill)
    await asyncio.to_thread(fleet.server.start)
    fleet.note("fill disk", [""], "progress")
    return True


async def lose_answers(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """What is asked of the server is done, and nobody hears of it: connections are cut before the answer."""
    await fleet.proxy.lose_answers(rng.uniform(0.05, 0.5))
    return True


async def stand_still(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """Half-open connections for a fifth of a lease to a bit more than one."""
    await fleet.proxy.stand_still(lease_s * rng.choice([0.2, 0.6, 1.2]))
    fleet.note("stand still", [""], "progress")
    return True


async def slow_network(fleet: Fleet, rng: random.Random, lease_s: float) -> bool:
    """Every answer of the server takes up to 0.3 s longer, for a while."""
    await fleet.proxy.be_slow(rng.uniform(1, 3), rng.uniform(0.02, 0.3))
    return True


FAULTS: dict[str, tuple[Fault, int]] = {
    "kill worker": (kill_worker, 8),
    "kill group": (kill_group, 3),
    "kill gateway": (kill_gateway, 4),
    "drain worker": (drain_worker, 3),
    "pause group": (pause_group, 2),
    "cut clients": (cut_clients, 2),
    "pause redis": (pause_redis, 1),
    "restart redis": (restart_redis, 1),
    "fill memory": (fill_memory, 1),
    "fill disk": (fill_disk, 1),
    "lose answers": (lose_answers, 3),
    "stand still": (stand_still, 1),
    "slow network": (slow_network, 1),
}
"""Name -> what it does, and how often it is drawn beside the others."""


KILLS: frozenset[str] = frozenset({"kill worker", "kill group", "kill gateway"})
REDIS_FAULTS: frozenset[str] = frozenset(FAULTS) - KILLS - {"drain worker", "pause group"}


async def _owners(fleet: Fleet, member: Member) -> list[str]:
    return await fleet.owners([child.pid for child in member.process.children()])


def _signal(process: psutil.Process, number: int) -> bool:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def _group(member: Member, number: int) -> bool:
    try:
        os.killpg(member.process.pid, number)
    except ProcessLookupError:
        return False
    return True
