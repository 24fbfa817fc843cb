"""One request of an MCP client, and the turn that it may begin."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from gateway.channels.web.api.completion import ApiServices, Completion
from gateway.channels.web.api.errors import as_api_error
from gateway.channels.web.http.auth import Login
from gateway.channels.web.mcp.ask import AskResult, answer_result, approval_result, parse_ask, progress_text
from shared.errors import RedisAway, Refused
from shared.log import logger
from shared.tasks import close_all, event_within

PROGRESS_EVERY_S: Final = 0.5
LEAVE_S: Final = 3.0

Report = Callable[[float, str], Awaitable[None]]

log = logger("mcp")


class McpCall:
    """A request of `login`. Its handler calls `ask` at most once; whoever serves it calls `close` in
    any case. A turn whose result was not returned by then is stopped: its client has left."""

    def __init__(self, services: ApiServices, login: Login, traceparent: str | None) -> None:
        self._services = services
        self._login = login
        self._traceparent = traceparent
        self._completion: Completion | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._returned = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def ask(self, arguments: Mapping[str, Any] | None, report: Report) -> AskResult:
        """Return the answer to a message, or the reason why there is none; `report` hears of the
        progress, with numbers that grow."""
        self._idle.clear()
        try:
            result = await self._ask(arguments, report)
        except Exception as exc:
            if (error := as_api_error(exc)) is None:
                raise
            log.info("call refused", status=error.status, code=error.code)
            result = AskResult(error.message, is_error=True)
        finally:
            self._idle.set()
        self._returned = True
        return result

    async def _ask(self, arguments: Mapping[str, Any] | None, report: Report) -> AskResult:
        completion = Completion(self._services, self._login, parse_ask(arguments), None)
        self._completion = completion
        # A client that leaves must not leave a message behind that nobody knows of: see `close`.
        self._beginning = asyncio.create_task(completion.begin(self._traceparent))
        await asyncio.shield(self._beginning)
        name = completion.request.name
        clock = self._services.clock
        count = 0
        shown = ""
        report_at = clock.monotonic()
        async with aclosing(completion.changes()) as changes:
            async for _ in changes:
                if (reader := completion.reader) is None or completion.answer is not None:
                    continue
                # Without a name the completion has declined it.
                if name is not None and reader.question is not None:
                    return approval_result(reader.question, reader, name)
                doing = progress_text(reader)
                if doing and doing != shown and clock.monotonic() >= report_at:
                    shown = doing
                    count = count + 1
                    report_at = clock.monotonic() + PROGRESS_EVERY_S
                    await report(count, doing)
        assert completion.answer is not None
        return answer_result(completion.answer, name)

    async def close(self) -> None:
        """Stop the turn if its client has left, and stop following it."""
        if self._completion is None:
            return
        # The handler may be a task of the library, which is told to end and not waited for.
        await event_within(self._idle, LEAVE_S)
        if self._beginning is not None:
            await asyncio.wait([self._beginning])
            if self._beginning.exception() is None and not self._returned:
                await close_all(partial(self._stop, self._completion), self._completion.close)
                return
        await self._completion.close()

    async def _stop(self, completion: Completion) -> None:
        with contextlib.suppress(RedisAway, Refused, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await completion.stop()
