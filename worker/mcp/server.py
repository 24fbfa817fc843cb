"""Keeps the session with one MCP server, from a worker's start to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, Final

from shared.backoff import Backoff
from shared.errors import ToolFailed
from shared.log import logger
from shared.redaction import MASK, redact, redacted
from shared.settings import McpServerSettings, Secret
from worker.documents.untrusted import one_line
from worker.mcp.results import masked
from worker.mcp.wire import CallResult, Connect, Connection, Gone, Listed, Refused

RELIST_S: Final = 300.0
"""How often a list of tools is asked for by itself: not every server says when its list has
changed."""
NOT_OFTENER_S: Final = 0.5
"""Between two tries to connect, and between two questions for a list, whoever wants them."""
WAITS_S: Final = (0.5, 30.0)
STEADY_S: Final = 10.0
"""A session that lived so long was a good one: the waits begin anew."""
RECONNECT_S: Final = 10.0
"""How long a call waits for a session."""
STDERR_LINES: Final = 1000
"""Of one process: what it writes beyond them is not logged."""
SHORTEST_SECRET: Final = 8

log = logger("mcp-servers")


class McpServer:
    """One server as the worker sees it. `changed` is called when its list of tools has.

    `run()` connects, asks for the tools, and connects again when the session ends, with growing
    waits; a call shortens a wait. The library's cancel scopes must be left in the task that entered
    them: all of a session is in that task, while calls are made by the tasks of turns.
    """

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        *,
        door: Callable[[], Awaitable[Connect]],
        changed: Callable[[], None],
        not_oftener_s: float = NOT_OFTENER_S,
    ) -> None:
        self.name = name
        self.settings = settings
        self.settled = asyncio.Event()
        """Whether it has once been tried: its tools are known, or are not to be waited for."""
        self.listed: tuple[Listed, ...] = ()
        """As last told: a server that is away for a moment does not change what a model is
        offered."""
        self._door = door
        self._changed = changed
        self._not_oftener_s = not_oftener_s
        self._connection: Connection | None = None
        self._why = "connecting"
        self._told_away = False
        self._trying = False
        self._news = asyncio.Event()
        self._wanted = asyncio.Event()
        self._tried = asyncio.Event()  # that of the try that is under way, or comes next
        self._last_words = ""
        self._lines = 0
        self._secrets = tuple(_long_secrets(settings))

    @property
    def state(self) -> str:
        """For an operator: how many tools it has, or why it is not there."""
        return f"{len(self.listed)} tools" if self._connection is not None else f"away ({self._why})"

    async def run(self) -> None:
        """Until cancelled, which ends the session and the server's process."""
        for secret in self._secrets:
            redact(secret)
        loop = asyncio.get_running_loop()
        backoff = Backoff(*WAITS_S)
        while True:
            began = loop.time()
            why = await self._session()
            if loop.time() - began > STEADY_S:
                backoff.reset()
            self._away(why)
            wait_s = next(backoff)
            await asyncio.sleep(min(wait_s, self._not_oftener_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, wait_s - self._not_oftener_s)):
                    await self._wanted.wait()

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        """Call one of its tools. Raises ToolFailed with a text for the model."""
        for again in (True, False):
            connection = await self._connected()
            try:
                return masked(await connection.call(tool, arguments), self._secrets, MASK)
            except Gone as exc:
                if exc.unsent and again:
                    continue
                raise ToolFailed(
                    f"the MCP server {self.name!r} ended before it answered {tool!r}; whether it did anything is "
                    "unknown. Check before you call it again, or go on without it"
                ) from None
            except Refused as exc:
                said = one_line(redacted(str(exc)), 500)
                raise ToolFailed(
                    f"the MCP server {self.name!r} refused {tool!r}, in its own words: {said!r}. Correct the call, or "
                    "go on without it"
                ) from None
        raise AssertionError("unreachable")

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.ended:
            self._wanted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECONNECT_S):
                    await self._tried.wait()
        connection = self._connection
        if connection is None or connection.ended:
            raise ToolFailed(
                f"the MCP server {self.name!r} is not there ({self._why}). Go on without it, or try again later"
            )
        return connection

    async def _session(self) -> str:
        """Connect and look after the session; why it ended."""
        limit_s = self.settings.connect_s
        self._last_words, self._lines = "", 0
        self._trying = True
        self._wanted.clear()
        try:
            connect = await self._door()
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(limit_s):
                    session = connect(self.settings, self._news.set, self._heard)
                    connection = await stack.enter_async_context(session)
                    self._take(await connection.tools())
                self._there(connection)
                try:
                    await self._look_after(connection)
                finally:
                    self._connection = None
            return "its session ended"
        except TimeoutError:
            return f"no answer within {limit_s:g} s"
        except Exception as exc:
            return _reason(exc)

    async def _look_after(self, connection: Connection) -> None:
        """Until the session ends: ask for the tools anew when they changed, and now and then."""
        while not connection.ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RELIST_S):
                    await self._news.wait()
            self._news.clear()
            if connection.ended:
                return
            async with asyncio.timeout(self.settings.connect_s):
                self._take(await connection.tools())
            await asyncio.sleep(self._not_oftener_s)

    def _take(self, listed: tuple[Listed, ...]) -> None:
        allowed = self.settings.tools
        unknown = sorted(set(allowed) - {tool.name for tool in listed})
        offered = {tool.name: tool for tool in listed if not allowed or tool.name in allowed}
        found = tuple(offered[name] for name in sorted(offered))
        if found != self.listed:
            self.listed = found
            if unknown:
                log.warning("mcp tools missing", server=self.name, tools=unknown, set=f"mcp.{self.name}.tools")
            self._changed()

    def _there(self, connection: Connection) -> None:
        self._connection = connection
        self._told_away = False
        self._wanted.clear()
        log.info("mcp server ready", server=self.name, tools=len(self.listed))
        self._try_over()

    def _away(self, why: str) -> None:
        # Only of a server that never came up: later, what it writes may be what people said.
        words = f"{why}; it said: {self._last_words}" if self._trying and self._last_words else why
        self._why = one_line(redacted(words), 200)
        if not self._told_away:
            self._told_away = True
            log.warning("mcp server away", server=self.name, why=self._why, doing="trying again")
        if self._trying:
            self._try_over()

    def _try_over(self) -> None:
        self._trying = False
        self.settled.set()
        self._tried.set()
        self._tried = asyncio.Event()

    def _heard(self, line: str) -> None:
        self._last_words = line
        self._lines += 1
        if self._lines <= STDERR_LINES:
            log.debug("mcp server says", server=self.name, line=line)


def _long_secrets(settings: McpServerSettings) -> Iterator[str]:
    values: list[Secret] = [*settings.env.values(), *settings.headers.values()]
    for value in values:
        for word in {value.reveal(), *value.reveal().split()}:
            if len(word) >= SHORTEST_SECRET:
                yield word


def _reason(exc: BaseException) -> str:
    """The first fault in a group of them, in words."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    if isinstance(exc, Gone):
        return "it ended at once"
    text = str(exc.strerror if isinstance(exc, OSError) and exc.strerror else exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__
