"""A person, or a script, at `shoal chat` and the other commands: their environment, their terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from shared.messages.outbound import UserLine
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from tests.gateway.harness import answers, free_port
from tests.helpers.fleet_fixtures import Spawn
from tests.helpers.processes import ROOT, Process
from tests.helpers.wait import eventually

WORDS = " ".join(f"word{i}" for i in range(40))

# What a login does: the terminal becomes the one whose Ctrl-C reaches the program.
_ON_A_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'console', *sys.argv[1:]])"
)


def token_of(person: str) -> str:
    return f"a-long-token-of-{person}"


class Fleet:
    """A gateway on a port that stays, and the environment of a person beside it."""

    def __init__(self, spawn: Spawn, redis_url: str, folder: Path, *, port: int = 0, person: str = "owner") -> None:
        self._spawn = spawn
        self.person = person
        self.session = f"web:{person}/terminal"
        self.port = port or free_port()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")},
            "SHOAL_REDIS__URL": redis_url,
            "SHOAL_DATA__DIR": str(folder),
            "SHOAL_WEB__PORT": str(self.port),
            "SHOAL_WEB__TOKEN": token_of(person),
            "TERM": "xterm-256color",
            "HOME": str(folder),  # the history of what is typed is kept there
            "PROMPT_TOOLKIT_NO_CPR": "1",  # nobody answers where the cursor is
        }

    async def gateway(self, *others: str) -> Process:
        """Start it, the first time or again; `others` may come as well."""
        tokens = {f"WEB__TOKENS__{name.upper()}": token_of(name) for name in (self.person, *others)}
        process = self._spawn("gateway", WEB__PORT=str(self.port), **tokens)
        await eventually(lambda: answers(f"127.0.0.1:{self.port}"), within_s=60, what="the gateway")
        return process

    def worker(self) -> Process:
        return self._spawn("worker")

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """`shoal ...` with its ends in pipes."""
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "console", *arguments,
            cwd=ROOT, env=self.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    async def shoal(self, *arguments: str, message: str = "") -> Reported:
        """Run `shoal ...` to its end, with `message` on standard input."""
        return await reported_by(await self.start(*arguments), message)


class Reported(NamedTuple):
    """How a command ended."""

    code: int | None
    out: str
    err: str


async def reported_by(process: asyncio.subprocess.Process, message: str = "") -> Reported:
    async with asyncio.timeout(90):
        out, err = await process.communicate(message.encode())
    return Reported(process.returncode, out.decode(), err.decode())


class Terminal:
    """`shoal ...` on a terminal of its own; `text` is everything that was written to it."""

    def __init__(self, fleet: Fleet, *arguments: str) -> None:
        self._mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ON_A_TERMINAL, *arguments],
            cwd=ROOT, env=fleet.environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        os.set_blocking(self._mine, False)
        self.text = ""

    def type(self, keys: str) -> None:
        os.write(self._mine, keys.encode())

    def read(self) -> str:
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(self._mine, 65536):
                self.text += data.decode(errors="replace")
        return self.text

    async def shows(self, pattern: str) -> None:
        """Wait until something new on it fits; what was before is forgotten."""

        def found() -> bool:
            match = re.search(pattern, self.read(), re.DOTALL)
            if match:
                self.text = self.text[match.end() :]
            return bool(match)

        try:
            await eventually(found, within_s=60, what=pattern)
        except AssertionError as exc:
            raise AssertionError(f"{exc}; the terminal: {self.text!r}") from None

    async def code(self) -> int:
        """Its exit code."""
        await eventually(lambda: self._process.poll() is not None, within_s=60, what="the end of the command")
        self.read()
        return self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._mine)


@contextlib.contextmanager
def terminal(fleet: Fleet, *arguments: str) -> Iterator[Terminal]:
    made = Terminal(fleet, *arguments)
    try:
        yield made
    finally:
        made.close()


async def sent(client: RedisClient, session: str) -> list[str]:
    """What the person said in the chat, by its log."""
    lines = await Outbox(client).read_after(session, after=0)
    return [line.line.text for line in lines if isinstance(line.line, UserLine)]
