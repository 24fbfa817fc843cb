"""The streams of an MCP server that is a process, which a supervisor starts and ends."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from mcp.client.stdio import StdioServerParameters, stdio_client

from shared.settings import McpServerSettings, child_environment
from worker.mcp.wire import MESSAGE_BYTES

# Variables that a server inherits from the worker's environment.
INHERITED: Final = ("PATH", "LANG")
_SUPERVISOR: Final = str(Path(__file__).with_name("process_supervisor.py"))


@asynccontextmanager
async def process_streams(server: McpServerSettings, on_line: Callable[[str], None]) -> AsyncIterator[tuple[Any, Any]]:
    """Start the server; yield its streams; `on_line` gets its stderr by lines. Raises OSError."""
    own = {name: value.reveal() for name, value in server.env.items()}
    inherited = {name: value for name, value in child_environment({}).items() if name in INHERITED}
    # The library adds variables of its own choice to `env`: the supervisor passes on only `names`.
    names = ",".join({**inherited, **own})
    params = StdioServerParameters(
        command=sys.executable,
        args=["-I", "-S", _SUPERVISOR, names, str(MESSAGE_BYTES), *server.command],
        env={**inherited, **own},
        cwd=server.cwd or None,
        encoding_error_handler="replace",
    )
    read, write = os.pipe()
    with os.fdopen(write, "w") as errlog:
        stderr_reader = os.fdopen(read, "rb")
        try:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_read_pipe(lambda: _StderrLines(on_line), stderr_reader)
        except BaseException:
            stderr_reader.close()
            raise
        try:
            async with stdio_client(params, errlog=errlog) as streams:
                # The process has a copy. Kept open here, the pipe would not end when the process
                # does.
                errlog.close()
                yield streams
        finally:
            transport.close()


class _StderrLines(asyncio.Protocol):
    """Splits what arrives into lines, and long lines into pieces."""

    LONGEST: Final = 2000

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self.LONGEST:
            lines = [*lines, self._rest]
            self._rest = b""
        for line in lines:
            if line.strip():
                self._on_line(line[: self.LONGEST].decode(errors="replace").strip())
