"""Backup and restore of Redis, step by step as deploy/RUNBOOK.md has them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.embedded import EmbeddedValkey
from shared.store.client import RedisClient
from shared.store.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import history, replies, workers
from tests.helpers.fleet_fixtures import Spawn, model, model_server, spawn
from tests.helpers.wait import eventually

__all__ = ["model", "model_server", "spawn"]

SESSION = "web:owner/a"
AOF = "appendonlydir"

Serve = Callable[[str], EmbeddedValkey]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Servers on folders of their own, not started."""
    made: list[EmbeddedValkey] = []

    def one(name: str) -> EmbeddedValkey:
        made.append(EmbeddedValkey(tmp_path / name))
        return made[-1]

    yield one
    for server in made:
        server.kill()


@pytest.mark.parametrize("cut_bytes", [0, 7], ids=["whole", "cut in the last command"])
async def test_a_copy_of_a_running_server_goes_on_where_it_was(cut_bytes: int, serve: Serve, spawn: Spawn) -> None:
    """What was answered stays answered, what waited is answered, and what came after the copy is gone."""
    old = serve("old")
    old.start()
    before = RedisClient(old.url)
    worker = spawn("worker", REDIS__URL=old.url, MODEL__CLIENT="direct")
    await say(Inbox(before), "first")
    await eventually(lambda: replies(before, SESSION), within_s=60)
    worker.terminate()
    assert worker.wait(60) == 0
    await say(Inbox(before), "waits")
    await before.command("CONFIG", "SET", "auto-aof-rewrite-percentage", 0)
    if cut_bytes:
        await before.command("SET", "last", "x" * 10)  # the command that is cut
    new = serve("new")
    new.dir.mkdir()
    shutil.copytree(old.dir / AOF, new.dir / AOF)
    await say(Inbox(before), "too late")
    old.stop()
    await before.close()
    if cut_bytes:
        [file] = (new.dir / AOF).glob("*.incr.aof")
        with file.open("r+b") as end:
            end.truncate(file.stat().st_size - cut_bytes)
    new.start()
    after = RedisClient(new.url)
    spawn("worker", REDIS__URL=new.url, MODEL__CLIENT="direct")
    await workers(after, 1)

    async def both() -> bool:
        return len(await replies(after, SESSION)) == 2

    await eventually(both, within_s=60)
    said = [entry.content for entry in await history(after, SESSION)]
    assert said[0::2] == ["first", "waits"]
    assert await after.command("EXISTS", "last") == 0
    await after.close()
