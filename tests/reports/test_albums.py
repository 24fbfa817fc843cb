"""An album of Telegram, each picture of which is an update of its own, is answered as one message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest

from gateway.channels.telegram.parse import TelegramIdentity, parse_update
from gateway.channels.telegram.wire import decode_update
from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from gateway.platform.access import AccessSettings
from gateway.platform.inlet import PlatformInlet
from gateway.platform.protocol import Platform, PlatformMessage, RemoteFile
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.live import TurnEvent
from shared.settings import MediaSettings, Settings
from shared.settings.sections.chats import Busy
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message
from tests.helpers.build import reply as line_of

REPORT: Final = json.loads(Path("tests/data/reports/c-album.json").read_text())
ME: Final = TelegramIdentity(1, "shoal_bot")
SESSION: Final = "telegram:42"
GROUP: Final = {"chat": {"id": -100, "type": "supergroup"}}
CAPTION: Final = "compare these"
MENTION: Final = {
    "caption": f"@shoal_bot {CAPTION}",
    "caption_entities": [{"type": "mention", "offset": 0, "length": 10}],
}
POLICIES: Final[tuple[Busy, ...]] = ("queue", "steer", "merge", "interrupt", "reject")


def part(nth: int, **more: Any) -> PlatformMessage:
    """A part of the album, counted from 1; the first has the caption."""
    update = REPORT["updates"][min(nth, 2) - 1]
    sent = update["message"] | {"message_id": 4 + nth} | more
    body = json.dumps({"update_id": nth, "message": sent}).encode()
    found = parse_update("telegram", decode_update(body), ME)
    assert found is not None
    return found


class Photos:
    """As much of Telegram as is asked on the way in. A photo whose event is not set is not there yet."""

    name = "telegram"

    def __init__(self) -> None:
        self.coming: dict[str, asyncio.Event] = {}
        self.fetched: list[str] = []

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        self.fetched.append(file.handle)
        if file.handle in self.coming:
            await self.coming[file.handle].wait()
        yield f"photo {file.handle}".encode()


class Gateway:
    """A gateway of the bot, with a connection of its own."""

    def __init__(self, url: str, home: Path, limits: InboxLimits) -> None:
        self.client, self.photos = RedisClient(url), Photos()
        settings = Settings(media=MediaSettings(dir=home), channels={"telegram": {}})
        self.inlet = PlatformInlet(
            cast(Platform, self.photos),
            AccessSettings(allow_from=("42",), allow_groups=("-100",)),
            Ingress(self.client, build_commands(settings, self.client), limits),
            Notes(),
            self.client,
            settings,
        )
        self.take = self.inlet.take


class Notes:
    async def save_notes(self, session: str, notes: Any) -> None:
        """Nothing is delivered here."""


class Bot:
    """Two gateways and a worker."""

    def __init__(self, url: str, home: Path, **limits: Any) -> None:
        made = msgspec.structs.replace(InboxLimits(album_ms=30_000, merge_ms=30_000), **limits)
        self.one, self.other = Gateway(url, home, made), Gateway(url, home, made)
        self.client = self.one.client
        self.queue, self.turns = LeaseQueue(self.client, "turns", owner="w", lease_s=60), Turns(self.client)
        self.inbox = Inbox(self.client, made)

    async def waits_s(self, session: str = SESSION) -> float:
        """Seconds until the next turn of the chat may begin."""
        score = await self.client.command("ZSCORE", keys.queue("turns"), keys.turn(session))
        seconds, micros = await self.client.command("TIME")
        return float(score) / 1000 - int(seconds) - int(micros) / 1e6

    async def begin(self, session: str = SESSION) -> tuple[Claim, list[InboundMessage]]:
        """The next turn, once it is due: what it answers."""
        assert not await self.queue.acquire(1)
        await self.client.command("ZADD", keys.queue("turns"), "XX", 1, keys.turn(session))
        return await self.acquire()

    async def acquire(self) -> tuple[Claim, list[InboundMessage]]:
        [claim] = await self.queue.acquire(1)
        assert claim.turn is not None
        records = [claim.turn.record]
        if claim.turn.joins_at_start:
            joined = await self.turns.join_waiting(claim, 1, at_start=True)
            records += [record for _, record in joined.records] if joined else []
        return claim, [decode_inbound(record) for record in records]

    async def end(self, claim: Claim) -> None:
        assert claim.turn is not None
        n = claim.turn.n
        await self.turns.commit(claim, history=[], lines=[line_of("x", n)], event=TurnEvent(n, "done"))

    async def left(self, session: str = SESSION) -> int:
        """How many messages still wait."""
        return int(await self.client.command("XLEN", keys.inbox(session)))

    async def answers(self, *ids: str, session: str = SESSION) -> None:
        """One turn has these messages with a photo each, and nothing else waits."""
        claim, found = await self.begin(session)
        assert [one.id for one in found] == list(ids)
        assert [len(one.media) for one in found] == [1] * len(ids)
        assert CAPTION in [one.content for one in found]
        await self.end(claim)
        assert await self.left(session) == 0


@pytest.fixture
async def bot_of(redis_url: str, tmp_path: Path) -> AsyncIterator[Callable[..., Bot]]:
    made: list[Bot] = []

    def make(**limits: Any) -> Bot:
        made.append(Bot(redis_url, tmp_path, **limits))
        return made[-1]

    yield make
    for bot in made:
        for gateway in (bot.one, bot.other):
            await gateway.client.close()


@pytest.fixture
def bot(bot_of: Callable[..., Bot]) -> Bot:
    return bot_of()


# Wherever the parts arrive


async def test_an_album_at_one_gateway_is_one_turn(bot: Bot) -> None:
    """Also in two batches of a poll: Telegram tells of the next part once this one was taken."""
    assert [await bot.one.take(part(nth)) for nth in (1, 2)] == ["taken", "taken"]
    await bot.answers("42/5", "42/6")


async def test_an_album_at_two_gateways_is_one_turn(bot: Bot) -> None:
    await bot.one.take(part(1))
    await bot.other.take(part(2))
    await bot.one.take(part(3))
    await bot.answers("42/5", "42/6", "42/7")


async def test_parts_at_the_same_moment_are_one_turn(bot: Bot) -> None:
    await asyncio.gather(*((bot.one, bot.other)[nth % 2].take(part(nth)) for nth in range(1, 11)))
    claim, found = await bot.begin()
    assert sorted(one.id for one in found) == sorted(f"42/{4 + nth}" for nth in range(1, 11))
    await bot.end(claim)
    assert await bot.left() == 0


async def test_a_turn_waits_for_a_photo_that_is_being_fetched(bot: Bot) -> None:
    """However long that takes, within the time that the files of a message may take."""
    bot.other.photos.coming["y"] = there = asyncio.Event()
    await bot.one.take(part(1))
    assert await bot.waits_s() < 31
    fetching = asyncio.create_task(bot.other.take(part(2)))
    while not bot.other.photos.fetched:
        await asyncio.sleep(0)
    assert 31 < await bot.waits_s() < 36
    there.set()
    await fetching
    assert await bot.waits_s() < 31
    await bot.answers("42/5", "42/6")


# Nothing lost, nothing twice


async def test_a_gateway_that_dies_between_two_parts_loses_nothing(bot: Bot) -> None:
    """The part that it took is durable. Telegram repeats what was not confirmed, at another gateway."""
    await bot.one.take(part(1))
    assert [await bot.other.take(part(nth)) for nth in (1, 2)] == ["duplicate", "taken"]
    assert await bot.waits_s() < 31, "what is repeated holds up nobody"
    await bot.answers("42/5", "42/6")


async def test_a_gateway_that_dies_while_it_fetches_loses_nothing(bot: Bot) -> None:
    bot.one.photos.coming["y"] = asyncio.Event()
    await bot.one.take(part(1))
    dying = asyncio.create_task(bot.one.take(part(2)))
    while "y" not in bot.one.photos.fetched:
        await asyncio.sleep(0)
    dying.cancel()
    await asyncio.wait([dying])
    assert await bot.other.take(part(2)) == "taken"
    await bot.answers("42/5", "42/6")


async def test_a_part_that_is_delivered_again_is_not_answered_again(bot: Bot) -> None:
    for nth in (1, 2):
        await bot.one.take(part(nth))
    await bot.answers("42/5", "42/6")
    assert [await bot.other.take(part(nth)) for nth in (1, 2)] == ["duplicate", "duplicate"]
    assert await bot.left() == 0


async def test_a_part_that_comes_late_is_a_message_of_its_own(bot: Bot) -> None:
    """While the others are answered, and after that."""
    await bot.one.take(part(1))
    claim, found = await bot.begin()
    await bot.other.take(part(2))
    assert [one.id for one in found] == ["42/5"]
    await bot.end(claim)
    claim, found = await bot.begin()
    assert [one.id for one in found] == ["42/6"]
    await bot.end(claim)
    await bot.one.take(part(3))
    _, found = await bot.begin()
    assert [(one.id, len(one.media)) for one in found] == [("42/7", 1)]


# Together with what else happens in a chat


async def test_an_album_behind_a_running_turn_waits_for_its_parts_too(bot: Bot) -> None:
    await bot.inbox.ingest(message("first", chat="42", channel="telegram"))
    claim, _ = await bot.acquire()
    await bot.one.take(part(1))
    bot.other.photos.coming["y"] = there = asyncio.Event()
    fetching = asyncio.create_task(bot.other.take(part(2)))
    while not bot.other.photos.fetched:
        await asyncio.sleep(0)
    await bot.end(claim)
    assert 31 < await bot.waits_s() < 36
    there.set()
    await fetching
    await bot.answers("42/5", "42/6")


async def test_two_albums_are_two_turns(bot: Bot) -> None:
    for nth, album in ((1, "9"), (2, "9"), (3, "10"), (4, "10")):
        await bot.one.take(part(nth, media_group_id=album))
    for ids in (["42/5", "42/6"], ["42/7", "42/8"]):
        claim, found = await bot.begin()
        assert [one.id for one in found] == ids
        await bot.end(claim)


@pytest.mark.parametrize("busy", POLICIES)
async def test_every_policy_answers_an_album_once(bot_of: Callable[..., Bot], busy: Busy) -> None:
    """Its parts neither refuse nor interrupt each other."""
    bot = bot_of(busy=busy)
    assert [await bot.one.take(part(nth)) for nth in (1, 2, 3)] == ["taken"] * 3
    await bot.answers("42/5", "42/6", "42/7")


async def test_an_album_is_one_message_for_the_limit_of_its_sender(
    bot_of: Callable[..., Bot],
) -> None:
    bot = bot_of(sender_per_minute=1)
    assert [await bot.one.take(part(nth)) for nth in range(1, 11)] == ["taken"] * 10
    await bot.answers(*(f"42/{4 + nth}" for nth in range(1, 11)))


async def test_a_caption_that_is_edited_is_answered_with_its_album(bot: Bot) -> None:
    for nth in (1, 2):
        await bot.one.take(part(nth))
    update = {**REPORT["updates"][0]["message"], "caption": "and now?", "edit_date": 1_700_000_009}
    edited = parse_update(
        "telegram", decode_update(json.dumps({"update_id": 9, "edited_message": update}).encode()), ME
    )
    assert edited is not None
    assert await bot.one.take(edited) == "taken"
    _, found = await bot.begin()
    assert [one.content for one in found] == ["", "and now?"]


async def test_in_a_group_the_caption_addresses_the_whole_album(bot: Bot) -> None:
    """Only one part has the mention of the bot."""
    first, second = part(1, **GROUP, **MENTION), part(2, **GROUP)
    assert (first.addressed, second.addressed) == (True, False)
    assert await bot.one.take(first) == "taken"
    assert await bot.other.take(second) == "taken"
    await bot.answers("-100/5", "-100/6", session="telegram:-100")


async def test_in_a_group_the_caption_may_come_last(bot: Bot) -> None:
    parts = [part(1, caption="", **GROUP), part(2, **GROUP), part(3, **GROUP, **MENTION)]
    verdicts = [await gateway.take(one) for gateway, one in zip((bot.one, bot.other) * 2, parts, strict=False)]
    assert verdicts == ["ignored", "ignored", "taken"]
    assert await bot.other.take(parts[0]) == "duplicate"
    await bot.answers("-100/5", "-100/6", "-100/7", session="telegram:-100")


async def test_broken_keys_of_albums_stop_no_message(bot: Bot) -> None:
    """Its parts may then be answered one by one."""
    parts = [part(1, caption="", **GROUP), part(2, **GROUP), part(3, **GROUP, **MENTION)]
    for key in (keys.album_parts("telegram:-100"), keys.album_held("telegram:-100/9")):
        await bot.client.command("SET", key, "odd")
    assert [await bot.one.take(one) for one in parts] == ["ignored", "ignored", "taken"]
    await bot.client.command("FLUSHALL")
    await bot.client.command("RPUSH", keys.album_held("telegram:-100/9"), "odd")
    assert await bot.one.take(parts[2]) == "taken"


async def test_an_album_that_is_not_for_the_bot_is_not_read(bot: Bot) -> None:
    """It is held for a minute where its sender may talk to the bot, else not at all."""
    parts = [part(nth, **GROUP) for nth in (1, 2)]
    assert [await bot.one.take(one) for one in parts] == ["ignored", "ignored"]
    assert bot.one.photos.fetched == []
    [held] = await bot.client.command("KEYS", "*")
    assert 0 < await bot.client.command("PTTL", held) <= 60_000
    await bot.client.command("FLUSHALL")
    assert await bot.one.take(part(1, chat={"id": -200, "type": "group"})) == "ignored"
    assert await bot.client.command("KEYS", "*") == []
