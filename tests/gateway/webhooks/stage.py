"""Webhooks that go out in a test: a program that is called, gateways that call it, and turns that end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import openai

from gateway.platform.webhooks import WebhookServer
from gateway.webhooks.channel import HookChannel
from shared.messages.inbound import InboundMessage
from shared.messages.live import TurnEvent, TurnState
from shared.messages.outbound import OutboundKind, OutboundMessage
from shared.settings import MediaSettings, OutgoingWebhook, Secret, Settings, WebhookSettings
from shared.settings.sections.gateways import HooksSettings
from shared.settings.sections.processes import WorkerSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.dead_letters import DeadLetterEntry, DeadLetters
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.wait import eventually
from tests.helpers.web_server import Asked, Handler, Send, WebServer, reply, web_server

SECRET, OTHER = "whsec_" + "A" * 43 + "=", "whsec_" + "B" * 43 + "="

_ids = count(1)


class Program:
    """The program that is called. `answers` are used up, one a call; then it answers 200."""

    def __init__(self, web: WebServer) -> None:
        self.web = web
        self.answers: list[Handler] = []
        web.pages["/hook"] = self._answer

    async def _answer(self, asked: Asked, send: Send) -> None:
        handler = self.answers.pop(0) if self.answers else reply("fine", "text/plain")
        await handler(asked, send)

    @property
    def calls(self) -> list[Asked]:
        return [asked for asked in self.web.asked if asked.target == "/hook"]

    @property
    def ids(self) -> list[str]:
        return [asked.headers["webhook-id"] for asked in self.calls]

    @property
    def events(self) -> list[dict[str, Any]]:
        """What OpenAI's own client makes of the calls: it raises when one is not signed."""
        client = openai.OpenAI(api_key="none", webhook_secret=SECRET)
        found = []
        for asked in self.calls:
            client.webhooks.unwrap(asked.body, asked.headers)
            found.append(json.loads(asked.body))
        return found

    async def called(self, many: int) -> list[Asked]:
        await eventually(lambda: len(self.calls) >= many, within_s=30, what=f"{many} calls")
        return self.calls


class Stage:
    """Gateways, and what happens in the fleet."""

    def __init__(self, client: RedisClient, redis_url: str, program: Program, settings: Settings) -> None:
        self.client, self.program = client, program
        self.settings = settings
        self._redis_url = redis_url
        self._inbox = Inbox(client)
        self._queue = LeaseQueue(client, "turns", owner="o" * 32, lease_s=60)
        self.turns = Turns(client)
        self.dead = DeadLetters(client, self._inbox)

    @contextlib.asynccontextmanager
    async def gateway(self, **options: Any) -> AsyncIterator[asyncio.Event]:
        """One gateway while this lasts, listening when it begins."""
        draining, client = asyncio.Event(), RedisClient(self._redis_url)
        hooks = WebhookServer(HooksSettings(port=0), draining)
        channel = HookChannel(self.settings, client, hooks, **options)
        running = asyncio.create_task(channel.listen(None, draining))  # type: ignore[arg-type]
        try:
            await eventually(self._is_open)
            yield draining
        finally:
            draining.set()
            await running
            await client.close()

    async def _is_open(self) -> bool:
        return bool(await self.client.command("EXISTS", keys.NOTICES))

    async def say(self, session: str = "web:ann/a", id: str | None = None) -> InboundMessage:
        channel, _, chat = session.partition(":")
        message = InboundMessage(
            channel=channel, chat_id=chat, sender_id="ann", id=id or f"m{next(_ids)}", content="hello", timestamp=1
        )
        await self._inbox.ingest(message)
        return message

    async def claim(self) -> Claim:
        [claim] = await self._queue.acquire(1)
        return claim

    async def turn(
        self, session: str = "web:ann/a", state: TurnState = "done", *, id: str | None = None, **line: Any
    ) -> None:
        """A whole turn of a session."""
        message = await self.say(session, id)
        await self.end(await self.claim(), [message.id], state, **line)

    async def end(
        self,
        claim: Claim,
        ids: Sequence[str],
        state: TurnState = "done",
        *,
        kind: OutboundKind = "reply",
        **line: Any,
    ) -> None:
        assert claim.turn is not None
        n = claim.turn.n
        last = OutboundMessage(content="a secret text", turn=n, in_reply_to=tuple(ids), kind=kind, at=5000, **line)
        await self.turns.commit(claim, history=[], lines=[last], event=TurnEvent(n, state))

    async def letters(self) -> list[DeadLetterEntry]:
        return [letter async for letter in self.dead.all()]

    async def notices(self) -> int:
        return int(await self.client.command("XLEN", keys.NOTICES))

    async def close(self) -> None:
        await self._queue.close()


@contextlib.asynccontextmanager
async def outgoing(redis_url: str, folder: Path, *, lease_s: float = 15.0, **endpoint: Any) -> AsyncIterator[Stage]:
    """A program at an endpoint called `erp`; no gateway yet."""
    async with web_server() as web:
        client = RedisClient(redis_url)
        fields: dict[str, Any] = {"url": web.url("/hook"), "secret": Secret(SECRET), "allow_private": True} | endpoint
        settings = Settings(
            webhooks=WebhookSettings(out={"erp": OutgoingWebhook(**fields)}),
            media=MediaSettings(dir=folder),
            worker=WorkerSettings(lease_s=lease_s),
        )
        stage = Stage(client, redis_url, Program(web), settings)
        try:
            yield stage
        finally:
            await stage.close()
            await client.close()
