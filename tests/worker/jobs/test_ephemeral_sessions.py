"""The sweep of sessions that were of one request: their files, and whatever a gateway that died left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.errors import ToolFailed
from shared.media.files import MediaNotFound
from shared.media.store import MediaStore
from shared.messages.inbound import InboundMessage
from shared.settings import MediaSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.responses.responses import Responses
from shared.store.sessions.erase import EphemeralSessions
from shared.store.sessions.requests import ApiRequest, Requests
from shared.store.turns.inbox import Inbox
from worker.guards.workspace import Workspaces
from worker.jobs import sweep
from worker.jobs.sweep import EphemeralSweep


async def request(client: RedisClient, *, stored: bool = False) -> ApiRequest:
    """One whose message waits."""
    asked = await Requests(client).begin("owner", key=None, session=None, asked="h", stored=stored)
    chat = asked.session.removeprefix("api:")
    await Inbox(client).ingest(
        InboundMessage(channel="api", chat_id=chat, sender_id="owner", id=asked.ticket, content="hi", timestamp=1)
    )
    return asked


def older(folder: Path) -> None:
    """As if it had been written a while ago."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_mtime - 60,) * 2)


class Swept:
    """A sweep over real folders."""

    def __init__(self, client: RedisClient, folder: Path) -> None:
        self.media = MediaStore(MediaSettings(dir=folder / "media"))
        self.workspaces = Workspaces(folder / "workspaces")
        self.sweep = EphemeralSweep(client, self.media, self.workspaces)


async def test_the_files_of_an_ended_session_go(client: RedisClient, tmp_path: Path) -> None:
    """Sent ones and the agent's own; nothing of the session is left anywhere."""
    made, asked = Swept(client, tmp_path), await request(client)
    ref = made.media.put(asked.session, b"sent along", "a.txt")
    await made.workspaces.workspace_of(asked.session).write_file("notes.md", b"own")
    older(tmp_path)
    await EphemeralSessions(client).end(asked.session)
    assert await made.sweep.run_once() == 1
    with pytest.raises(MediaNotFound):
        made.media.read(asked.session, ref)
    assert [path for path in tmp_path.rglob("*.md") if path.is_file()] == []
    assert await client.command("EXISTS", keys.EPHEMERAL) == 0
    assert await made.sweep.run_once() == 0
    made.workspaces.close()


async def test_a_session_whose_gateway_died_goes_when_its_time_has_come(client: RedisClient, tmp_path: Path) -> None:
    """Not before; and then with all it has in Redis."""
    made, asked = Swept(client, tmp_path), await request(client)
    assert await made.sweep.run_once() == 0
    assert await client.command("EXISTS", keys.inbox(asked.session)) == 1
    await client.command("ZADD", keys.EPHEMERAL, 1, asked.session)
    assert await made.sweep.run_once() == 1
    left = {key.decode() for key in await client.command("KEYS", "*")} - {keys.CLOCKS}
    assert {key for key in left if not key.startswith(("shoal:{0ax}:seen:", "shoal:{0ax}:wake:"))} == set()
    made.workspaces.close()


async def test_a_sweep_takes_many(client: RedisClient, tmp_path: Path) -> None:
    """More than one batch, in one go."""
    made = Swept(client, tmp_path)
    for _ in range(sweep.BATCH + 5):
        await EphemeralSessions(client).end(
            (await Requests(client).begin("o", key=None, session=None, asked="h")).session
        )
    assert await made.sweep.run_once() == sweep.BATCH + 5
    made.workspaces.close()


async def test_a_volume_that_is_away_is_asked_again_later(client: RedisClient, tmp_path: Path) -> None:
    """The session stays on the list, and does not hold up the others."""

    class Away(Workspaces):
        async def erase_session(self, folder: str, *, before_s: float) -> int:
            raise ToolFailed("the volume is slow")

    asked = await request(client)
    await EphemeralSessions(client).end(asked.session)
    away = Away(tmp_path)
    sweep = EphemeralSweep(client, MediaStore(MediaSettings(dir=tmp_path)), away)
    assert await sweep.run_once() == 0
    assert await EphemeralSessions(client).agenda.due() == []
    assert await client.command("ZSCORE", keys.EPHEMERAL, asked.session) is not None
    away.close()


async def test_a_session_of_responses_is_erased_when_they_expire(client: RedisClient, tmp_path: Path) -> None:
    """With its records and its files; until then the sweep leaves it alone."""
    made, asked = Swept(client, tmp_path), await request(client, stored=True)
    assert await Responses(client).keep("owner", asked, 1, shown=b"{}", input=b"[]")
    assert await made.sweep.run_once() == 0
    assert await Responses(client).lookup("owner", asked.ticket) is not None
    await client.command("ZADD", keys.EPHEMERAL, 1, asked.session)
    assert await made.sweep.run_once() == 1
    assert await Responses(client).lookup("owner", asked.ticket) is None
    for kind in (keys.session, keys.inbox, keys.responses):
        assert await client.command("EXISTS", kind(asked.session)) == 0
    jobs = await client.command("ZRANGE", keys.queue("jobs"), 0, -1)
    assert [job.partition(b":")[0] for job in jobs] == [b"media"]
    assert await client.command("ZCARD", keys.EPHEMERAL) == 0
