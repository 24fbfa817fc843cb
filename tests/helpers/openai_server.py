"""A scripted model server that speaks OpenAI's chat protocol, in a process of its own.

`python -m tests.helpers.openai_server --port 0` prints its port on the first line. Without a script it answers
`echo: <last user text>`. `POST /script` takes a JSON list of `Answer`s, `POST /reset` forgets everything,
`POST /release` lets held answers go, `POST /forget` forgets what was asked; `GET /requests` lists that (body,
headers, time), `GET /stats` counts it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from email.message import Message
from email.parser import BytesParser
from typing import Any, Final

import msgspec

from tests.helpers.openai_answer import (
    Answer,
    Call,
    chunks_of,
    filled,
    last_user_text,
    pieces_of,
    split_cut_off,
    whole_of,
)

__all__ = ["Answer", "Call", "Request", "ScriptedOpenAI", "serving"]

HEADER_LIMIT_BYTES: Final = 64 * 1024
_STATUS: Final = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


class Request(msgspec.Struct):
    """A request as it came. `at` is wall-clock seconds."""

    at: float
    headers: dict[str, str]
    body: dict[str, Any]


class Hangup(Exception):
    """The script says: cut the connection."""


class Reader(asyncio.StreamReader):
    """Knows when the client is gone, also while nobody reads."""

    def __init__(self) -> None:
        super().__init__(limit=HEADER_LIMIT_BYTES)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        self.gone.set()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.gone.set()
        super().set_exception(exc)


class Server:
    """The scripts, the record of requests, and one handler for all connections."""

    def __init__(self) -> None:
        self._answers: list[Answer] = []
        self._requests: list[Request] = []
        self._open = 0
        self._most_open = 0
        self._released = asyncio.Event()

    async def handle(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (Hangup, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def _one(self, reader: Reader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        match method, path.partition("?")[0]:
            case "POST", "/v1/chat/completions" | "/chat/completions":
                self._open += 1
                self._most_open = max(self._most_open, self._open)
                try:
                    await _while_there(reader, self._complete(msgspec.json.decode(body), headers, writer))
                finally:
                    self._open -= 1
            case "POST", "/v1/audio/transcriptions":
                await self._transcribe(body, headers, writer)
            case "POST", "/v1/audio/speech":
                await self._speak(body, headers, writer)
            case "GET", "/requests":
                await _send(writer, 200, msgspec.json.encode(self._requests))
            case "GET", "/stats":
                stats = {"requests": len(self._requests), "open": self._open, "most_open": self._most_open}
                await _send(writer, 200, msgspec.json.encode(stats))
            case "POST", "/script":
                self._answers.extend(msgspec.json.decode(body, type=list[Answer]))
                await _send(writer, 200, b"{}")
            case "POST", "/reset":
                self._answers.clear()
                self._requests.clear()
                self._most_open = self._open
                self._released = asyncio.Event()
                await _send(writer, 200, b"{}")
            case "POST", "/release":
                self._released.set()
                await _send(writer, 200, b"{}")
            case "POST", "/forget":
                self._requests.clear()
                await _send(writer, 200, b"{}")
            case "GET", "/v1/models":
                await _send(writer, 200, b'{"object":"list","data":[{"id":"scripted","object":"model"}]}')
            case _:
                await _send(writer, 404, b'{"error":{"message":"no such page","type":"not_found"}}')
        return headers.get("connection", "").lower() != "close"

    async def _transcribe(self, body: bytes, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        """Answer a recording by the next script with the role `voice`. The request is kept with its fields."""
        parts = BytesParser().parsebytes(f"Content-Type: {headers['content-type']}\r\n\r\n".encode() + body)
        fields: dict[str, str | int] = {}
        for part in parts.get_payload():
            assert isinstance(part, Message)
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            name = str(part.get_param("name", header="content-disposition"))
            fields[name] = len(content) if part.get_filename() else content.decode()
            if filename := part.get_filename():
                fields["name"] = filename
        self._requests.append(Request(time.time(), headers, fields))
        answer = self._pick("", "voice")
        text = msgspec.json.encode({"text": answer.text or ""} if answer.status == 200 else {"error": answer.error})
        await _send(writer, answer.status, text)

    async def _speak(self, body: bytes, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        """Answer a text by the next script with the role `speech`, whose text is the recording (latin-1)."""
        self._requests.append(Request(time.time(), headers, msgspec.json.decode(body)))
        answer = self._pick("", "speech")
        text = (
            (answer.text or "").encode("latin-1")
            if answer.status == 200
            else msgspec.json.encode({"error": answer.error})
        )
        await _send(writer, answer.status, text)

    async def _complete(
        self,
        body: dict[str, Any],
        headers: dict[str, str],
        writer: asyncio.StreamWriter,
    ) -> None:
        self._requests.append(Request(time.time(), headers, body))
        messages, so_far = split_cut_off(body.get("messages") or [{}])
        text = last_user_text(messages)
        answer = self._pick(text, messages[-1].get("role", ""))
        if answer.fault == "hang":
            await asyncio.Event().wait()  # until the client gives up
        released = self._released  # a `reset` makes a new one, and this answer belongs to what was before
        if answer.held:
            await released.wait()
        if answer.status != 200:
            error = {"message": f"scripted error {answer.status}", "type": "scripted", "code": None} | answer.error
            extra = {"Retry-After": answer.retry_after} if answer.retry_after else {}
            await _send(writer, answer.status, msgspec.json.encode({"error": error}), extra)
            return
        if answer.fault == "garbage" and not body.get("stream"):
            await _send(writer, 200, b'{"choices": [{"mess')
            return
        pieces = pieces_of(answer, text, so_far)
        pause_s = answer.delta_s or (answer.total_s / len(pieces) if pieces else 0.0)
        if answer.total_s and not pieces:
            await asyncio.sleep(answer.total_s)
        usage: dict[str, Any] = {"prompt_tokens": 1 + len(json.dumps(body)) // 4, "completion_tokens": len(pieces)}
        usage["total_tokens"] = sum(usage.values())
        if answer.cached_tokens:
            usage["prompt_tokens_details"] = {"cached_tokens": answer.cached_tokens}
        if not body.get("stream"):
            await asyncio.sleep(answer.first_s + pause_s * len(pieces))
            if answer.cut_after >= 0:
                raise Hangup
            await _send(writer, 200, msgspec.json.encode(whole_of(answer, "".join(pieces), usage, body)))
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await writer.drain()
        await asyncio.sleep(answer.first_s)
        sent = 0
        for chunk in chunks_of(answer, pieces, usage, body):
            if chunk.get("choices") and chunk["choices"][0]["delta"].get("content"):
                if sent == answer.held_after:
                    await released.wait()
                if sent == answer.stall_after:
                    await asyncio.Event().wait()  # until the client gives up
                if sent == answer.cut_after:
                    raise Hangup
                await asyncio.sleep(pause_s)
                sent += 1
                if answer.fault == "garbage" and sent == 2:
                    await _event(writer, b'{"choices": [{"del')
            await _event(writer, msgspec.json.encode(chunk))
        if answer.cut_after >= sent:
            raise Hangup
        await _event(writer, b"[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _pick(self, text: str, role: str) -> Answer:
        for answer in self._answers:
            if answer.role in ("", role) and (found := re.search(answer.match, text, re.DOTALL)):
                if answer.times:
                    answer.times -= 1
                    if answer.times == 0:
                        self._answers.remove(answer)
                return filled(answer, found)
        return Answer()


async def _event(writer: asyncio.StreamWriter, data: bytes) -> None:
    line = b"data: " + data + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(line), line))
    await writer.drain()


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes, extra: dict[str, str] | None = None) -> None:
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body))} | (extra or {})
    head = f"HTTP/1.1 {status} {_STATUS.get(status, 'Error')}\r\n" + "".join(
        f"{k}: {v}\r\n" for k, v in headers.items()
    )
    writer.write(head.encode("latin-1") + b"\r\n" + body)
    await writer.drain()


async def _while_there(reader: Reader, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, and give it up as soon as the client is gone."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(reader.gone.wait())
    await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if not working.done():
        working.cancel()
        raise Hangup
    working.result()


@contextlib.asynccontextmanager
async def serving(port: int = 0) -> AsyncIterator[int]:
    """The server inside the running loop; gives its port. Its connections end with it."""
    scripted = Server()
    handlers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def handle(reader: Reader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers[task] = writer
        try:
            await scripted.handle(reader, writer)
        finally:
            del handlers[task]

    def protocol() -> asyncio.StreamReaderProtocol:
        reader = Reader()
        return asyncio.StreamReaderProtocol(reader, lambda _, writer: handle(reader, writer))

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", port, backlog=2048)
    async with server:
        yield server.sockets[0].getsockname()[1]
        # A handler notices the end of its connection a few steps of the loop later.
        for writer in handlers.values():
            writer.transport.abort()
        if handlers:
            await asyncio.wait(handlers)


class ScriptedOpenAI:
    """The server as a subprocess: `with ScriptedOpenAI() as model: ... base_url=model.base_url`.

    With `in_thread`, it is a thread of this process: tests that start no process use it.
    """

    def __init__(self, *, in_thread: bool = False) -> None:
        self._in_thread = in_thread

    def __enter__(self) -> ScriptedOpenAI:
        self.port = self._start_thread() if self._in_thread else self._start_process()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start_process(self) -> int:
        command = [sys.executable, "-m", "tests.helpers.openai_server", "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        pipe = process.stdout

        def stop() -> None:
            process.terminate()
            process.wait(10)
            pipe.close()

        self._stop: Callable[[], None] = stop
        return int(pipe.readline())

    def _start_thread(self) -> int:
        ready: Future[int] = Future()

        async def serve() -> None:
            loop, over = asyncio.get_running_loop(), asyncio.Event()

            def stop() -> None:
                loop.call_soon_threadsafe(over.set)
                thread.join()

            self._stop = stop
            async with serving() as port:
                ready.set_result(port)
                await over.wait()

        thread = threading.Thread(target=lambda: asyncio.run(serve()), name="model server", daemon=True)
        thread.start()
        return ready.result(10)

    def script(self, *answers: Answer) -> None:
        """Add answers behind those that are there."""
        self._ask("/script", msgspec.json.encode(answers))

    def reset(self) -> None:
        """Forget all answers and all requests."""
        self._ask("/reset", b"")

    def release(self) -> None:
        """Let answers that are held go, and those that would be until the next `reset`."""
        self._ask("/release", b"")

    def forget(self) -> None:
        """Forget all requests."""
        self._ask("/forget", b"")

    def requests(self) -> list[Request]:
        """What was asked so far, oldest first."""
        return msgspec.json.decode(self._ask("/requests"), type=list[Request])

    def stats(self) -> dict[str, int]:
        """`requests` (how many), `open` (being answered now), `most_open`."""
        return msgspec.json.decode(self._ask("/stats"), type=dict[str, int])

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body), timeout=10) as answer:
            return bytes(answer.read())


async def _main(port: int) -> None:
    async with serving(port) as bound:
        print(bound, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible server for tests.")
    parser.add_argument("--port", type=int, default=0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args().port))
