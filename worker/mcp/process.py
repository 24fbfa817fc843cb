"""An MCP server that is a process: its streams, under a keeper."""

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

INHERITED: Final = ("PATH", "LANG")
"""What a server gets of the worker's environment."""

_KEEPER: Final = str(Path(__file__).with_name("keeper.py"))


@asynccontextmanager
async def process_streams(server: McpServerSettings, says: Callable[[str], None]) -> AsyncIterator[tuple[Any, Any]]:
    """Start the server; what to read from it, and where to write. `says` takes each line of its
    stderr.

    Raises OSError."""
    own = {name: value.reveal() for name, value in server.env.items()}
    inherited = {name: value for name, value in child_environment({}).items() if name in INHERITED}
    names = ",".join({**inherited, **own})
    params = StdioServerParameters(
        command=sys.executable,
        args=["-I", "-S", _KEEPER, names, str(MESSAGE_BYTES), *server.command],
        env={**inherited, **own},
        cwd=server.cwd or None,
        encoding_error_handler="replace",
    )
    read, write = os.pipe()
    with os.fdopen(write, "w") as errlog:
        heard = os.fdopen(read, "rb")
        try:
            listening, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: _Lines(says), heard)
        except BaseException:
            heard.close()
            raise
        try:
            async with stdio_client(params, errlog=errlog) as streams:
                errlog.close()  # the process has its own
                yield streams
        finally:
            listening.close()


class _Lines(asyncio.Protocol):
    """Cuts what comes into lines, and long lines into pieces."""

    LONGEST: Final = 2000

    def __init__(self, says: Callable[[str], None]) -> None:
        self._says = says
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self.LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            if line.strip():
                self._says(line[: self.LONGEST].decode(errors="replace").strip())
