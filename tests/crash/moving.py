"""A gateway and two workers at work while another server becomes the primary, and one who talks to them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from shared.process.resp import RespConnection
from shared.store.client.redis_client import RedisClient
from tests.gateway.harness import TOKENS, Client, answers, client, free_port
from tests.helpers.fleet import workers as present_workers
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.processes import Process
from tests.helpers.wait import eventually


class People:
    """One who talks without a pause; `gaps` are the seconds between two answers."""

    def __init__(self, person: Client) -> None:
        self.person = person
        self.ids: list[str] = []
        self.gaps: list[float] = []

    async def talk(self, ending: asyncio.Event) -> None:
        last = time.monotonic()
        while not ending.is_set():
            await self.say()
            self.gaps.append(time.monotonic() - last)
            last = time.monotonic()

    async def say(self) -> None:
        """A message, sent again under its id until it has its answer, as the page does."""
        id = f"{len(self.ids):032x}"
        self.ids.append(id)
        while True:
            await self.person.send("message", id=id, chat="a", text=f"number {len(self.ids)}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    while not self.answers(id):
                        await self.person.next("reply", chat="a")
                    return

    def answers(self, id: str) -> int:
        """How many different answers it has."""
        frames = [one for one in self.person.seen if one["type"] == "reply" and id in one.get("in_reply_to", ())]
        return len({one["seq"] for one in frames})

    async def has_answers(self, more: int) -> None:
        """Wait for so many further answers."""
        before = len(self.ids)
        await eventually(lambda: len(self.ids) > before + more, within_s=60)


@contextlib.asynccontextmanager
async def conversation(url: str, password: str, model: ScriptedOpenAI, folder: Path) -> AsyncIterator[People]:
    """A fleet at this Redis, and somebody who talks. At the end each message has one answer."""
    # The password is a file; a client reads it at each connection.
    (folder / "password").write_text(f"{password}\n")
    model.script(Answer(role="user", text="Noted.", times=0))
    port = free_port()
    env = {
        "SHOAL_REDIS__URL": url,
        "SHOAL_REDIS__PASSWORD_FILE": str(folder / "password"),
        "SHOAL_DATA__DIR": str(folder),
        "SHOAL_MODEL__NAME": "openai/scripted",
        "SHOAL_MODEL__API_BASE": model.base_url,
        "SHOAL_MODEL__API_KEY": "none",
        "SHOAL_MODEL__CLIENT": "direct",
        "SHOAL_WORKER__LEASE_S": "3",
        "SHOAL_INBOX__SENDER_PER_MINUTE": "0",
        "SHOAL_WEB__PORT": str(port),
        "SHOAL_WEB__TOKENS__OWNER": TOKENS["owner"],
    }
    kinds = ("gateway", "worker", "worker")
    fleet = [Process(kind, env=env, log=folder / f"{n}.log") for n, kind in enumerate(kinds)]
    redis = RedisClient(url.replace("//", f"//:{password}@", 1))
    try:
        await eventually(lambda: answers(f"127.0.0.1:{port}"), within_s=60)
        await present_workers(redis, 2, within_s=60)
        async with client(f"127.0.0.1:{port}") as person:
            await person.send("resume", chat="a", after=0)
            await person.next("resumed", chat="a")
            people, ending = People(person), asyncio.Event()
            talking = asyncio.create_task(people.talk(ending))
            await people.has_answers(5)
            yield people
            ending.set()
            await talking
            assert [people.answers(id) for id in people.ids] == [1] * len(people.ids)
            print(f"longest gap: {max(people.gaps):.2f} s")
    finally:
        await redis.close()
        for process in fleet:
            process.kill_group()


def ours_at(port: int, password: str) -> tuple[bytes, list[str]]:
    """The role of a server, and the connections of ours that it has."""
    connection = RespConnection(f"redis://:{password}@127.0.0.1:{port}", timeout_s=10)
    with contextlib.closing(connection):
        rows = connection.command("CLIENT", "LIST", "TYPE", "NORMAL").decode().splitlines()
        rows += connection.command("CLIENT", "LIST", "TYPE", "PUBSUB").decode().splitlines()
        return connection.command("ROLE")[0], [row for row in rows if "name=shoal" in row]
