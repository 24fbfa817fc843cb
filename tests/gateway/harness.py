"""A web gateway, clients of it, and a tiny worker, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from gateway.channels.web.api.completion import ApiLimits
from gateway.channels.web.channel import WebChannel
from gateway.channels.web.http.auth import Principals
from gateway.channels.web.socket.frame_handler import FrameLimits
from gateway.channels.web.socket.socket import SocketLimits
from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from shared.ids import session_id
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.live import DeltaEvent, TurnEvent
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import AssistantEntry, UserEntry
from shared.settings import ApiSettings, MediaSettings, Settings, WebSettings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import publish
from shared.store.turns.inbox import TURNS, Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.wait import PATIENCE_S, eventually

TOKENS = {"owner": "sesame-open-the-door", "ann": "anns-secret"}
ROOT = Path(__file__).parents[2]

Frame = dict[str, Any]


def session_of(chat: str, principal: str = "owner") -> str:
    """The session of a chat of the web channel."""
    return session_id("web", f"{principal}/{chat}")


class Gateway:
    """A web channel that runs in this process."""

    def __init__(
        self,
        channel: WebChannel,
        client: RedisClient,
        stop: asyncio.Event,
        inbox_limits: InboxLimits | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.channel = channel
        self.client = client
        self.inbox = Inbox(client)
        self.sink = Ingress(client, build_commands(settings or Settings(), client), inbox_limits)
        self.stop = stop

    @property
    def address(self) -> str:
        return self.channel.facts()["web.address"]

    @property
    def sockets(self) -> int:
        return int(self.channel.facts()["web.sockets"])

    @property
    def chats(self) -> int:
        return int(self.channel.facts()["web.chats"])


@contextlib.asynccontextmanager
async def gateway(
    redis_url: str,
    *,
    principals: Principals | None = None,
    allowed_origins: tuple[str, ...] = (),
    socket_limits: SocketLimits | None = None,
    answer_limits: FrameLimits | None = None,
    inbox_limits: InboxLimits | None = None,
    progress: bool = True,
    media: MediaSettings | None = None,
    presets: tuple[str, ...] = (),
    api_limits: ApiLimits | None = None,
    strict_api: bool = False,
    system_texts: bool = False,
    mcp: bool = False,
    aisdk: bool = True,
    agui: bool = True,
    settings: Settings | None = None,
    demo: bool = False,
) -> AsyncIterator[Gateway]:
    """A web gateway on a free port; closed at the end. Rates are wide unless given."""
    client = RedisClient(redis_url, timeout_s=1.0)
    channel = WebChannel(
        WebSettings(port=0, allowed_origins=allowed_origins, progress=progress, first_run=demo),
        principals or Principals(TOKENS),
        client,
        socket_limits=socket_limits or SocketLimits(messages_burst=1000, frames_burst=2000),
        answer_limits=answer_limits,
        media=media,
        presets=presets,
        api_limits=api_limits,
        api=ApiSettings(strict=strict_api, system_texts=system_texts, mcp=mcp, aisdk=aisdk, agui=agui),
        demo=demo,
        whole=settings,
    )
    running = Gateway(channel, client, asyncio.Event(), inbox_limits, settings)
    listening = asyncio.create_task(channel.listen(running.sink, running.stop))
    try:
        await eventually(lambda: listening.done() or answers(running.address), what="the gateway")
        yield running
    finally:
        running.stop.set()
        await listening
        await client.close()


def answers(address: str) -> bool:
    """Whether somebody accepts connections at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except (OSError, ValueError):
        return False
    return True


class Client:
    """A web socket client that keeps every frame it got."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[Frame] = []

    async def send(self, type: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": type, **fields}))

    async def raw(self, data: str | bytes) -> None:
        await self.socket.send(data)

    async def next(self, type: str, **fields: Any) -> Frame:
        """The next frame of this type with these values; what comes before it is kept in `seen`."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                frame: Frame = json.loads(await self.socket.recv())
                self.seen.append(frame)
                if frame["type"] == type and all(frame.get(name) == value for name, value in fields.items()):
                    return frame

    async def shown(self, chat: str, seq: int, *, within_s: float = PATIENCE_S) -> None:
        """Read until line `seq` of a chat has come."""
        async with asyncio.timeout(within_s):
            while seq not in self.seqs(chat):
                self.seen.append(json.loads(await self.socket.recv()))

    async def answer(self, id: str) -> Frame:
        """What a message is answered: `accepted` or `error`."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                frame: Frame = json.loads(await self.socket.recv())
                self.seen.append(frame)
                if frame.get("id") == id and frame["type"] in ("accepted", "error"):
                    return frame

    async def closed(self) -> int:
        """Read to the end; the code the gateway closed with (1006 = it was cut)."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while True:
                    self.seen.append(json.loads(await self.socket.recv()))
            except ConnectionClosed as exc:
                return exc.rcvd.code if exc.rcvd else 1006

    async def say(self, chat: str, text: str, id: str | None = None) -> Frame:
        """Send a message and wait until it is accepted."""
        id = id or secrets.token_hex(8)
        await self.send("message", id=id, chat=chat, text=text)
        return await self.next("accepted", id=id)

    async def pong(self) -> None:
        """Wait for the answer to a ping."""
        async with asyncio.timeout(PATIENCE_S):
            await (await self.socket.ping())

    def lines(self, chat: str) -> list[Frame]:
        """All lines of a chat, as they came."""
        return [frame for frame in self.seen if frame["type"] in ("message", "reply") and frame["chat"] == chat]

    def seqs(self, chat: str) -> list[int]:
        return [frame["seq"] for frame in self.lines(chat)]


@contextlib.asynccontextmanager
async def stranger(
    address: str, *, path: str = "/ws", headers: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A connection that has not said hello."""
    async with connect(f"ws://{address}{path}", additional_headers=headers, compression=None, **options) as socket:
        yield Client(socket)


@contextlib.asynccontextmanager
async def client(address: str, token: str = TOKENS["owner"], **options: Any) -> AsyncIterator[Client]:
    """A connection that is logged in."""
    async with stranger(address, **options) as made:
        await made.send("hello", token=token)
        await made.next("welcome")
        yield made


class Worker:
    """Answers every message with `answer(text)`, as a worker does: lease, live events, commit."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._queue = LeaseQueue(client, TURNS, owner=secrets.token_hex(16), lease_s=60)
        self._turns = Turns(client)
        self.turns: list[tuple[str, str]] = []

    async def run_once(self) -> int:
        """Answer what is due now; how many messages that were."""
        return await self._answer(await self._queue.acquire(16))

    async def _answer(self, claims: Sequence[Claim]) -> int:
        for claim in claims:
            assert claim.turn is not None
            message: InboundMessage = decode_inbound(claim.turn.record)
            n, text = claim.turn.n, f"you said: {message.content}"
            await publish(self._client, claim.session, DeltaEvent(n, 1, 0, text[:4], full=True))
            line = OutboundMessage(content=text, turn=n, in_reply_to=(message.id,), at=message.timestamp)
            entries = (UserEntry(content=message.content, turn=n), AssistantEntry(content=text, turn=n))
            history = (*message.history, *entries)
            await self._turns.commit(claim, history=history, lines=[line], event=TurnEvent(n, "done"))
            self.turns.append((claim.session, message.id))
        return len(claims)

    async def run(self) -> None:
        """Answer until cancelled."""
        try:
            while True:
                await self._answer(await self._queue.acquire_next(16))
        finally:
            await self._queue.close()

    async def close(self) -> None:
        await self._queue.close()


@contextlib.asynccontextmanager
async def worker(redis_url: str) -> AsyncIterator[Worker]:
    """A worker that is not running: call run_once()."""
    client = RedisClient(redis_url)
    made = Worker(client)
    try:
        yield made
    finally:
        await made.close()
        await client.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """`python -m gateway` in a process of its own."""

    def __init__(self, environ: Mapping[str, str], *arguments: str, home: Path) -> None:
        self.port, self.metrics_port = free_port(), free_port()
        settings = {
            "SHOAL_WEB__PORT": str(self.port),
            "SHOAL_METRICS__PORT": str(self.metrics_port),
            "SHOAL_WEB__TOKENS__OWNER": TOKENS["owner"],
            "PYTHONPATH": str(ROOT),
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        self.log = home / f"gateway-{self.port}.log"
        with self.log.open("wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "gateway", *arguments],
                env={**inherited, **settings, **environ},
                cwd=home,
                stdout=out,
                stderr=out,
            )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def readiness(self) -> int:
        """The status of /readyz; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/readyz", timeout=2) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as exc:
            exc.close()
            return exc.code
        except OSError:
            return 0

    async def ready(self) -> None:
        await eventually(lambda: self.popen.poll() is not None or self.readiness() == 200, within_s=60, what="ready")
        assert self.popen.poll() is None, self.log.read_text()

    async def exit_code(self, within_s: float) -> int:
        await eventually(lambda: self.popen.poll() is not None, within_s=within_s, what="the end of the process")
        return int(self.popen.returncode)


@contextlib.contextmanager
def process(redis_url: str, *arguments: str, **environ: str) -> Iterator[Process]:
    """A gateway process; killed at the end if it still lives."""
    with tempfile.TemporaryDirectory() as home:
        made = Process({"SHOAL_REDIS__URL": redis_url, **environ}, *arguments, home=Path(home))
        try:
            yield made
        finally:
            if made.popen.poll() is None:
                made.popen.kill()
            made.popen.wait()
