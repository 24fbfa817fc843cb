"""A model server for benches: OpenAI's chat protocol, as few cycles as Python allows, in a process of its own.

The model's name says how it answers: `p50-f2000-g5` is 50 pieces of text, the first after 2,000 ms, then one each 5 ms
(0: all together). `GET /stats` counts requests. It reads no JSON and keeps nothing of what it was asked.
"""

from __future__ import annotations

import asyncio
import re
import sys
import urllib.request
from collections.abc import Callable
from functools import cache
from typing import Final, cast

import msgspec
import uvloop

from proof.bench.children import Child, Children

_MODEL: Final = re.compile(rb'"model": ?"[^"]*?(p\d+-f\d+-g\d+)"')
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAM: Final = re.compile(rb'"stream": ?true')
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n"
_BEGIN: Final = _HEAD % (b"text/event-stream; charset=utf-8", b"Transfer-Encoding: chunked")
_USAGE: Final = {"prompt_tokens": 7000, "completion_tokens": 50, "total_tokens": 7050}


class Stats(msgspec.Struct):
    """Requests so far, how many are being answered, and the most that ever were at once."""

    requests: int = 0
    open: int = 0
    most_open: int = 0


class Answer(msgspec.Struct, frozen=True):
    """The bytes of one model's answers: whole, or the parts of a stream and the pause before each."""

    first_s: float
    gap_s: float
    whole: bytes
    parts: tuple[bytes, ...]


def model_name(pieces: int, *, first_ms: int = 0, gap_ms: int = 0) -> str:
    """The name of a model that answers so."""
    return f"p{pieces}-f{first_ms}-g{gap_ms}"


def text_of(pieces: int) -> list[str]:
    """What it says, piece by piece."""
    return [f"word{n} " for n in range(pieces)]


@cache
def answer_of(name: str) -> Answer:
    pieces, first, gap = (int(part[1:]) for part in name.split("-"))
    words = text_of(pieces)
    frame = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": name}
    message = {"role": "assistant", "content": "".join(words)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = msgspec.json.encode(frame | {"object": "chat.completion", "choices": [choice], "usage": _USAGE})
    whole = _HEAD % (b"application/json", b"Content-Length: %d" % len(body)) + body
    chunk = frame | {"object": "chat.completion.chunk"}

    def event(delta: dict[str, str], finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return _chunk(msgspec.json.encode(chunk | {"choices": choices}))

    sent = [event({"content": word}) for word in words] or [b""]
    end = event({}, "stop") + _chunk(msgspec.json.encode(chunk | {"choices": [], "usage": _USAGE})) + _chunk(b"[DONE]")
    first_part = _BEGIN + event({"role": "assistant", "content": ""}) + sent[0]
    parts = (first_part, *sent[1:-1], (sent[-1] if len(sent) > 1 else b"") + end + b"0\r\n\r\n")
    return Answer(first / 1000, gap / 1000, whole, parts if gap else (b"".join(parts),))


def _chunk(data: bytes) -> bytes:
    line = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


class Connection(asyncio.Protocol):
    """One client's connection; requests come one after the other."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._came = bytearray()
        self._wanted = 0
        self._later: asyncio.TimerHandle | None = None
        self._answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._later is not None:
            self._later.cancel()
        self._answered()

    def data_received(self, data: bytes) -> None:
        self._came += data
        if not self._wanted:
            end = self._came.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self._came, 0, end)
            self._wanted = end + 4 + (int(length[1]) if length else 0)
        if len(self._came) >= self._wanted:
            request, self._came, self._wanted = bytes(self._came), bytearray(), 0
            self._take(request)

    def _take(self, request: bytes) -> None:
        model = _MODEL.search(request)
        if model is None:
            body = msgspec.json.encode(self._stats)
            self._out.write(_HEAD % (b"application/json", b"Content-Length: %d" % len(body)) + body)
            return
        stats = self._stats
        stats.requests += 1
        stats.open += 1
        stats.most_open = max(stats.most_open, stats.open)
        self._answering = True
        answer = answer_of(model[1].decode())
        if _STREAM.search(request):
            self._after(answer.first_s, lambda: self._stream(answer, 0))
        else:
            self._after(answer.first_s + answer.gap_s * len(answer.parts), lambda: self._end(answer.whole))

    def _stream(self, answer: Answer, at: int) -> None:
        if at == len(answer.parts) - 1:
            self._end(answer.parts[at])
            return
        self._out.write(answer.parts[at])
        self._after(answer.gap_s, lambda: self._stream(answer, at + 1))

    def _end(self, data: bytes) -> None:
        self._answered()
        self._out.write(data)

    def _answered(self) -> None:
        if self._answering:
            self._answering = False
            self._stats.open -= 1

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        if seconds:
            self._later = self._loop.call_later(seconds, what)
        else:
            what()


class Stub:
    """The server, seen from a bench."""

    def __init__(self, start: Children) -> None:
        self.process: Child = start("proof.bench.stub", talks=True)
        self._port = int(self.process.line())
        self.base_url = f"http://127.0.0.1:{self._port}/v1"

    def stats(self) -> Stats:
        """What it has done."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"http://127.0.0.1:{self._port}/stats", timeout=30) as result:
            return msgspec.json.decode(result.read(), type=Stats)


async def _main() -> None:
    stats = Stats()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(stats), "127.0.0.1", 0, backlog=8192)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_main())
