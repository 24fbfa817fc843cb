"""One MCP server: keeps a session with it from the worker's start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from shared.backoff import Backoff
from shared.errors import ToolFailed
from shared.log import logger
from shared.redaction import MASK, redact, redacted
from shared.settings import McpServerSettings, Secret
from shared.tasks import event_within
from worker.documents.untrusted import one_line
from worker.mcp.wire import CallResult, ListedTool, ResultPart, ResultUnreadable, ServerGone, ServerRefused

if TYPE_CHECKING:
    from worker.mcp.connection import McpSession

# Interval at which the list of tools is requested: not every server reports changes.
RELIST_S: Final = 300.0
# Shortest time between two attempts to connect, and between two requests for the list.
MIN_INTERVAL_S: Final = 0.5
WAITS_S: Final = (0.5, 30.0)  # first and longest wait between attempts to connect
STEADY_S: Final = 10.0  # a session that lived this long was a good one, and resets the waits
RECONNECT_S: Final = 10.0  # time that a call waits for a session
STDERR_LINES: Final = 1000  # lines of stderr that are logged for one process
SHORTEST_SECRET: Final = 8
PINS: Final = 1000  # tools of a server that are remembered; further names are not offered

log = logger("mcp-servers")


class McpServer:
    """One server as the worker sees it. `on_change` is called when its list of tools changes.
    `run()` connects, lists the tools, and reconnects with growing waits when the session ends; a
    call cuts a wait short. The library's cancel scopes must be left in the task that entered them,
    so the whole session lives in the task of `run()`, while the tasks of turns make the calls."""

    def __init__(self, name: str, settings: McpServerSettings, on_change: Callable[[], None]) -> None:
        self.name = name
        self.settings = settings
        # Set when the first attempt to connect is over, or a turn has waited for it.
        self.first_try_done = asyncio.Event()
        # The last known tools. They stay while the server is unavailable, so that the prompt of the
        # model does not change.
        self.listed: tuple[ListedTool, ...] = ()
        self._on_change = on_change
        self._connection: McpSession | None = None
        self._why = "connecting"
        self._disconnect_logged = False
        self._trying = False
        self._list_changed = asyncio.Event()
        self._connection_wanted = asyncio.Event()
        self._try_done = asyncio.Event()  # belongs to the current attempt, or to the next one
        self._last_stderr_line = ""
        self._lines = 0
        self._secrets = tuple(_long_secrets(settings))
        self._pins: dict[str, ListedTool] = {}  # each tool as this process listed it first
        self._changed: set[str] = set()  # those that their server describes otherwise by now

    @property
    def state(self) -> str:
        """The number of its tools, or why it is unavailable, for operators."""
        offered = sum(not tool.unfit for tool in self.listed)
        return f"{offered} tools" if self._connection is not None else f"away ({self._why})"

    async def run(self) -> None:
        """Keep connecting until cancelled, which ends the session and the server's process."""
        for secret in self._secrets:
            redact(secret, f"mcp.{self.name}")
        loop = asyncio.get_running_loop()
        backoff = Backoff(*WAITS_S)
        while True:
            began = loop.time()
            why = await self._run_session()
            if loop.time() - began > STEADY_S:
                backoff.reset()
            self._on_disconnected(why)
            wait_s = next(backoff)
            await asyncio.sleep(min(wait_s, MIN_INTERVAL_S))
            await event_within(self._connection_wanted, wait_s - MIN_INTERVAL_S)

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallResult:
        """Call one of its tools. Raises ToolFailed with a text for the model."""
        for again in (True, False):
            connection = await self._wait_for_connection()
            try:
                return _mask_secrets(await connection.call(tool, arguments), self._secrets)
            except ServerGone as exc:
                # Sent again only if the server cannot have seen it: the tool may not be idempotent.
                if exc.unsent and again:
                    continue
                raise ToolFailed(
                    f"the MCP server {self.name!r} ended before it answered {tool!r}; whether it did anything is "
                    "unknown. Check before you call it again, or go on without it"
                ) from None
            except ResultUnreadable as exc:
                # Not a refusal: corrected and called again, it would do its work twice.
                raise ToolFailed(
                    f"the MCP server {self.name!r} ran {tool!r}, but its answer could not be read: {exc}. Check what "
                    "it did before you call it again, or go on without it"
                ) from None
            except ServerRefused as exc:
                refusal = one_line(redacted(str(exc)), 500)
                raise ToolFailed(
                    f"the MCP server {self.name!r} refused {tool!r}, in its own words: {refusal!r}. Correct the call, "
                    "or go on without it"
                ) from None
        raise AssertionError("unreachable")

    async def _wait_for_connection(self) -> McpSession:
        if self._connection is None or self._connection.ended:
            self._connection_wanted.set()
            await event_within(self._try_done, RECONNECT_S)
        connection = self._connection
        if connection is None or connection.ended:
            raise ToolFailed(
                f"the MCP server {self.name!r} is unavailable ({self._why}). Go on without it, or try again later"
            )
        return connection

    async def _run_session(self) -> str:
        """Connect and watch the session until it ends; return the reason why it ended."""
        limit_s = self.settings.connect_s
        self._last_stderr_line = ""
        self._lines = 0
        self._trying = True
        self._connection_wanted.clear()
        try:
            # In a thread: importing the library takes most of a second.
            library = await asyncio.to_thread(import_module, "worker.mcp.connection")
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(limit_s):
                    session = library.connect(self.settings, self._list_changed.set, self._on_stderr_line)
                    connection: McpSession = await stack.enter_async_context(session)
                    self._update_tools(await connection.tools())
                self._connection = connection
                self._disconnect_logged = False
                self._connection_wanted.clear()
                log.info("mcp server ready", server=self.name, tools=len(self.listed))
                self._finish_try()
                try:
                    await self._watch_session(connection)
                finally:
                    self._connection = None
            return "its session ended"
        except TimeoutError:
            return f"no answer within {limit_s:g} s"
        except Exception as exc:
            return _describe_error(exc)

    async def _watch_session(self, connection: McpSession) -> None:
        """List the tools whenever they changed, and every RELIST_S, until the session ends."""
        while not connection.ended:
            await event_within(self._list_changed, RELIST_S)
            # Cleared before the list is requested: a change that comes meanwhile is then not lost.
            self._list_changed.clear()
            if connection.ended:
                return
            async with asyncio.timeout(self.settings.connect_s):
                self._update_tools(await connection.tools())
            await asyncio.sleep(MIN_INTERVAL_S)

    def _update_tools(self, listed: tuple[ListedTool, ...]) -> None:
        allowed = self.settings.tools
        unknown = sorted(set(allowed) - {tool.name for tool in listed})
        chosen = [tool for tool in listed if not allowed or tool.name in allowed]
        # A malformed entry must not hide a good one of the same name.
        by_name = {(tool.name, bool(tool.unfit)): tool for tool in chosen}
        found = tuple(filter(None, (self._pin(by_name[key]) for key in sorted(by_name))))
        if found != self.listed:
            self.listed = found
            if unknown:
                log.warning("mcp tools missing", server=self.name, tools=unknown, set=f"mcp.{self.name}.tools")
            self._on_change()

    def _pin(self, tool: ListedTool) -> ListedTool | None:
        """Return a tool as it was listed first; None where a server has made up too many names. A
        server that passed its review must not get other words to the model later."""
        if tool.unfit:
            return tool  # it is not offered
        pin = self._pins.get(tool.name)
        if pin is None:
            if len(self._pins) >= PINS:
                return None
            pin = self._pins[tool.name] = tool
        elif pin != tool and tool.name not in self._changed:
            self._changed.add(tool.name)
            doing = "offering it as it was listed first, until the worker starts again"
            log.warning("mcp tool changed", server=self.name, tool=one_line(tool.name, 64), doing=doing)
        return pin

    def _on_disconnected(self, why: str) -> None:
        # Stderr is shown only for a server that never connected: afterwards it may quote messages of
        # people.
        words = f"{why}; its stderr: {self._last_stderr_line}" if self._trying and self._last_stderr_line else why
        self._why = one_line(redacted(words), 200)
        if not self._disconnect_logged:
            self._disconnect_logged = True
            log.warning("mcp server unavailable", server=self.name, why=self._why, doing="trying again")
        if self._trying:
            self._finish_try()

    def _finish_try(self) -> None:
        self._trying = False
        self.first_try_done.set()
        self._try_done.set()  # wakes the calls that wait for this attempt
        self._try_done = asyncio.Event()  # the next calls wait for the next one

    def _on_stderr_line(self, line: str) -> None:
        self._last_stderr_line = line
        self._lines += 1
        if self._lines <= STDERR_LINES:
            log.debug("mcp server stderr", server=self.name, line=line)


def _mask_secrets(result: CallResult, secrets: Iterable[str]) -> CallResult:
    """Mask these secrets wherever the server may have written them into a result."""

    def mask_text(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, MASK)
        return text

    def mask_part(part: ResultPart) -> ResultPart:
        return replace(part, text=None if part.text is None else mask_text(part.text), name=mask_text(part.name))

    return CallResult(tuple(map(mask_part, result.parts)), result.failed)


def _long_secrets(settings: McpServerSettings) -> Iterator[str]:
    values: list[Secret] = [*settings.env.values(), *settings.headers.values()]
    for value in values:
        for word in {value.reveal(), *value.reveal().split()}:
            if len(word) >= SHORTEST_SECRET:
                yield word


def _describe_error(exc: BaseException) -> str:
    """Describe an error; of a group, its first one."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    if isinstance(exc, ServerGone):
        return "it ended at once"
    text = str(exc.strerror if isinstance(exc, OSError) and exc.strerror else exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__
