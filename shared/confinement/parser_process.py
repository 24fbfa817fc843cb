"""A parser of bytes of strangers, run where it can be ended: outside of the process that needs the
result, confined, and with a deadline."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Final

from shared.confinement.parser_server import LENGTH
from shared.process.child import end_process, kill_process, start_process

IDLE_S: Final = 60.0
START_S: Final = 20.0
"""Seconds that the start of the process may take, on a busy machine."""

_TOP: Final = Path(__file__).parents[2]


class ParserFailed(Exception):
    """The parser gave no result: it took too long, needed too much memory, or failed."""


class ParserProcess:
    """Calls `function` (`module:name`, from bytes to bytes) in a fork of a process that keeps it
    imported. The first text starts the process, and it ends when none came for `idle_s`.

    Each text has `cpu_s` of processor time, `wall_s` in all, and `memory_bytes`; texts that come
    together are parsed at the same time. The environment of the process is empty."""

    def __init__(
        self,
        function: str,
        *,
        cpu_s: float,
        wall_s: float,
        memory_bytes: int,
        result_bytes: int,
        idle_s: float = IDLE_S,
    ) -> None:
        self._arguments = (function, str(cpu_s), str(wall_s), str(memory_bytes))
        self._wall_s = wall_s
        self._result_bytes = result_bytes
        self._idle_s = idle_s
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def parse(self, data: bytes) -> bytes:
        """Return the result. Raises ParserFailed when these bytes are to blame, and OSError when
        the process is."""
        process, reader, writer = await self._connect()
        try:
            async with asyncio.timeout(START_S + self._wall_s):
                writer.write(data)
                writer.write_eof()
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                if length > self._result_bytes:
                    raise ParserFailed("the result is too large")
                return await reader.readexactly(length)
        except TimeoutError:
            kill_process(process)
            raise OSError("the process of the parser does not answer") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            if process.returncode is not None:
                raise OSError("the process of the parser has ended") from None
            raise ParserFailed("it takes too long to read, or cannot be read") from None
        finally:
            writer.close()

    async def close(self) -> None:
        """End the process. What it still parses is dropped."""
        process = self._process
        self._stop()
        if process is not None:
            await end_process(process)

    async def _connect(self) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to a fork of its own. The process may still be starting."""
        process, control = await self._started()
        ours, theirs = socket.socketpair()
        try:
            with theirs:  # closed here, or the end of the fork would not be seen
                socket.send_fds(control, [b"!"], [theirs.fileno()])
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return process, reader, writer

    async def _started(self) -> tuple[asyncio.subprocess.Process, socket.socket]:
        async with self._starting:
            process = self._process
            control = self._control
            if process is None or control is None or process.returncode is not None:
                self._stop()
                process, control = await self._start()
                self._process = process
                self._control = control
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._stop)
        return process, control

    async def _start(self) -> tuple[asyncio.subprocess.Process, socket.socket]:
        control, theirs = socket.socketpair()
        nothing = asyncio.subprocess.DEVNULL
        starting = asyncio.create_subprocess_exec(
            *(sys.executable, "-E", "-s", "-B", "-m", "shared.confinement.parser_server", *self._arguments),
            stdin=theirs.fileno(),
            stdout=nothing,
            stderr=nothing,
            cwd=_TOP,
            env={"LANG": "C.UTF-8"},
            start_new_session=True,
        )
        try:
            process = await start_process(starting)
        except BaseException:
            control.close()
            raise
        finally:
            theirs.close()
        control.setblocking(False)
        return process, control

    def _stop(self) -> None:
        """Let the process end: it does when this end of its standard input is closed."""
        if self._idle is not None:
            self._idle.cancel()
        if self._control is not None:
            self._control.close()
        self._process = self._control = self._idle = None
