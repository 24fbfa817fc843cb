"""The channel on a real homeserver: what people see and what Shoal hears, as another client of it has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.channels.matrix.api import MatrixApi
from gateway.channels.matrix.http import MatrixHttp
from gateway.platform.protocol import ChannelBroken, ChatClosed, File, Piece, Post, PostRefused, PostTarget
from shared.ids import session_id
from shared.media.store import MediaStore
from shared.messages.outbound import OutboundMessage
from shared.settings import Settings, load
from tests.contracts.channels.echo import Echo, Turn
from tests.contracts.channels.stage import Replica, toml
from tests.helpers.wait import eventually
from tests.peers.synapse import Synapse, User, synapse

SOON_S = 60.0
_names = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    with synapse(tmp_path_factory.mktemp("synapse")) as running:
        yield running


class People:
    """A bot and two people, new in every test, with gateways of the bot."""

    def __init__(self, server: Synapse, bot: User, anna: User, bob: User, redis_url: str, home: Path) -> None:
        self.server, self.bot, self.anna, self.bob = server, bot, anna, bob
        self.worker = Echo(redis_url)
        self.replicas: list[Replica] = []
        self.rooms: list[str] = []
        self._redis_url = redis_url
        self._home = home

    def settings(self, **channel: Any) -> Settings:
        """With every room that was made so far allowed."""
        known_by = {"access_token": self.bot.token} if "password" not in channel else {}
        table = {
            "homeserver": self.server.address, **known_by, "allow_from": [self.anna.id, self.bob.id],
            "allow_groups": ["*"], "per_s": 100.0, "burst": 100, "poll_s": 5, **channel,
        }  # fmt: skip
        tables = {"channels.matrix": table, "worker": {"lease_s": 3.0}, "media": {"dir": str(self._home / "media")}}
        file = self._home / "shoal.toml"
        file.write_text(toml(tables))
        return load({}, path=file)

    async def gateway(self, **channel: Any) -> Replica:
        """One that listens."""
        replica = Replica("matrix", self.settings(**channel), self._redis_url)
        self.replicas.append(replica)
        await replica.start()
        await eventually(
            lambda: replica.channel.facts()["matrix.listens"] == "true", within_s=SOON_S, what="the listener"
        )
        return replica

    async def close(self) -> None:
        for replica in self.replicas:
            if not replica.is_over:
                await replica.drain()
        await self.worker.close()

    async def room(self, *more: User, **given: Any) -> str:
        """A room of Anna's, in which the bot is."""
        room = await self.anna.room(self.bot.id, *(one.id for one in more), **given)
        for one in more:
            await one.join(room)

        async def is_in() -> bool:
            return await self.anna.is_in(room, self.bot.id)

        await eventually(is_in, within_s=SOON_S, every_s=0.1, what="the bot in the room")
        return room

    async def bodies(self, room: str) -> list[str]:
        """What the bot said, without what was edited away."""
        shown: dict[str, str] = {}
        for event in await self.anna.events(room, of=self.bot.id):
            content = event["content"]
            relation = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                shown[relation["event_id"]] = content["m.new_content"]["body"]
            elif content:
                shown.setdefault(event["event_id"], content["body"])
        return list(shown.values())

    async def sees(self, room: str, *bodies: str) -> None:
        async def there() -> bool:
            return await self.bodies(room) == list(bodies)

        await eventually(there, within_s=SOON_S, every_s=0.1, what=f"{bodies!r}")


@pytest.fixture
async def people(server: Synapse, redis_url: str, tmp_path: Path) -> AsyncIterator[People]:
    async with aiohttp.ClientSession() as http:
        number = next(_names)
        bot, anna, bob = [await server.user(http, f"{name}{number}") for name in ("shoal", "anna", "bob")]
        made = People(server, bot, anna, bob, redis_url, tmp_path)
        made.worker.start()
        try:
            yield made
        finally:
            await made.close()


async def test_an_invitation_is_followed_and_the_first_words_are_answered(people: People) -> None:
    """Also those that were written before the bot came in; a room of two is a chat of two."""
    await people.gateway()
    room = await people.anna.room(people.bot.id)
    await people.anna.say(room, "hello")
    await people.sees(room, "echo: hello")
    [received] = people.worker.received
    assert (received.chat_id, received.sender_id, received.thread) == (room, people.anna.id, None)
    assert "group" not in received.metadata


async def test_invitations_of_strangers_are_not_followed(people: People) -> None:
    """Nor is anything of before an invitation read: it was not said to us."""
    await people.gateway(allow_from=[people.anna.id])
    strange = await people.bob.room(people.bot.id)
    old = await people.anna.room(preset="public_chat")
    await people.anna.say(old, "long ago")
    await people.anna.call("POST", f"/_matrix/client/v3/rooms/{old}/invite", json={"user_id": people.bot.id})
    await people.anna.say(old, "welcome")
    await people.sees(old, "echo: welcome")
    assert not await people.bob.is_in(strange, people.bot.id)
    assert [message.content for message in people.worker.received] == ["welcome"]


async def test_in_a_room_of_three_mentions_and_replies_to_us_are_answered(people: People) -> None:
    """Each with what it answers shown."""
    await people.gateway()
    room = await people.room(people.bob)
    await people.anna.say(room, "hi Bob")
    me = {"m.mentions": {"user_ids": [people.bot.id]}}
    asked = await people.anna.say(room, f"{people.bot.id}: what time is it?", **me)
    await people.sees(room, "echo: what time is it?")
    [sent] = await people.anna.events(room, of=people.bot.id)
    assert sent["content"]["m.relates_to"]["m.in_reply_to"]["event_id"] == asked
    await people.bob.say(room, "thanks", **{"m.relates_to": {"m.in_reply_to": {"event_id": sent["event_id"]}}})
    await eventually(lambda: len(people.worker.received) == 2, within_s=SOON_S, every_s=0.1)
    assert people.worker.received[-1].content.endswith("\n\nthanks")
    assert "what time is it?" in people.worker.received[-1].content
    assert [message.metadata["group"] for message in people.worker.received] == ["1", "1"]


async def test_a_thread_is_a_conversation_of_its_own(people: People) -> None:
    """Its answers stand in it, and so does an edited message."""
    await people.gateway()
    room = await people.room()
    root = await people.anna.say(room, "root")
    await people.sees(room, "echo: root")
    in_thread = {"rel_type": "m.thread", "event_id": root, "is_falling_back": True, "m.in_reply_to": {"event_id": root}}
    await people.anna.say(room, "aside", **{"m.relates_to": in_thread})
    await people.sees(room, "echo: root", "echo: aside")
    last = (await people.anna.events(room, of=people.bot.id))[-1]["content"]["m.relates_to"]
    assert (last["rel_type"], last["event_id"]) == ("m.thread", root)
    assert people.worker.received[-1].session == session_id("matrix", f"{room}#{root}")


async def test_a_turn_is_streamed_into_one_message(people: People) -> None:
    """By edits, which other clients show in its place."""

    async def slowly(turn: Turn) -> str:
        await turn.begin()
        await turn.stream("One ")
        await eventually(lambda: people.bodies(room), within_s=SOON_S, every_s=0.1, what="the first words")
        await turn.stream("two ")
        return "One **two** three"

    people.worker.scripts["count"] = slowly
    await people.gateway()
    room = await people.room()
    await people.anna.say(room, "count")
    await people.sees(room, "One two three")
    events = await people.anna.events(room, of=people.bot.id)
    assert len(events) >= 2
    assert "<strong>two</strong>" in events[-1]["content"]["m.new_content"]["formatted_body"]


async def test_messages_are_edited_and_withdrawn_before_their_turn(people: People) -> None:
    """As if never said."""
    done: list[int] = []

    async def busy(turn: Turn) -> str:
        await eventually(lambda: done, within_s=SOON_S, what="the end")
        return "was busy"

    people.worker.scripts["busy"] = busy
    await people.gateway()
    room, other = await people.room(), await people.room()
    await people.anna.say(room, "busy")
    await eventually(lambda: people.worker.received, within_s=SOON_S, what="the turn")
    old, never = await people.anna.say(room, "old words"), await people.anna.say(room, "never mind")
    new = {"msgtype": "m.text", "body": "new words"}
    edit = {**new, "body": "* new words", "m.new_content": new}
    await people.anna.send(room, {**edit, "m.relates_to": {"rel_type": "m.replace", "event_id": old}})
    await people.anna.take_back(room, never)
    await people.anna.say(other, "and now?")
    await people.sees(other, "echo: and now?")
    done.append(1)
    await people.sees(room, "was busy", "echo: new words")


async def test_files_go_both_ways(people: People) -> None:
    """By the authenticated media API."""
    await people.gateway()
    room = await people.room()
    data = b"The pond is deep.\n" * 9
    uri = await people.anna.upload(data, "notes.txt")
    info = {"mimetype": "text/plain", "size": len(data)}
    session = session_id("matrix", room)
    store = MediaStore(people.settings().media)

    async def back(turn: Turn) -> list[OutboundMessage]:
        return [turn.line("Here:", media=(str(store.put(session, data[::-1], "back.txt")),))]

    people.worker.scripts["look"] = back
    await people.anna.send(
        room, {"msgtype": "m.file", "body": "look", "filename": "notes.txt", "url": uri, "info": info}
    )
    await people.sees(room, "Here:", "back.txt")
    [received] = people.worker.received
    assert received.media[0].endswith("notes.txt")
    sent = (await people.anna.events(room, of=people.bot.id))[-1]["content"]
    assert await people.anna.download(sent["url"]) == data[::-1]


async def test_a_restart_loses_nothing_and_doubles_nothing(people: People) -> None:
    """More than one answer of the homeserver holds, in two rooms, from where the last gateway was."""
    first = await people.gateway()
    room, other = await people.room(), await people.room()
    await people.anna.say(room, "before")
    await people.sees(room, "echo: before")
    await first.drain()
    for number in range(60):  # others' words count towards what an answer of the homeserver holds
        await people.anna.say(room, f"{number}", msgtype="m.notice" if number % 3 else "m.text")
    await people.anna.say(other, "hello")
    await people.gateway()
    await people.sees(other, "echo: hello")
    await eventually(lambda: len(people.worker.received) >= 22, within_s=SOON_S, what="everything")
    texts = people.worker.texts(session_id("matrix", room))
    assert texts == ["before", *(f"{number}" for number in range(0, 60, 3))]


async def test_a_room_with_encryption_is_notified_once(people: People) -> None:
    """Nobody waits there for an answer in vain."""
    await people.gateway()
    room = await people.room()
    for _ in range(2):
        secret = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AwgA", "session_id": "s", "device_id": "D",
                  "sender_key": "k"}  # fmt: skip
        await people.anna.send(room, secret, type="m.room.encrypted")
    await people.anna.say(room, "hello")

    async def answered() -> bool:
        return len(await people.bodies(room)) == 2

    await eventually(answered, within_s=SOON_S, every_s=0.1, what="the notice and the answer")
    notice, answer = await people.bodies(room)
    assert "encrypted" in notice
    assert answer == "echo: hello"


async def test_the_same_key_is_one_event_and_errors_are_reported(people: People) -> None:
    """Idempotent for a device, also over another connection; too large, not in the room, no such token; looked up by
    another device."""

    def api(**known_by: str) -> MatrixApi:
        given: dict[str, Any] = {"token": "", "user": "", "password": "", **known_by}
        return MatrixApi(MatrixHttp(people.server.address, timeout_s=20.0, **given))

    room = await people.anna.room(people.bot.id)
    await people.bot.join(room)
    place = PostTarget(session="s", chat_id=room)
    post = Post(target=place, key="k1", piece=Piece("<b>hi</b>", "hi"))
    one, two, other = (
        api(token=people.bot.token),
        api(token=people.bot.token),
        api(user=people.bot.id, password="correct horse"),
    )
    try:
        id = await one.send(post)
        assert [await one.send(post), await two.send(post)] == [id, id]
        await other.open()
        assert await other.find_post(post) == id
        assert await other.find_post(Post(target=place, key="k2", piece=post.piece)) is None
        assert len(await people.bodies(room)) == 1
        await one.edit(id, Post(target=place, key="k1", piece=Piece("<b>ho</b>", "ho")))
        assert await people.bodies(room) == ["ho"]
        with pytest.raises(PostRefused, match="413"):
            await one.send(Post(target=place, key="k3", piece=Piece("x" * 40_000, "x" * 40_000)))
        big = File(
            reference="r",
            name="a.bin",
            media_type="application/octet-stream",
            size_bytes=2_000_000,
            data=bytes(2_000_000),
        )
        with pytest.raises(PostRefused, match="413"):
            await one.send(Post(target=place, key="k4", file=big))
        elsewhere = await people.anna.room()
        with pytest.raises(ChatClosed, match="403"):
            await one.send(Post(target=PostTarget(session="s", chat_id=elsewhere), key="k5", piece=post.piece))
        wrong = api(token="syt_wrong")
        with pytest.raises(ChannelBroken, match="access_token"):
            await wrong.open()
        await wrong.close()
        nobody = api(user=people.bot.id, password="wrong")
        with pytest.raises(ChannelBroken, match="password"):
            await nobody.open()
        await nobody.close()
        await one.open()
        await one.typing(place)
    finally:
        for each in (one, two, other):
            await each.close()


async def test_a_password_is_enough(people: People) -> None:
    """Its device goes away with the gateway."""
    replica = await people.gateway(user=people.bot.id, password="correct horse")
    room = await people.room()
    await people.anna.say(room, "hello")
    await people.sees(room, "echo: hello")
    await replica.drain()
    devices = (await people.bot.call("GET", "/_matrix/client/v3/devices"))["devices"]
    assert len(devices) == 1
