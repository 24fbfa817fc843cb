"""The part that all fake chat platforms share: a server on this machine, scripted faults, and a record of the calls."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, Final, Self

from aiohttp import web

from shared.tasks import cancel_all

BODY_BYTES: Final = 64 * 1024 * 1024

FAILURE: Final = web.RequestKey("failure", web.Response)
"""The answer to a call once it had its effect."""

Met = tuple[web.Response | None, bool]
"""The answer in place of the platform's own, if any; and whether the connection is cut once the call had its effect."""


class ScriptedFault:
    """The next `times` calls of this kind fail, in one chat or in any (None); `times` -1 = all."""

    def __init__(self, kind: str, call: str, chat: str | None, times: int, retry_after_s: float = 0.3) -> None:
        self.kind, self.call, self.chat = kind, call, chat
        self.times, self.retry_after_s = times, retry_after_s


class FakeHttpPlatform:
    """A chat platform's server. A platform adds its routes, and its answer to each kind of fault."""

    def __init__(self) -> None:
        self.port = 0
        self.calls: list[tuple[float, str, str]] = []
        """Time (monotonic), kind and chat of each call, refused ones too."""

        self.faults: list[ScriptedFault] = []
        self.middlewares: list[Any] = []

    @property
    def origin(self) -> str:
        """Scheme and host of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return self.origin

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Run the server inside the running loop."""
        app = web.Application(client_max_size=BODY_BYTES, middlewares=self.middlewares)
        self.add_routes(app.router)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        self.started()
        background = asyncio.create_task(self.run_background())
        try:
            yield self
        finally:
            await cancel_all([background])
            await self.stop()
            await runner.cleanup()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the platform's routes."""
        raise NotImplementedError

    def started(self) -> None:
        """Do what needs the port."""

    async def run_background(self) -> None:
        """Do what the platform does by itself while it serves."""

    async def stop(self) -> None:
        """Close what the platform opened by itself."""

    def fault_answer(self, fault: ScriptedFault, call: str) -> web.Response:
        """Return the platform's answer for a fault; not asked for those that are silence."""
        raise NotImplementedError

    def script(self, kind: str, call: str, chat: str | None = None, times: int = 1, retry_after_s: float = 0.3) -> None:
        """Let the next calls of this kind fail."""
        self.faults.append(ScriptedFault(kind, call, chat, times, retry_after_s))

    def record(self, call: str, chat: str) -> None:
        self.calls.append((time.monotonic(), call, chat))

    async def meet_fault(self, request: web.Request, call: str, chat: str, *, markup: bool = True) -> Met:
        """Let a call meet the fault that is scripted for it, if any. A fault of markup is only for calls with some."""
        fault = self._next_fault(call, chat, markup=markup)
        match fault.kind if fault is not None else "":
            case "":
                return None, False
            case "unheard":
                await hang_up(request)
            case "unanswered":
                return None, True
            case "stored":
                request[FAILURE] = self.fault_answer(ScriptedFault("down", call, chat, 1), call)
                return None, True
            case "hang":
                await asyncio.Event().wait()  # until the client gives up
        assert fault is not None
        return self.fault_answer(fault, call), False

    def _next_fault(self, call: str, chat: str, *, markup: bool) -> ScriptedFault | None:
        for fault in self.faults:
            if fault.call != call or fault.chat not in (None, chat) or (fault.kind == "markup" and not markup):
                continue
            fault.times -= 1
            if fault.times == 0:
                self.faults.remove(fault)
            return fault
        return None


async def hang_up(request: web.Request) -> None:
    """Cut the connection, or answer with the failure that is to follow the effect. The handler never returns."""
    if (failure := request.get(FAILURE)) is not None:
        kind = type("Failure", (web.HTTPServerError,), {"status_code": failure.status})
        raise kind(text=failure.text, content_type=failure.content_type)
    assert request.transport is not None
    request.transport.abort()
    await asyncio.Event().wait()
