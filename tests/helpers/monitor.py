"""What clients say to a Redis, command by command, as MONITOR tells it: for tests and benches that count."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from shared.store.client.redis_client import RedisClient
from shared.store.client.scripts import load, script_names, sha
from tests.helpers.wait import eventually

_LINE: Final = re.compile(r"\+([\d.]+) \[\d+ (\S+)\] (.*)")
_WORD: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
LIMIT_BYTES: Final = 64 * 2**20


class Command(NamedTuple):
    """One command of a client: when the server took it (its own clock, in seconds), from which connection, its name
    (of a script: its own), and what comes behind it."""

    at_s: float
    client: str
    name: str
    words: tuple[str, ...]


class Log:
    """Commands in the order in which the server took them; those that scripts call are left out."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.names: dict[str, str] = {}
        """What connections call themselves, by address."""

    def of(self, name: str) -> list[Command]:
        """Those of the clients that call themselves so."""
        return [one for one in self.commands if self.names.get(one.client) == name]

    def clear(self) -> None:
        """Forget what was said so far."""
        self.commands.clear()


def counted(commands: Iterable[Command]) -> Counter[str]:
    """How often each was said."""
    return Counter(one.name for one in commands)


class Monitor:
    """Reads what MONITOR says. `log` is up to date after `catch_up`."""

    def __init__(self, client: RedisClient) -> None:
        self.log = Log()
        self._client = client
        self._seen: set[str] = set()
        self._scripts = _script_names()

    async def read(self, lines: asyncio.StreamReader) -> None:
        """Until the end of the connection."""
        while line := (await lines.readline()).decode(errors="replace"):
            if match := _LINE.match(line):
                self._note(float(match[1]), match[2], match[3])

    async def catch_up(self) -> None:
        """Return when everything that was said until now is in the log, with the names of who said it."""
        mark = secrets.token_hex(8)
        result = (await self._client.command("CLIENT", "LIST")).decode()
        for fields in (
            dict(word.split("=", 1) for word in line.split() if "=" in word) for line in result.splitlines()
        ):
            self.log.names[fields["addr"]] = fields["name"]
        await self._client.command("ECHO", mark)
        await eventually(lambda: mark in self._seen, within_s=30, what="MONITOR")

    def _note(self, at_s: float, client: str, rest: str) -> None:
        words = tuple(_WORD.findall(rest))
        if client == "lua" or not words:
            return
        name = words[0].lower()
        if name == "echo":
            self._seen.add(words[1])
        elif name in ("evalsha", "eval"):
            name = self._scripts.get(words[1] if name == "evalsha" else _sha(words[1]), "eval")
        self.log.commands.append(Command(at_s, client, name, words[1:]))


@asynccontextmanager
async def monitoring(url: str, client: RedisClient) -> AsyncIterator[Monitor]:
    """Hear what is said to this server while the block runs. `client` is any client of the same server."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=LIMIT_BYTES)
    if parts.password:
        writer.write(f"AUTH {parts.password}\r\n".encode())
        await reader.readline()
    writer.write(b"MONITOR\r\n")
    await reader.readline()
    made = Monitor(client)
    reading = asyncio.create_task(made.read(reader))
    try:
        yield made
    finally:
        reading.cancel()
        writer.close()


def _sha(shown: str) -> str:
    """The hash of a script whose source MONITOR shows: with escapes, each byte that is no ASCII one of its own."""
    source = shown.encode().decode("unicode_escape").encode("latin-1")
    return hashlib.sha1(source, usedforsecurity=False).hexdigest()


def _script_names() -> dict[str, str]:
    """The name of each script by the hash by which it is called."""
    return {sha(load(name)): name for name in script_names()}
