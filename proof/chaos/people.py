"""People who chat with the fleet as the page does, and remember what they were promised and what they got."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from tests.gateway.harness import TOKENS

Frame = dict[str, Any]


class Person:
    """One chat. Sends sums to the demo model, a few at a time; reconnects, resumes and sends again like the page.

    `accepted` is message id -> turn, `lines` is seq -> line, `doubled` counts lines that were shown twice.
    """

    def __init__(
        self, name: str, addresses: Callable[[], list[str]], rng: random.Random, *, token: str = TOKENS["owner"]
    ) -> None:
        self.name = name
        self.accepted: dict[str, int] = {}
        self.sent_at: dict[str, float] = {}
        self.lines: dict[int, Frame] = {}
        self.doubled = 0
        self.refused = 0
        self.waits: list[float] = []
        self._addresses = addresses
        self._rng = rng
        self._token = token
        self._pending: dict[str, str] = {}
        self._answered: set[str] = set()
        self._next = 0
        self._stopping = False

    @property
    def waiting(self) -> set[str]:
        """Accepted messages without a reply, and those not accepted yet."""
        return (self.accepted.keys() - self._answered) | self._pending.keys()

    def expected(self, id: str) -> str:
        """What the answer to a message must contain."""
        left, right = map(int, id.split("-")[1:])
        return str(left * right)

    def finish(self) -> None:
        """Write nothing new."""
        self._stopping = True

    async def run(self) -> None:
        """Chat until cancelled."""
        while True:
            with contextlib.suppress(OSError, WebSocketException, TimeoutError):
                address = self._rng.choice(self._addresses())
                async with connect(f"ws://{address}/ws", compression=None, open_timeout=3, close_timeout=1) as socket:
                    await self._talk(socket)
            await asyncio.sleep(self._rng.uniform(0.05, 0.3))

    async def _talk(self, socket: Any) -> None:
        await self._send(socket, "hello", token=self._token)
        await self._send(socket, "resume", chat=self.name, after=self._known())
        for id, text in list(self._pending.items()):
            await self._send(socket, "message", id=id, chat=self.name, text=text)
        writer = asyncio.create_task(self._write(socket))
        try:
            while True:
                # A socket that says nothing while answers are due is given up, as a person would reload the page.
                limit_s = 10.0 if self.waiting else 60.0
                self._hear(json.loads(await asyncio.wait_for(socket.recv(), limit_s)))
        finally:
            writer.cancel()

    async def _write(self, socket: Any) -> None:
        while True:
            if not self._stopping and len(self.waiting) < 3:
                left, right = self._rng.randrange(100, 999), self._rng.randrange(100, 999)
                id = f"{self._next}-{left}-{right}"
                self._next += 1
                self._pending[id] = f"Calculate {left} * {right}"
                self.sent_at[id] = time.monotonic()
                await self._send(socket, "message", id=id, chat=self.name, text=self._pending[id])
            await asyncio.sleep(self._rng.uniform(0.1, 0.6))

    def _hear(self, frame: Frame) -> None:
        match frame["type"]:
            case "accepted":
                self._pending.pop(frame["id"], None)
                self.accepted[frame["id"]] = frame["turn"]
            case "error" if frame.get("id") in self._pending:
                self.refused += 1  # it is sent again with the next connection
                raise TimeoutError
            case "message" | "reply" if frame["seq"] == self._known() + 1:
                self.lines[frame["seq"]] = frame
                for id in frame.get("in_reply_to", ()):
                    self._answered.add(id)
                    self.waits.append(time.monotonic() - self.sent_at[id])
            case "message" | "reply":
                self.doubled += 1

    def _known(self) -> int:
        return max(self.lines, default=0)

    async def _send(self, socket: Any, type: str, **fields: Any) -> None:
        await socket.send(json.dumps({"type": type, **fields}))
