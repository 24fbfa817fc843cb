"""What every program here begins and ends with: a server, workers, a witness; a table, an exit code."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from proof.chaos.fleet import Fleet
from proof.chaos.witness import Witness
from shared.embedded import EmbeddedValkey, Fsync
from shared.store.client.redis_client import RedisClient
from shared.tasks import cancel_all
from tests.helpers.fleet import workers as present_workers
from tests.helpers.wait import eventually


class Row(NamedTuple):
    """A line of the table. `kept` None: nothing is promised about it."""

    name: str
    value: object
    kept: bool | None = None


class Stage(NamedTuple):
    """Workers on a server of their own."""

    folder: Path
    server: EmbeddedValkey
    fleet: Fleet
    client: RedisClient
    witness: Witness


@asynccontextmanager
async def stage(
    folder: Path,
    *,
    workers: int,
    gateways: int = 0,
    lease_s: float = 15.0,
    drain_s: float = 8.0,
    fsync: Fsync = "always",
    env: Mapping[str, str] | None = None,
    watched: bool = True,
) -> AsyncIterator[Stage]:
    """A server, so many worker groups and gateways; all of it ends with the block. Unless `watched` the witness hears
    nothing."""
    server = EmbeddedValkey(folder / "valkey", fsync=fsync)
    await asyncio.to_thread(server.start)
    client = RedisClient(server.url)
    witness = Witness(server.url)
    listening = [asyncio.create_task(witness.run())] if watched else []
    fleet = Fleet(server, None, folder, gateways=gateways, workers=workers, lease_s=lease_s, drain_s=drain_s, env=env)
    try:
        if watched:
            await eventually(witness.listening.is_set)
        await present_workers(client, workers, within_s=60)
        await eventually(fleet.ready, within_s=30)
        yield Stage(folder, server, fleet, client, witness)
    finally:
        await cancel_all(listening)
        await client.close()
        await fleet.close()
        await asyncio.to_thread(fleet.end)
        await asyncio.to_thread(server.stop)


def perform(title: str, play: Callable[[Path], Awaitable[Sequence[Row]]], *, within_s: float) -> int:
    """Run `play` in a folder of its own, print its rows; 1 when a promise is broken or the time is over.

    The folder with the logs stays then."""
    folder = Path(tempfile.mkdtemp(prefix="shoal-chaos-"))

    async def bounded() -> Sequence[Row]:
        async with asyncio.timeout(within_s):
            return await play(folder)

    try:
        rows = asyncio.run(bounded())
    except TimeoutError:
        rows = [Row("finished within", f"{within_s:g} s", kept=False)]
    table = Table("", "value", "promise", title=f"{title}, {os.cpu_count()} cores")
    for row in rows:
        value = f"{row.value:.3f}" if isinstance(row.value, float) else str(row.value)
        table.add_row(row.name, value, "" if row.kept is None else "kept" if row.kept else "[red]broken")
    Console().print(table)
    if any(row.kept is False for row in rows):
        sys.stdout.write(f"logs are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


def zero(wrongs: Mapping[str, int]) -> list[Row]:
    """Counts that must be 0."""
    return [Row(name, count, count == 0) for name, count in wrongs.items()]
