"""Answers the messages of a stage as a worker does: lease, live events, commit."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from shared.errors import RedisAway
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.live import DeltaEvent, LiveEvent, ProgressEvent, TurnEvent
from shared.messages.outbound import LogLine, OutboundMessage
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import publish
from shared.store.turns.inbox import TURNS
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from shared.tasks import cancel_all
from tests.helpers.wait import PATIENCE_S

AT_ONCE: Final = 32


class Turn:
    """One that a script answers."""

    def __init__(self, client: RedisClient, claim: Claim, message: InboundMessage) -> None:
        assert claim.turn is not None
        self.n = claim.turn.n
        self.message = message
        self.attempt = 1
        self._client = client
        self._session = claim.session
        self._seq = 0

    async def begin(self, attempt: int = 1) -> None:
        """Say that it began, for this attempt; the first is announced with its lease."""
        self.attempt, self._seq = attempt, 0
        if attempt > 1:
            await self._publish(TurnEvent(self.n, "started", attempt))

    async def stream(self, text: str, *, full: bool = False) -> None:
        """More of the reply; with `full` everything so far."""
        await self._publish(DeltaEvent(self.n, self.attempt, self._seq, text, full or self._seq == 0))
        self._seq += 1

    async def doing(self, text: str) -> None:
        """A line about what is done."""
        await self._publish(ProgressEvent(self.n, text))

    def line(self, text: str, **more: object) -> OutboundMessage:
        """A line of this turn."""
        given = {"in_reply_to": (self.message.id,), "at": self.message.timestamp, **more}
        return OutboundMessage(content=text, turn=self.n, **given)  # type: ignore[arg-type]

    async def _publish(self, event: LiveEvent) -> None:
        await publish(self._client, self._session, event)


Script = Callable[[Turn], Awaitable[str | Sequence[LogLine]]]


class Echo:
    """Answers `echo: <text>`, or what the script of a text makes of it. `heard` is what was asked, in order."""

    def __init__(self, redis_url: str) -> None:
        self.received: list[InboundMessage] = []
        self.scripts: dict[str, Script] = {}
        self._client = RedisClient(redis_url, timeout_s=PATIENCE_S)
        self._queue = LeaseQueue(self._client, TURNS, owner=secrets.token_hex(16), lease_s=120)
        self._turns = Turns(self._client)
        self._working: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.create_task(self._run(), name="echo")

    async def close(self) -> None:
        if self._running is not None:
            await cancel_all([self._running, *self._working])
        await self._queue.close()
        await self._client.close()

    def texts(self, session: str) -> list[str]:
        """What was asked in a session."""
        return [message.content for message in self.received if message.session == session]

    async def _run(self) -> None:
        while True:
            try:
                for claim in await self._queue.acquire_next(AT_ONCE):
                    task = asyncio.create_task(self._answer(claim))
                    self._working.add(task)
                    task.add_done_callback(self._working.discard)
            except RedisAway:
                await asyncio.sleep(0.05)

    async def _answer(self, claim: Claim) -> None:
        assert claim.turn is not None
        message = decode_inbound(claim.turn.record)
        self.received.append(message)
        if claim.turn.joins_at_start:
            joined = await self._turns.join_waiting(claim, 1, at_start=True)
            self.received += [decode_inbound(record) for _, record in (joined.records if joined else ())]
        turn = Turn(self._client, claim, message)
        script = self.scripts.get(message.content)
        answer = f"echo: {message.content}" if script is None else await script(turn)
        lines = [turn.line(answer)] if isinstance(answer, str) else answer
        await self._turns.commit(claim, history=[], lines=lines, event=TurnEvent(turn.n, "done"), retry_for_s=60)
