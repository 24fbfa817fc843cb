"""Where a platform is played on: a bench, gateways in this process, an answering worker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from gateway.chat_channel import ChatChannel
from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from gateway.platform.protocol import Abilities, HookRequest
from gateway.platform.webhooks import WebhookServer
from shared.errors import RedisAway
from shared.media.reference import MediaRef
from shared.media.store import MediaStore
from shared.messages.outbound import OutboundMessage
from shared.settings import Settings, load
from shared.store import keys
from shared.store.client.connection import Wire
from shared.store.client.redis_client import RedisClient, Value, pairs
from shared.store.turns.inbox import InboxLimits
from shared.tasks import cancel_all
from tests.contracts.channels.bench import PEOPLE, ChannelBench, PersonAction, SentFile, Shown
from tests.contracts.channels.echo import Echo, Turn
from tests.helpers.wait import eventually

LEASE_S: Final = 60.0
"""A lease that no stall of a machine outlasts; `Stage.crash` lets those of a gateway be over."""
SOON_S: Final = 60.0
"""Nothing here depends on speed: this is how long a loaded machine may need."""

REDIS_S: Final = 30.0
"""So long a gateway waits for an answer of a Redis that is there. One that was killed refuses connections at once."""

_ids = count(1)


class Pace(msgspec.Struct, frozen=True):
    """What a gateway believes that its platform takes: edits `edit_every_s` apart, or less if the platform takes more,
    and its rates this many `times`."""

    edit_every_s: float
    times: float = 1.0

    def of(self, abilities: Abilities) -> Abilities:
        """The abilities with this pace."""
        rates = tuple(msgspec.structs.replace(rate, per_s=rate.per_s * self.times) for rate in abilities.rates)
        edit_every_s = min(self.edit_every_s, abilities.edit_every_s)
        return msgspec.structs.replace(abilities, rates=rates, edit_every_s=edit_every_s)


QUICK: Final = Pace(0.05, times=20)
"""Platforms want 1 to 1.5 s between edits, and some take one message a second, which is all that most tests would wait
for."""

OWN_RATES: Final = Pace(0.05)
SLOW_EDITS: Final = Pace(0.4)


class MortalClient(RedisClient):
    """A client whose process may die: then nothing it says arrives any more."""

    dead = False

    async def command(self, *parts: Value) -> Any:
        self._check()
        return await super().command(*parts)

    async def pipeline(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        self._check()
        return await super().pipeline(commands)

    async def open(self) -> Wire:
        self._check()
        return await super().open()

    def _check(self) -> None:
        if self.dead:
            raise RedisAway("this process is dead")


class Replica:
    """A gateway of one channel, in this process."""

    def __init__(self, name: str, settings: Settings, redis_url: str, pace: Pace = SLOW_EDITS) -> None:
        self.settings = settings
        self.client = MortalClient(redis_url, timeout_s=REDIS_S)
        self.stop = asyncio.Event()
        self.hooks = WebhookServer(settings.hooks, self.stop)
        self.channel = channel = ChatChannel(name, settings, self.client, self.hooks)
        channel.abilities = pace.of(channel.abilities)
        vars(channel._platform)["abilities"] = channel.abilities
        limits = InboxLimits.of(settings)
        self.sink: Ingress = Ingress(self.client, build_commands(settings, self.client), limits)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Returns when the platform is open, and its webhook answers."""
        self._tasks = [
            asyncio.create_task(self.channel.listen(self.sink, self.stop), name="channel"),
            asyncio.create_task(self.hooks.run(), name="hooks"),
        ]
        await eventually(self._is_up, within_s=SOON_S, what="the channel")

    def _is_up(self) -> bool:
        for task in self._tasks:
            if task.done():
                task.result()
        listens = self.channel.run_mode != "webhook" or bool(self.hooks.address)
        return self.channel.facts()[f"{self.channel.name}.state"] == "on" and listens

    async def drain(self) -> float:
        """End it as SIGTERM does; the seconds that took."""
        began = time.monotonic()
        self.stop.set()
        await asyncio.gather(*self._tasks)
        await self.client.close()
        return time.monotonic() - began

    async def crash(self) -> None:
        """End it as SIGKILL does: what is under way stops, and Redis hears nothing of it."""
        self.client.dead = True
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gateway.delivery.egress.FINISH_S", 0.0)  # who is killed finishes nothing
            await cancel_all(self._tasks)
        await self.client.close()

    def listens(self) -> bool:
        """Whether it is the one that the platform talks to; of webhooks every one is."""
        return self.channel.facts()[f"{self.channel.name}.listens"] in ("true", "hook")

    @property
    def is_over(self) -> bool:
        return self.stop.is_set() or self.client.dead


class Stage:
    """A platform with gateways and a worker. The first gateway is there from the beginning."""

    def __init__(self, bench: ChannelBench, redis_url: str, home: Path, http: aiohttp.ClientSession) -> None:
        self.bench = bench
        self.redis_url = redis_url
        self.home = home
        self.client = RedisClient(redis_url, timeout_s=SOON_S)
        self.worker = Echo(redis_url)
        self.replicas: list[Replica] = []
        self._http = http
        self._groups = {bench.chat(number, group=True) for number in range(PEOPLE)}

    def settings(self, **sections: Mapping[str, Any]) -> Settings:
        """Those of an operator; `sections` are on top."""
        tables: dict[str, Mapping[str, Any]] = {
            f"channels.{self.bench.name}": self.bench.table(),
            "worker": {"lease_s": LEASE_S},
            "hooks": {"port": 0},
            "delivery": {"call_s": 3.0},
            "media": {"dir": str(self.home / "media")},
        }
        for name, table in sections.items():
            tables[name] = {**tables.get(name, {}), **table}
        file = self.home / "shoal.toml"
        file.write_text(toml(tables))
        return load({}, path=file)

    async def gateway(self, pace: Pace = QUICK, /, **sections: Mapping[str, Any]) -> Replica:
        """One more gateway."""
        replica = Replica(self.bench.name, self.settings(**sections), self.redis_url, pace)
        self.replicas.append(replica)
        await replica.start()
        return replica

    async def crash(self, replica: Replica) -> None:
        """End a gateway as SIGKILL does, and let its leases be over at once: their end is moved into the past, and the
        other gateways look. That this takes the time of a lease is a test of its own, with `Replica.crash`."""
        await replica.crash()
        assert replica.channel._egress is not None
        assert replica.channel._listening is not None
        deliveries, locks = replica.channel._egress._deliveries, replica.channel._listening._locks
        outqueue, outleases = keys.outqueue(deliveries.channel), keys.outleases(deliveries.channel)
        for session, lease in pairs(await self.client.command("HGETALL", outleases)):
            if lease.startswith(deliveries.owner.encode()):
                await self.client.command("ZADD", outqueue, "XX", 0, session)
        for lock in locks:
            lease = await self.client.command("HGET", keys.lock(lock.name), "lease")
            if lease is not None and lease.startswith(lock.owner.encode()):
                await self.client.command("HSET", keys.lock(lock.name), "until", 0)
                await self.client.command("PUBLISH", lock.freed, b"")
        await self.client.command("PUBLISH", deliveries.news, b"")

    async def close(self) -> None:
        await asyncio.gather(*(replica.drain() for replica in self.replicas if not replica.is_over))
        await self.worker.close()
        await self.client.close()

    def is_group(self, chat: str) -> bool:
        """Whether it is one of the bench's groups."""
        return "group" not in self.bench.cannot and chat in self._groups

    # --- people

    async def tell(self, action: PersonAction) -> None:
        """Somebody does something on the platform, which tells it to a gateway as it would."""
        if self.bench.run_mode != "webhook":
            await self.bench.tell(action)
            return
        request = self.bench.hook(action)
        await eventually(lambda: self._deliver(request), within_s=SOON_S, every_s=0.05, what="the webhook")

    async def _deliver(self, request: HookRequest) -> bool:
        there = [replica for replica in self.replicas if not replica.is_over]
        return bool(there) and (await self.call(request, there[-1]))[0] == 200

    async def call(self, request: HookRequest, replica: Replica, path: str | None = None) -> tuple[int, bytes]:
        """Call the webhook of a gateway; status (0 = nobody answered) and body."""
        url = f"http://{replica.hooks.address}{path or f'/hooks/{self.bench.name}'}"
        try:
            async with self._http.request(
                request.method, url, params=request.query, headers=request.headers, data=request.body
            ) as answer:
                return answer.status, await answer.read()
        except aiohttp.ClientError:
            return 0, b""

    def message(self, chat: str, text: str, *, id: str | None = None, **more: Any) -> PersonAction:
        """What the person of a chat says."""
        return PersonAction(chat=chat, text=text, id=id or f"m{next(_ids)}", **more)

    async def say(self, chat: str, text: str, **more: Any) -> PersonAction:
        """The person of a chat says something."""
        action = self.message(chat, text, **more)
        await self.tell(action)
        return action

    # --- the agent

    def script(self, text: str, *lines: str | OutboundMessage) -> None:
        """Who says `text` is answered these lines; an `OutboundMessage` without its turn."""

        async def answer(turn: Turn) -> list[OutboundMessage]:
            return [
                turn.line(line)
                if isinstance(line, str)
                else msgspec.structs.replace(line, turn=turn.n, in_reply_to=(turn.message.id,))
                for line in lines
            ]

        self.worker.scripts[text] = answer

    def file(self, chat: str, name: str, data: bytes) -> MediaRef:
        """A file of the agent's, kept for a chat."""
        store = MediaStore(self.settings().media)
        return store.put(self.bench.session(chat), data, name)

    def kept(self, chat: str, ref: MediaRef) -> bytes:
        """The bytes of a file that is kept for a chat."""
        return MediaStore(self.settings().media).read(self.bench.session(chat), ref)

    # --- what is seen

    def texts(self, chat: str) -> list[str]:
        """What the person reads, message by message."""
        return [one.text for one in self.bench.shown(chat)]

    async def sees(self, chat: str, *texts: str, within_s: float = SOON_S) -> Sequence[Shown]:
        """Wait until the person of a chat sees exactly these messages."""

        def seen() -> bool:
            found = self.texts(chat)
            assert found == list(texts), f"shown: {found!r}"
            return True

        await eventually(seen, within_s=within_s, what=f"{list(texts)!r} in {chat!r}")
        return self.bench.shown(chat)

    async def attended(self, chat: str) -> None:
        """Wait until a gateway follows what happens in a chat: an event that comes before that is seen by nobody."""

        async def is_attended() -> bool:
            _, listeners = await self.client.command("PUBSUB", "NUMSUB", keys.live(self.bench.session(chat)))
            return bool(listeners)

        await eventually(is_attended, within_s=SOON_S, what=f"a gateway that follows {chat!r}")

    async def until(self, check: Callable[[], Any], what: str) -> Any:
        """Wait for something."""
        return await eventually(check, within_s=SOON_S, what=what)

    async def quiet(self) -> None:
        """Wait until nothing is left to deliver."""

        async def is_quiet() -> bool:
            queue, leases = await self.client.pipeline(
                [
                    ("ZCARD", f"shoal:{{0ax}}:outqueue:{self.bench.name}"),
                    ("HLEN", f"shoal:{{0ax}}:outleases:{self.bench.name}"),
                ]
            )
            return not queue and not leases

        await eventually(is_quiet, within_s=SOON_S, what="the end of deliveries")


def toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables as a settings file; values of JSON are values of TOML."""
    lines = []
    for name, table in tables.items():
        lines.append(f"[{name}]")
        inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items() if key not in inner]
        for key, value in inner.items():
            lines.append(toml({f"{name}.{json.dumps(key)}": value}))
    return "\n".join(lines) + "\n"


def text_file() -> SentFile:
    """A file that every platform and the store take."""
    return SentFile("notes.txt", "text/plain", b"The pond is deep.\n")
