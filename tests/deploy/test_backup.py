"""Backup and restore of Redis, step by step as deploy/RUNBOOK.md has them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proof.chaos.load import Crowd
from proof.chaos.verdict import torn
from shared.embedded import EmbeddedValkey
from shared.messages.outbound import OutboundMessage
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.fleet import history, replies, warm, workers
from tests.helpers.fleet_fixtures import Spawn, model, model_server, spawn
from tests.helpers.openai_server import Answer, ScriptedOpenAI
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
    message = [entry.content for entry in await history(after, SESSION)]
    assert message[0::2] == ["first", "waits"]
    assert await after.command("EXISTS", "last") == 0
    await after.close()


async def answered(client: RedisClient, chat: str) -> list[str]:
    """The ids of the messages that were answered in a chat, in the order of their replies."""
    lines = [one.line for one in await Outbox(client).read_after(f"web:owner/{chat}", after=0, limit=2000)]
    return [id for line in lines if isinstance(line, OutboundMessage) for id in line.in_reply_to]


async def test_a_copy_made_under_load_loses_what_came_after_it_began_and_nothing_else(
    serve: Serve, spawn: Spawn, model: ScriptedOpenAI
) -> None:
    """The loss window of a backup: what was accepted before the copy began is there and answered once and in order,
    also what was under work; what was accepted after it ended is not, and is new when its client sends it again."""
    names = [f"c{n}" for n in range(8)]
    model.script(Answer(total_s=0.2, times=0))
    old, new = serve("old"), serve("new")
    old.start()
    before = RedisClient(old.url)
    fleet = [spawn("worker", REDIS__URL=old.url, MODEL__CLIENT="direct", WORKER__LEASE_S="3") for _ in range(2)]
    await warm(*fleet)
    crowd = Crowd(before, names, lambda chat, n: f"{chat} {n}")
    crowd.start()
    await eventually(lambda: all(len(chat.answered) >= 3 for chat in crowd.chats), within_s=60)
    await before.command("CONFIG", "SET", "auto-aof-rewrite-percentage", 0)
    surely = {chat.name: list(chat.sent) for chat in crowd.chats}
    new.dir.mkdir()
    await asyncio.to_thread(shutil.copytree, old.dir / AOF, new.dir / AOF)
    perhaps = {chat.name: len(chat.sent) + 1 for chat in crowd.chats}  # one may be on its way
    await eventually(lambda: all(len(chat.sent) > perhaps[chat.name] + 1 for chat in crowd.chats), within_s=60)
    assert await crowd.finish() == 0
    old.kill()
    for worker in fleet:
        worker.kill_group()
    await before.close()

    new.start()
    after = RedisClient(new.url)
    spawn("worker", REDIS__URL=new.url, MODEL__CLIENT="direct")
    for chat in crowd.chats:

        async def there(name: str = chat.name) -> bool:
            return set(surely[name]) <= set(await answered(after, name))

        await eventually(there, within_s=60, what=f"the answers in {chat.name}")
    for chat in crowd.chats:
        lost = chat.sent[perhaps[chat.name] :]
        assert lost
        again = await say(Inbox(after), "again", chat=f"owner/{chat.name}", id=lost[0])
        assert not again.duplicate

        async def last(name: str = chat.name, id: str = lost[0]) -> bool:
            return (await answered(after, name))[-1:] == [id]

        await eventually(last, within_s=60)
        found = await answered(after, chat.name)
        kept = chat.sent[: len(found) - 1]
        assert found == [*kept, lost[0]]
        assert len(surely[chat.name]) <= len(kept) <= perhaps[chat.name]
        assert torn(await history(after, chat.session)) == 0
    await after.close()
