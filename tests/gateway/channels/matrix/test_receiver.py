"""From the homeserver's news to the inlet: gaps, threads of what was taken back, encrypted rooms, where it goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.channels.matrix.channel import MatrixChannel
from gateway.channels.matrix.settings import read_matrix
from gateway.platform.protocol import InletVerdict, PlatformMessage
from shared.errors import RedisAway
from shared.messages.inbound import InboundMessage
from shared.tasks import cancel_all
from tests.fakes.matrix import BOT, TOKEN, FakeMatrix
from tests.helpers.wait import eventually

ROOM = "!pond:pond.example"
ANNA = "@anna:pond.example"


class Listener:
    """One start of the channel: what it took, and what is kept of how far it is."""

    def __init__(self, fake: FakeMatrix) -> None:
        self.saved = b""
        self.received: list[PlatformMessage] = []
        self.gone: list[InboundMessage] = []
        self.away = False
        self._fake = fake

    def read(self) -> bytes:
        return self.saved

    async def save(self, value: bytes) -> None:
        self.saved = value

    async def take(self, event: PlatformMessage) -> InletVerdict:
        if self.away:
            raise RedisAway("away")
        self.received.append(event)
        return "taken"

    async def on_delete(self, deleted: InboundMessage) -> None:
        self.gone.append(deleted)

    @property
    def texts(self) -> list[str]:
        return [one.message.content for one in self.received if not one.own]

    @contextlib.asynccontextmanager
    async def listening(self, **more: Any) -> AsyncIterator[asyncio.Task[None]]:
        """Listens inside, having begun."""
        table = {"homeserver": self._fake.address, "access_token": TOKEN, "poll_s": 1, "allow_from": [ANNA], **more}
        channel = MatrixChannel("matrix", read_matrix("matrix", table), self)
        await channel.open()
        until = asyncio.Event()
        task = asyncio.create_task(channel.listen(self, until))
        try:
            await eventually(lambda: self._fake.polls or task.done(), within_s=60, what="the listener")
            yield task
            until.set()
            await asyncio.wait({task}, timeout=20)
        finally:
            await cancel_all([task])
            await channel.close()


@pytest.fixture
async def fake() -> AsyncIterator[FakeMatrix]:
    async with FakeMatrix({ROOM: {ANNA: "Anna", BOT: "Shoal"}}).serving() as server:
        yield server


def sent(fake: FakeMatrix, body: str, **more: Any) -> dict[str, Any]:
    content = {"msgtype": "m.text", "body": body, **more}
    return {
        "type": "m.room.message",
        "event_id": fake.new_id(),
        "sender": ANNA,
        "origin_server_ts": 1,
        "content": content,
    }


async def test_what_a_batch_leaves_out_is_asked_for(fake: FakeMatrix) -> None:
    """Page by page, in order; from where the last listener was."""
    listener = Listener(fake)
    async with listener.listening():
        await fake.tell(ROOM, sent(fake, "before"))
        await eventually(lambda: listener.texts == ["before"], within_s=60, what="the first one")
    fake.batch = 5
    for number in range(250):
        await fake.tell(ROOM, sent(fake, str(number)))
    async with listener.listening():
        await eventually(lambda: len(listener.texts) >= 251, within_s=60, what="all of them")
    assert listener.texts == ["before", *map(str, range(250))]


async def test_a_batch_that_could_not_be_accepted_is_sent_again(fake: FakeMatrix) -> None:
    """How far it is is saved behind what was taken."""
    listener = Listener(fake)
    async with listener.listening() as task:
        before, listener.away = listener.saved, True
        await fake.tell(ROOM, sent(fake, "hello"))
        await asyncio.wait({task}, timeout=20)
        assert isinstance(task.exception(), RedisAway)
    assert listener.saved == before
    listener.away = False
    async with listener.listening():
        await eventually(lambda: listener.texts == ["hello"], within_s=60, what="the message")


async def test_what_was_saved_of_somebody_else_or_is_lost_is_begun_anew(fake: FakeMatrix) -> None:
    """A point that the homeserver does not know would stop the channel for ever."""
    await fake.tell(ROOM, sent(fake, "old"))
    for saved in (
        b"{",
        b'{"of": "@other:pond.example", "since": "s0"}',
        b'{"of": "@shoal:pond.example", "since": "x"}',
    ):
        listener = Listener(fake)
        listener.saved = saved
        async with listener.listening():
            await eventually(lambda: b'"s' in listener.saved, within_s=60, what="the new point")  # noqa: B023
            new = sent(fake, "new")
            await fake.tell(ROOM, new)
            await eventually(lambda: "new" in listener.texts, within_s=60, what="what is new")  # noqa: B023


async def test_a_redacted_message_is_known_by_its_thread(fake: FakeMatrix) -> None:
    """The redaction does not name it."""
    listener = Listener(fake)
    async with listener.listening():
        one = sent(fake, "aside", **{"m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}})
        await fake.tell(ROOM, one)
        gone = {**sent(fake, ""), "type": "m.room.redaction", "content": {"redacts": one["event_id"]}}
        await fake.tell(ROOM, gone)
        await eventually(lambda: listener.gone, within_s=60, what="the redaction")
    assert (listener.gone[0].id, listener.gone[0].thread) == (one["event_id"], "$root")


async def test_an_encrypted_room_is_notified_once_and_only_where_the_sender_is_allowed(fake: FakeMatrix) -> None:
    """Also by the next listener."""
    listener = Listener(fake)
    secret = {"type": "m.room.encrypted", "content": {"algorithm": "m.megolm.v1.aes-sha2"}, "origin_server_ts": 1}
    for sender in ("@stranger:pond.example", ANNA, ANNA):
        async with listener.listening():
            await fake.tell(ROOM, {**secret, "sender": sender, "event_id": fake.new_id()})
            await fake.tell(ROOM, sent(fake, sender))
            count = len(listener.texts)
            await eventually(lambda: len(listener.texts) > count, within_s=60, what="what is behind")  # noqa: B023
            assert len(fake.posts.get(ROOM, [])) == (0 if sender != ANNA else 1)


@pytest.mark.parametrize(
    ("by", "join", "enters"),
    [(ANNA, "allowed", True), ("@eve:p.example", "allowed", False), ("@eve:p.example", "everybody", True)],
)
async def test_invitations_are_followed_of_whom_the_settings_say(
    fake: FakeMatrix, by: str, join: str, enters: bool
) -> None:
    """Also one from before the first start."""
    await fake.invite("!new:pond.example", by)
    listener = Listener(fake)
    async with listener.listening(join=join):
        await fake.tell(ROOM, sent(fake, "hello"))
        await eventually(lambda: listener.texts, within_s=60, what="what is behind")
    assert fake.joined == (["!new:pond.example"] if enters else [])
