"""A Valkey of a bench's own, and what it has done."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from console.up.supervisor import Reaper
from shared.embedded import EmbeddedValkey, Fsync
from shared.store.client.redis_client import RedisClient


@contextlib.contextmanager
def server(fsync: Fsync = "no") -> Iterator[EmbeddedValkey]:
    """Started for this bench and stopped after it, whatever happens to the bench."""
    reaper = Reaper()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        valkey = EmbeddedValkey(Path(folder), fsync=fsync, spawned=lambda pid: reaper.watch(step=0, pid=pid))
        valkey.start()
        try:
            yield valkey
        finally:
            valkey.stop()
            reaper.close()


@contextlib.asynccontextmanager
async def emptied(url: str) -> AsyncIterator[RedisClient]:
    """A client on the server with nothing in it."""
    client = RedisClient(url)
    try:
        await client.command("FLUSHALL", "SYNC")
        yield client
    finally:
        await client.close()


async def cpu_s(client: RedisClient) -> float:
    """CPU seconds of the server until now."""
    result = (await client.command("INFO", "cpu")).decode()
    found = dict(line.split(":", 1) for line in result.splitlines() if ":" in line)
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


async def used_memory(client: RedisClient) -> float:
    """Bytes that the server has allocated for data and all else."""
    result = (await client.command("INFO", "memory")).decode()
    return float(result.partition("used_memory:")[2].split()[0])


async def at_rest(client: RedisClient) -> bool:
    """Whether it writes neither a snapshot nor its log anew, for which it has a child that copies its memory."""
    result = (await client.command("INFO", "persistence")).decode()
    return "rdb_bgsave_in_progress:0" in result and "aof_rewrite_in_progress:0" in result


async def calls(client: RedisClient) -> int:
    """Commands until now, those that scripts call included."""
    result = (await client.command("INFO", "commandstats")).decode()
    rows = [line.split(":", 1)[1] for line in result.splitlines() if line.startswith("cmdstat_")]
    return sum(int(row.split(",")[0].partition("=")[2]) for row in rows)
