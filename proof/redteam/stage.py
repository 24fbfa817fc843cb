"""Where attacks are played: a Valkey, a real worker with the worst-case model, perhaps a gateway, and people who answer
questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from proof.bench.children import Child, Children
from shared.embedded import EmbeddedValkey
from shared.ids import session_id
from shared.media.store import MediaStore
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import Approval, OutboundMessage, UserLine
from shared.settings import Settings, load
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import ChatNews, Fanout
from shared.store.delivery.outbox import NumberedLine, Outbox
from shared.store.schedules.schedules import Schedules
from shared.store.sessions.memory import MemoryStore
from shared.store.subagents.subagents import Subagents
from shared.store.turns.approvals import ApprovalAnswer, Approvals
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.tasks import cancel_all
from tests.gateway.harness import answers, free_port
from tests.helpers.fleet import workers
from tests.helpers.wait import eventually

TOKEN: Final = "sesame-open-the-door"
PERSON: Final = "owner"
TURN_S: Final = 90.0
HELD_S: Final = 0.02


class Answered(msgspec.Struct, frozen=True):
    """The end of a turn: its text, and the questions that were asked before it."""

    text: str
    questions: tuple[Approval, ...] = ()


class Stage:
    """A running fleet, as a program uses it."""

    def __init__(self, client: RedisClient, settings: Settings, address: str) -> None:
        self.replace_worker: Callable[[], Awaitable[None]]
        """Kills the worker, which has no time for anything, and starts another."""

        self.client: Final = client
        self.settings: Final = settings
        self.address: Final = address
        self.inbox: Final = Inbox(client, InboxLimits.of(settings))
        self.outbox: Final = Outbox(client)
        self.approvals: Final = Approvals(client)
        self.subagents: Final = Subagents(client)
        self.schedules: Final = Schedules(client, settings.cron, InboxLimits.of(settings))
        self.memory: Final = MemoryStore(client)
        self.media: Final = MediaStore(settings.media)
        self.ingress: Final = Ingress(client, build_commands(settings, client), InboxLimits.of(settings))
        self.fanout: Final = Fanout(client, on_gap=self._on_gap)

    @contextlib.asynccontextmanager
    async def chat(self, name: str, *, person: str = PERSON, channel: str = "web") -> AsyncIterator[Chat]:
        """A chat of a person, followed until the end of the block."""
        chat = Chat(self, channel, f"{person}/{name}", person)
        await self.fanout.follow_chat(chat.session, chat.news.put_nowait)
        following = asyncio.create_task(chat.follow())
        try:
            yield chat
        finally:
            await cancel_all([following])
            await self.fanout.unfollow_chat(chat.session)

    async def _on_gap(self) -> None:
        pass


class Chat:
    """A chat, and the people in it: they say yes to calls of tools in `allow`, and to the very calls whose digests are
    in `wanted`, and else no."""

    def __init__(self, stage: Stage, channel: str, chat_id: str, person: str) -> None:
        self.session: Final = session_id(channel, chat_id)
        self.news: Final[asyncio.Queue[ChatNews]] = asyncio.Queue()
        self.questions: Final[list[Approval]] = []
        self.refused: Final[list[Approval]] = []
        self.allow: Collection[str] = ()
        self.wanted: Collection[str] = ()
        self._stage = stage
        self._facts: dict[str, Any] = {"channel": channel, "chat_id": chat_id, "sender_id": person}
        self._person = person
        self._count = 0
        self._ends: dict[str, asyncio.Future[str]] = {}

    async def say(self, text: str, **more: Any) -> Answered:
        """Write a message as a gateway does, and return the end of its turn."""
        before = len(self.questions)
        reply = await self.ended(await self.send(text, **more))
        return Answered(reply, tuple(self.questions[before:]))

    def has_ended(self, id: str) -> bool:
        """Return whether the turn of a message has ended."""
        return self._ends[id].done()

    async def ended(self, id: str) -> str:
        """Return the text with which the turn of a message ended."""
        try:
            async with asyncio.timeout(TURN_S):
                return await self._ends[id]
        except TimeoutError:
            raise TimeoutError(f"no end of the turn of {id}") from None

    async def send(self, text: str, **more: Any) -> str:
        """Write a message; return its id."""
        sent = self.message(text, **more)
        line = UserLine(id=sent.id, text=text[:200])
        await self._stage.inbox.ingest(sent, log_line=line, principal=self._person, internal=True)
        return sent.id

    def message(self, text: str, **more: Any) -> InboundMessage:
        """Make a message of this chat, the end of whose turn can be waited for."""
        self._count += 1
        id = f"{self.session.replace(':', '-')}-{self._count}"
        self._ends[id] = asyncio.get_running_loop().create_future()
        return InboundMessage(**{**self._facts, "id": id, "content": text, "timestamp": 1_700_000_000_000, **more})

    async def command(self, text: str) -> None:
        """Type a command, as on the page."""
        await self._stage.ingress.ingest(self.message(text), principal=self._person)

    async def quiet(self) -> None:
        """Return when no turn and no subagent of this chat is left, or a turn waits for somebody."""
        await eventually(self._is_quiet, within_s=TURN_S, every_s=0.05, what=f"quiet in {self.session}")

    async def _is_quiet(self) -> bool:
        client, member = self._stage.client, keys.turn(self.session)
        for one in await self._stage.subagents.of_session(self.session):
            if one.state in ("queued", "running"):
                return False
        for queue in ("turns", keys.BACKGROUND):
            if await client.command("ZSCORE", keys.queue(queue), member) is not None:
                return False
        return not await client.command("HEXISTS", keys.leases("turns"), member)

    async def follow(self) -> None:
        """Answer questions, and note ends of turns."""
        while True:
            one = await self.news.get()
            if not (isinstance(one, NumberedLine) and isinstance(one.line, OutboundMessage)):
                continue
            line = one.line
            if line.approval is not None and line.approval.state == "open":
                await self._answer(line.approval)
            for id in line.in_reply_to:
                if (end := self._ends.get(id)) is not None and not end.done():
                    end.set_result(line.content)

    async def _answer(self, asked: Approval) -> None:
        self.questions.append(asked)
        yes = "*" in self.allow or asked.tool in self.allow or asked.digest in self.wanted
        if not yes:
            self.refused.append(asked)
        resolve = self._stage.approvals.resolve
        while await resolve(self.session, asked.id, ApprovalAnswer(yes=yes, sender=self._person), now_ms=0) == "held":
            await asyncio.sleep(HELD_S)


class Crew:
    """One worker after the other."""

    def __init__(self, start: Children, env: Mapping[str, str], folder: Path, *, servers: int) -> None:
        self._start = start
        self._env = env
        self._folder = folder
        self._servers = servers
        self._workers: list[Child] = []
        self._replacing = asyncio.Lock()

    async def start(self) -> None:
        """Start a worker, and return when it has its model and its servers."""
        log = self._folder / f"worker-{len(self._workers)}.log"
        self._workers.append(worker := self._start("proof.redteam.side", env=self._env, log=log))
        await worker.until(
            lambda: "model ready" in worker.log and worker.log.count('"mcp server ready"') >= self._servers
        )

    async def replace(self) -> None:
        """Kill the worker alone: its guardian gives its turns back."""
        async with self._replacing:
            self._workers[-1].signal(signal.SIGKILL)
            await self.start()


@contextlib.asynccontextmanager
async def stage(folder: Path, settings: Mapping[str, Any], *, gateway: bool = False) -> AsyncIterator[Stage]:
    """A fleet with these settings, section by section; all of it ends with the block."""
    folder.mkdir(parents=True)
    with Children() as start:
        server = EmbeddedValkey(folder / "valkey", fsync="no", spawned=start.watch)
        await asyncio.to_thread(server.start)
        client, port, config = RedisClient(server.url), free_port(), folder / "shoal.toml"
        tools = dict(settings.get("tools", {}))
        if gateway:  # its pages can be read as those of any other server
            tools["web_allow"] = [*tools.get("web_allow", ()), f"127.0.0.1:{port}"]
        config.write_text(render_toml(_usual(folder, server.url, port), {**settings, "tools": tools}))
        made = Stage(client, load({}, path=config), f"127.0.0.1:{port}")
        following = asyncio.create_task(made.fanout.run())
        try:
            env = {"SHOAL_CONFIG": str(config)}
            crew = Crew(start, env, folder, servers=len(made.settings.mcp))
            made.replace_worker = crew.replace
            if gateway:
                door = start("gateway", env=env, log=folder / "gateway.log")
                await door.until(lambda: answers(made.address))
            await crew.start()
            await workers(client, 1, within_s=60)
            yield made
        finally:
            await cancel_all([following])
            await client.close()
            pid = server.pid
            await asyncio.to_thread(server.stop)
            if pid is not None:
                start.forget(pid)


def render_toml(*tables: Mapping[str, Any]) -> str:
    """Render settings: sections of sections, with values that JSON and TOML write alike."""
    lines: list[str] = []

    def section(name: str, fields: Mapping[str, Any]) -> None:
        inner = {key: value for key, value in fields.items() if isinstance(value, Mapping)}
        lines.append(f"[{name}]")
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in fields.items() if key not in inner)
        for key, value in inner.items():
            section(f"{name}.{key}", value)

    merged: dict[str, dict[str, Any]] = {}
    for table in tables:
        for name, fields in table.items():
            merged[name] = {**merged.get(name, {}), **fields}
    for name, fields in merged.items():
        section(name, fields)
    return "\n".join(lines) + "\n"


def _usual(folder: Path, redis_url: str, port: int) -> dict[str, Any]:
    model = {"name": "openai/obeying", "client": "direct", "api_base": "http://127.0.0.1:9/v1", "api_key": "none"}
    return {
        "redis": {"url": redis_url},
        "data": {"dir": str(folder)},
        "workspace": {"root": str(folder / "workspaces")},
        "media": {"dir": str(folder / "media")},
        "log": {"format": "json"},
        "model": model,
        "agent": {"dir": str(folder / "agent"), "result_bytes": 256 * 1024, "timezone": "UTC"},
        "web": {"port": port, "tokens": {PERSON: TOKEN}},
        "inbox": {"sender_per_minute": 0},
        "metrics": {"port": 0},
    }
