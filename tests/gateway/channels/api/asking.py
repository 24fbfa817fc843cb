"""Asking the API: OpenAI's own client, and bare HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from openai import AsyncOpenAI, AsyncStream, DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletionChunk

from shared.ids import API, is_ephemeral, nonce, session_id
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import TURNS
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.gateway.harness import TOKENS, Worker
from tests.gateway.harness import worker as tiny_worker
from tests.helpers.wait import eventually

HELLO: Any = {"model": "shoal", "messages": [{"role": "user", "content": "hello"}]}


def user(text: str) -> Any:
    """One message of a user."""
    return {"role": "user", "content": text}


def named(name: str, principal: str = "owner") -> str:
    """The session of a name."""
    return session_id(API, f"{principal}/{name}")


@contextlib.asynccontextmanager
async def asker(address: str, token: str = TOKENS["owner"], *, retries: int = 0) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client, as anybody uses it; no proxy of the machine stands between."""
    async with AsyncOpenAI(
        base_url=f"http://{address}/v1",
        api_key=token,
        max_retries=retries,
        timeout=60,
        http_client=DefaultAsyncHttpxClient(trust_env=False),
    ) as client:
        yield client


@contextlib.asynccontextmanager
async def working(redis_url: str) -> AsyncIterator[Worker]:
    """The tiny worker, at work."""
    async with tiny_worker(redis_url) as made:
        task = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            task.cancel()
            await asyncio.wait([task])


class Reported(msgspec.Struct, frozen=True):
    """An answer over HTTP; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def error(self) -> dict[str, Any]:
        """The error, in the one form that there is."""
        assert self.headers["content-type"] == "application/json"
        assert list(self.json) == ["error"]
        found: dict[str, Any] = self.json["error"]
        assert sorted(found) == ["code", "message", "param", "type"]
        assert found["message"]
        assert isinstance(found["type"], str)
        return found


async def post(
    address: str,
    body: object = None,
    *,
    token: str | None = TOKENS["owner"],
    path: str = "/v1/chat/completions",
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> Reported:
    """One request on a connection of its own, read to its end."""
    async with stream_of(address, body, token=token, path=path, method=method, headers=headers) as reader:
        return await read(reader)


@contextlib.asynccontextmanager
async def stream_of(
    address: str,
    body: object = None,
    *,
    token: str | None = TOKENS["owner"],
    path: str = "/v1/chat/completions",
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[asyncio.StreamReader]:
    """The same, and the answer as it comes; the connection ends with the block."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    sent = {
        "Host": address,
        "Content-Type": "application/json",
        "Content-Length": str(len(data)),
        "Connection": "close",
    }
    sent |= {"Authorization": f"Bearer {token}"} if token is not None else {}
    sent |= headers or {}
    if "Transfer-Encoding" in sent:
        del sent["Content-Length"]
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + data)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def read(reader: asyncio.StreamReader) -> Reported:
    """The whole answer."""
    async with asyncio.timeout(60):
        data = await reader.read()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return Reported(int(first.split()[1]), headers, body)


def _unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        whole += rest[:length]
        body = rest[length + 2 :]
    return whole


async def text_of(stream: AsyncStream[ChatCompletionChunk]) -> str:
    """What a stream says in all."""
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    return "".join(pieces)


async def left_behind(client: RedisClient) -> list[str]:
    """Every key but those that are of no session: what ids were seen (a hash a day), how fast somebody writes, that
    somebody is due, which processes there are, and what is to be swept."""
    found = [name for key in await client.command("KEYS", "*") if (name := key.decode()) != keys.CLOCKS]
    return sorted(
        key
        for key in found
        if not key.startswith(
            ("shoal:{0ax}:seen:", "shoal:{0ax}:brake:", "shoal:{0ax}:wake:", keys.PRESENCE, keys.EPHEMERAL)
        )
    )


async def none_left(client: RedisClient) -> bool:
    """For `eventually`."""
    assert await left_behind(client) == []
    return True


def error_in(stream: bytes) -> dict[str, Any]:
    """The error event that a stream ends with."""
    *_, event = stream.split(b"data: ")
    found: dict[str, Any] = json.loads(event.partition(b"\n")[0])
    assert b"[DONE]" not in stream
    assert list(found) == ["error"]
    error: dict[str, Any] = found["error"]
    return error


def of_one_request(turns: list[tuple[str, str]]) -> list[str]:
    """The sessions of turns that were of one request alone."""
    return [session for session, _ in turns if is_ephemeral(session)]


@contextlib.asynccontextmanager
async def asking(address: str, body: object, **options: Any) -> AsyncIterator[asyncio.Task[Reported]]:
    """A request that waits; given up with the block unless it has its answer."""
    task = asyncio.create_task(post(address, body, **options))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def waiting_message(client: RedisClient, session: str = "") -> InboundMessage:
    """Return the message that waits; without a session, the only one that exists."""

    async def there() -> Any:
        names = [keys.inbox(session)] if session else await client.command("KEYS", keys.inbox("*"))
        rows = await client.command("XRANGE", names[0], "-", "+") if names else []
        if not rows:
            return None
        return decode_inbound(rows[0][1][3])

    found: InboundMessage = await eventually(there, within_s=60, what="a message")
    return found


@contextlib.asynccontextmanager
async def answering(client: RedisClient, line: Mapping[str, Any]) -> AsyncIterator[list[InboundMessage]]:
    """A worker that ends every turn with this line; what it was asked."""
    asked: list[InboundMessage] = []

    async def work() -> None:
        queue, turns = LeaseQueue(client, TURNS, owner=nonce(), lease_s=10), Turns(client)
        try:
            while True:
                for claim in await queue.acquire_next(8):
                    assert claim.turn is not None
                    message = decode_inbound(claim.turn.record)
                    asked.append(message)
                    sent_text = OutboundMessage(turn=claim.turn.n, in_reply_to=(message.id,), **line)
                    await turns.commit(claim, history=[], lines=[sent_text], event=TurnEvent(claim.turn.n, "done"))
        finally:
            await queue.close()

    task = asyncio.create_task(work())
    try:
        yield asked
    finally:
        task.cancel()
        await asyncio.wait([task])
