"""A platform in memory, for tests of the gateway's own parts: it does what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from gateway.platform.protocol import (
    Abilities,
    HookAnswer,
    HookRequest,
    Inlet,
    NotDelivered,
    Piece,
    Post,
    PostTarget,
    RemoteFile,
    RunMode,
)

Fault = BaseException | Callable[[], Any]


class FakePlatform:
    """`posts` are those that it took, with edits applied. A fault is what the next call of a name does first: it is
    raised, or called and awaited. A message has `width` characters."""

    def __init__(
        self, name: str = "fake", run_mode: RunMode = "exclusive", *, width: int = 20, **abilities: Any
    ) -> None:
        self.name = name
        self.run_mode: RunMode = run_mode
        given = {"run_modes": ("exclusive", "socket", "webhook"), "resend_guard": "nothing", **abilities}
        self.abilities = Abilities(**given)
        self.posts: list[Post] = []
        self.faults: dict[str, list[Fault]] = {}
        self.calls: list[str] = []
        self.listening = asyncio.Event()
        self.closed = False
        self._width = width

    def fault(self, call: str, *faults: Fault) -> None:
        """What the next calls of this name do first."""
        self.faults.setdefault(call, []).extend(faults)

    @property
    def texts(self) -> list[str]:
        """What stands there."""
        return [post.text for post in self.posts]

    async def open(self) -> None:
        await self._meet("open")

    async def close(self) -> None:
        self.closed = True

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
        self.listening.set()
        try:
            await self._meet("listen")
            await until.wait()
        finally:
            self.listening.clear()

    async def hook(self, request: HookRequest, inlet: Inlet) -> HookAnswer:
        await self._meet("hook")
        return HookAnswer(body=request.body)

    def render(self, markdown: str) -> list[Piece]:
        cuts = [markdown[at : at + self._width] for at in range(0, len(markdown), self._width)]
        return [Piece(f"<{cut}>", cut) for cut in cuts or [""]]

    async def send(self, post: Post) -> str:
        await self._meet("send")
        self.posts.append(post)
        return str(len(self.posts) - 1)

    async def edit(self, id: str, post: Post) -> None:
        await self._meet("edit")
        self.posts[int(id)] = post

    async def find(self, post: Post) -> str | None:
        await self._meet("find")
        return next((str(at) for at, one in enumerate(self.posts) if one.key == post.key), None)

    async def typing(self, target: PostTarget) -> None:
        await self._meet("typing")

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        raise NotDelivered("a fake platform has no files")
        yield b""

    async def _meet(self, call: str) -> None:
        self.calls.append(call)
        waiting = self.faults.get(call)
        if waiting:
            fault = waiting.pop(0)
            if isinstance(fault, BaseException):
                raise fault
            await fault()
