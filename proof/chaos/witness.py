"""What the server really did, in its own order: which guarded writes it took, from which lease.

`MONITOR` shows each script with its arguments and, behind it, what it changed. The server works on one request at a
time, so this is the order of things, whatever the workers think. Nothing is asked of the product, and a fence that is
missing shows: a write of an older lease was taken. While the server is down or cuts connections some lines are missed,
which can hide something and never make something up.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import defaultdict
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from shared.store import keys
from shared.store.client.redis_client import pairs
from shared.store.client.scripts import load

Kind = Literal["acquired", "ledger", "commit", "given back"]

LEASES: Final = keys.leases("turns")
QUEUE: Final = keys.queue("turns")
LINE_LIMIT_BYTES: Final = 64 * 1024 * 1024
COMMIT: Final = load("turns/commit")
STEPS: Final = tuple(load(name) for name in ("turns/step", "turns/say", "turns/spawn"))
_HEAD_CHARS: Final = 65536
"""Of a long line only the beginning is taken apart: names and leases stand there, records behind."""

_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"?')
_LINE = re.compile(r"\+(\d+\.\d+) \[\d+ ([^\]]+)\] ")


class Event(NamedTuple):
    """Something that happened to a turn: `at` by the server's wall clock in seconds, and whose lease it was."""

    at: float
    kind: Kind
    lease: str


class _Asked(NamedTuple):
    """A guarded write whose outcome has not been seen yet."""

    kind: Literal["ledger", "commit"]
    session: str
    lease: str


class Witness:
    """Listens to one server until cancelled. `events` are by session."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self.events: dict[str, list[Event]] = defaultdict(list)
        self.stale_accepted = 0
        """Writes of a lease that were taken although a later one had been given out."""
        self.stale_refused = 0
        """Writes of such a lease that were not taken."""
        self.overlaps = 0
        """Times at which a lease wrote again after another one of its session had written."""
        self.counted_crashes = 0
        self.listening = asyncio.Event()
        self._newest: dict[str, int] = {}
        self._writers: dict[str, set[str]] = defaultdict(set)
        self._last_writer: dict[str, str] = {}
        self._asked: dict[str, _Asked] = {}

    async def run(self) -> None:
        """Listen; connect again whenever the server is back."""
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._listen()
            self.listening.clear()
            self._asked.clear()
            await asyncio.sleep(0.005)

    async def _listen(self) -> None:
        reader, writer = await asyncio.open_connection(self._url.hostname, self._url.port, limit=LINE_LIMIT_BYTES)
        try:
            writer.write(f"AUTH {self._url.password}\r\nMONITOR\r\n".encode())
            for _ in range(2):
                if await reader.readuntil(b"\r\n") != b"+OK\r\n":
                    return
            self.listening.set()
            while True:
                line = await reader.readuntil(b"\r\n")
                head = line if b'"EVAL" ' in line[:80] else line[:_HEAD_CHARS]  # the source comes first there
                if b"shoal:{0ax}:" in head:
                    self.hear(head.decode("latin-1"))
        finally:
            writer.close()

    def hear(self, line: str) -> None:
        """Take in one line of MONITOR."""
        head = _LINE.match(line)
        if head is None:
            return
        at, where = float(head[1]), head[2]
        if where == "lua":
            if "shoal:{0ax}:leases:turns" in line or "shoal:{0ax}:ledger:" in line or "shoal:{0ax}:session:" in line:
                self._changed(at, _WORD.findall(line, head.end()))
        elif line.startswith('"EVAL', head.end()):
            self._call(line, head.end())

    def _call(self, line: str, start: int) -> None:
        self._over()
        if line.startswith('"EVAL" ', start):  # the source stands where the hash does; keys and arguments follow it
            found = re.search(r'" "\d+" "shoal:{0ax}:', line[start:])
            if found is None:
                return
            words = ["EVAL", "", *_WORD.findall(line, start + found.start() + 2)]
        else:
            words = _WORD.findall(line, start)
        many = int(words[2])
        named, arguments = words[3 : 3 + many], words[3 + many :]
        for script in STEPS:
            session = named[1].removeprefix(keys.session("")) if many == len(script.keys) else ""
            if session and named[0] == LEASES and named[2] == keys.ledger(session):
                self._ask("ledger", session, arguments[script.args.index("lease")])
        if many == len(COMMIT.keys) and named[0] == QUEUE and named[3] == keys.DEAD:
            fences = _unescape(arguments[COMMIT.args.index("fences")])
            for member, lease in pairs(msgspec.msgpack.decode(fences)):
                self._ask("commit", member.removeprefix(keys.TURN_PREFIX), lease)

    def _ask(self, kind: Literal["ledger", "commit"], session: str, lease: str) -> None:
        self._asked[session] = _Asked(kind, session, lease)

    def _over(self) -> None:
        """The script before has ended: whether it was turned away is clear now."""
        for asked in self._asked.values():
            self.stale_refused += _token(asked.lease) < self._newest.get(asked.session, 0)
        self._asked.clear()

    def _changed(self, at: float, words: list[str]) -> None:
        match words:
            case ["HSET", key, *pairs] if key == LEASES:
                for member, lease in zip(pairs[::2], pairs[1::2], strict=True):
                    session = member.removeprefix(keys.TURN_PREFIX)
                    self._newest[session] = max(self._newest.get(session, 0), _token(lease))
                    self.events[session].append(Event(at, "acquired", lease))
            case ["HDEL", key, *members] if key == LEASES:
                for session in {member.removeprefix(keys.TURN_PREFIX) for member in members} - self._asked.keys():
                    last = self.events[session][-1].lease if self.events[session] else ""
                    self.events[session].append(Event(at, "given back", last))
            case ["HINCRBY", _, "crashes", "1"]:
                self.counted_crashes += 1
            case ["XADD", key, *_] if (session := key.removeprefix(keys.ledger(""))) in self._asked:
                self._accepted(at, self._asked.pop(session))
            case ["HSET", key, "done", *_] if (session := key.removeprefix(keys.session(""))) in self._asked:
                self._accepted(at, self._asked.pop(session))

    def _accepted(self, at: float, asked: _Asked) -> None:
        kind, session, lease = asked
        if _token(lease) < self._newest.get(session, 0):
            self.stale_accepted += 1
        if lease in self._writers[session] and lease != self._last_writer[session]:
            self.overlaps += 1
        self._writers[session].add(lease)
        self._last_writer[session] = lease
        self.events[session].append(Event(at, kind, lease))


def _unescape(shown: str) -> bytes:
    """The bytes of a word that MONITOR shows."""
    return shown.encode("latin-1").decode("unicode_escape").encode("latin-1")


def _token(lease: str) -> int:
    return int(lease.rpartition(":")[2] or 0)
