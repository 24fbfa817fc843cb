"""The worker's side of a runner: one connection for each command, which ends with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from worker.sandbox.command import Finished, Limiter, SandboxBroken, SandboxCommand
from worker.sandbox.runner import frames

CONNECT_S: Final = 5.0
# Time that a command may take beyond its own limit: for the queue, its start and its end.
OVERHEAD_S: Final = 30.0
HANG_UP_S: Final = 5.0
_READ_BYTES: Final = 64 * 1024
_CONNECTION_LOST: Final = (
    "the connection to the runner was lost, and the command with it: it is not known how far it came"
)


class RunnerSandbox:
    """The tier `runner`: the process that listens on `socket` runs the commands."""

    tier: Final = "runner"

    def __init__(self, socket: str | Path) -> None:
        self._socket = str(socket)
        self._open: set[asyncio.StreamWriter] = set()
        self.limited_by: Limiter = "census"

    async def run(self, command: SandboxCommand) -> Finished:
        """See Sandbox. The runner kills the command when the connection ends, even by our death."""
        if command.network:
            # Landlock limits the ports of a command, and not the addresses behind them.
            raise SandboxBroken(
                "a runner cannot keep a command's network to the public web; "
                "set tools.exec_network = false, or use bubblewrap"
            )
        output = bytearray()
        limit_s = command.limits.wall_s + OVERHEAD_S
        async with self._send_request(frames.RunRequest(command), limit_s) as replies:
            async for reply in replies:
                match reply:
                    case frames.OutputPiece(data):
                        output += data
                    case frames.CommandDone(finished):
                        return msgspec.structs.replace(finished, output=bytes(output))
                    case _:
                        raise SandboxBroken("the runner sent a reply to another request")
        raise SandboxBroken(_CONNECTION_LOST)

    async def ping(self) -> frames.PongReply:
        """Check that the runner is up and accepts this user, and learn how it limits commands.
        Raises SandboxBroken."""
        async with self._send_request(frames.PingRequest(), CONNECT_S) as replies:
            async for reply in replies:
                if isinstance(reply, frames.PongReply):
                    self.limited_by = reply.limited_by
                    return reply
                break
        raise SandboxBroken("the runner gave no answer")

    async def close(self) -> None:
        for writer in list(self._open):
            writer.close()

    @contextlib.asynccontextmanager
    async def _send_request(
        self, request: frames.RunnerRequest, limit_s: float
    ) -> AsyncIterator[AsyncIterator[frames.RunnerReply]]:
        frame = frames.encode(request)
        most = frames.REQUEST_LIMIT_BYTES
        if len(frame) > most:
            raise SandboxBroken(f"the command has {len(frame):,} bytes; at most {most:,} fit")
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_unix_connection(self._socket)
        except (OSError, TimeoutError) as exc:
            raise SandboxBroken(
                f"no runner listens on tools.exec_runner ({getattr(exc, 'strerror', None) or 'no answer'}); "
                "start `python -m worker runner`"
            ) from None
        self._open.add(writer)
        try:
            writer.write(frame)
            async with asyncio.timeout(limit_s):
                yield _read_replies(reader)
        except TimeoutError:
            raise SandboxBroken(f"the runner gave no answer within {limit_s:g} s") from None
        finally:
            self._open.discard(writer)
            await _hang_up(reader, writer)


async def _read_replies(reader: asyncio.StreamReader) -> AsyncIterator[frames.RunnerReply]:
    bodies = frames.FrameBodies(frames.REPLY_LIMIT_BYTES)
    try:
        while data := await reader.read(_READ_BYTES):
            for body in bodies.feed(data):
                reply = frames.decode_reply(body)
                if isinstance(reply, frames.RequestRefused):
                    raise SandboxBroken(reply.reason)
                yield reply
    except ConnectionError:
        return
    except frames.BadRunnerFrame as exc:
        raise SandboxBroken(f"the runner's reply is not understood: {exc}") from None


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close our side, and wait until the runner has killed the command and closed its own: when
    this returns, nothing of the command runs any more."""
    try:
        with contextlib.suppress(OSError, TimeoutError):
            if not reader.at_eof() and not writer.is_closing():
                writer.write_eof()
                async with asyncio.timeout(HANG_UP_S):
                    while await reader.read(_READ_BYTES):
                        pass
    finally:
        writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
