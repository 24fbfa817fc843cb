"""Chats that keep workers busy without gateways, and what they were promised and got."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from proof.chaos.verdict import torn
from shared.errors import RedisAway, Refused
from shared.messages.outbound import OutboundMessage, UserLine
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from shared.tasks import cancel_all
from tests.helpers.build import message
from tests.helpers.fleet import history

POLL_S = 0.05
PATIENCE_S = 300.0

Words = Callable[[str, int], str]
"""What message number `n` of a chat says."""


def sums(chat: str, n: int) -> str:
    """A question for which the demo model uses a tool."""
    return f"Calculate {100 + n} * {len(chat) + n}"


class Chat:
    """One chat: says something, waits for the answer, says the next. `sent` and `answered` are ids in their order."""

    def __init__(self, client: RedisClient, name: str, words: Words) -> None:
        self.name = name
        self.session = f"web:owner/{name}"
        self.sent: list[str] = []
        self.answered: list[str] = []
        self.apologies = 0
        self.waits: list[float] = []
        self._client = client
        self._words = words
        self._seq = 0

    async def say(self) -> None:
        """One message, and its answer."""
        n = len(self.sent)
        id = f"{self.name}-{n}"
        sent = message(self._words(self.name, n), chat=f"owner/{self.name}", id=id)
        inbox = Inbox(self._client)
        began = time.monotonic()
        while True:
            try:
                await inbox.ingest(sent, log_line=UserLine(id=id, text=sent.content), principal="owner", retry_for_s=60)
                break
            except (RedisAway, Refused):
                await asyncio.sleep(POLL_S)
        self.sent.append(id)
        while id not in self.answered:
            await asyncio.sleep(POLL_S)
            await self.listen()
        self.waits.append(time.monotonic() - began)

    async def listen(self) -> None:
        """Read the new lines of the log."""
        try:
            lines = await Outbox(self._client).read_after(self.session, after=self._seq)
        except RedisAway:
            return
        for line in lines:
            self._seq = line.seq
            if isinstance(line.line, OutboundMessage):
                self.answered.extend(line.line.in_reply_to)
                self.apologies += line.line.kind == "apology"


class Crowd:
    """So many chats that talk at once until they are told to finish, with a pause after each answer."""

    def __init__(self, client: RedisClient, names: Sequence[str], words: Words = sums, *, pause_s: float = 0.0) -> None:
        self.client = client
        self._pause_s = pause_s
        self.chats = [Chat(client, name, words) for name in names]
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, each: int | None = None) -> None:
        """Talk; with `each`, so many messages a chat and no more."""
        self._tasks = [asyncio.create_task(self._talk(chat, each)) for chat in self.chats]

    async def finish(self) -> int:
        """Say nothing new, wait for the answers that are due; how many never came."""
        self._stopping = True
        return await self.ended()

    async def ended(self) -> int:
        """Wait until everybody has said what there was to say; how many answers never came."""
        _, late = await asyncio.wait(self._tasks, timeout=PATIENCE_S)
        await cancel_all(self._tasks)
        for task in self._tasks:
            if task not in late:
                task.result()
        for chat in self.chats:
            await chat.listen()
        return len(late)

    async def _talk(self, chat: Chat, each: int | None) -> None:
        while not self._stopping and (each is None or len(chat.sent) < each):
            await chat.say()
            await asyncio.sleep(self._pause_s)

    async def wrongs(self) -> dict[str, int]:
        """What must be 0."""
        found = {"lost": 0, "answered twice": 0, "reordered": 0, "apologies": 0, "torn histories": 0}
        for chat in self.chats:
            found["lost"] += len(set(chat.sent) - set(chat.answered))
            found["answered twice"] += len(chat.answered) - len(set(chat.answered))
            found["reordered"] += list(dict.fromkeys(chat.answered)) != [id for id in chat.sent if id in chat.answered]
            found["apologies"] += chat.apologies
            found["torn histories"] += torn(await history(self.client, chat.session))
        return found
