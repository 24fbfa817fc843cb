"""The channel on a real connection to the fake server: cut, drained, full."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from aiohttp import ClientWebSocketResponse

from gateway.channels.feishu.channel import FeishuChannel
from gateway.channels.feishu.connection import LongConnection
from gateway.channels.feishu.settings import read_feishu
from gateway.platform.protocol import NotAccepted
from shared.tasks import cancel_all
from tests.fakes.feishu import APP_ID, SECRET, FakeFeishu
from tests.gateway.channels.feishu.events import message, pressed
from tests.gateway.channels.feishu.test_channel import CHAT, PlayedInlet
from tests.helpers.wait import eventually


class SlowInlet(PlayedInlet):
    """Takes nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.asked = 0

    async def take(self, event: Any) -> Any:
        self.asked += 1
        await self.may.wait()
        return await super().take(event)


@pytest.fixture
async def fake() -> AsyncIterator[FakeFeishu]:
    async with FakeFeishu({CHAT}).serving() as fake:
        yield fake


@pytest.fixture
async def channel(fake: FakeFeishu) -> AsyncIterator[FeishuChannel]:
    table = {"app_id": APP_ID, "app_secret": SECRET, "api": fake.address, "timeout_s": 1.0}
    channel = FeishuChannel("feishu", read_feishu("feishu", table))
    await channel.open()
    yield channel
    await channel.close()


def tell(fake: FakeFeishu, id: str, body: bytes, *, is_press: bool = False) -> None:
    event = json.loads(body)
    event["header"] |= {"app_id": APP_ID, "event_id": id}
    fake.sockets.tell(id, event, CHAT, is_press=is_press)


async def test_an_event_that_was_not_confirmed_when_a_connection_was_cut_is_repeated(
    fake: FakeFeishu, channel: FeishuChannel
) -> None:
    """Over the next one. A connection that is lost is said at once."""
    inlet, until = SlowInlet(), asyncio.Event()
    listening = asyncio.create_task(channel.listen(inlet, until))
    tell(fake, "e1", message(chat_id=CHAT))
    await eventually(lambda: inlet.asked == 1)
    fake.sockets.cut()
    with pytest.raises(NotAccepted):
        await listening
    assert fake.sockets.answers == {}
    inlet.may.set()
    listening = asyncio.create_task(channel.listen(inlet, until))
    try:
        await eventually(lambda: fake.sockets.answers == {"e1": (200, None)})
    finally:
        await cancel_all([listening])
    assert [one.message.content for one in inlet.received] == ["hello"]


async def test_at_the_end_what_is_under_way_is_confirmed(fake: FakeFeishu, channel: FeishuChannel) -> None:
    """And the connection is given back."""
    inlet, until = SlowInlet(), asyncio.Event()
    listening = asyncio.create_task(channel.listen(inlet, until))
    tell(fake, "e1", message(chat_id=CHAT))
    await eventually(lambda: inlet.asked == 1)
    until.set()
    inlet.may.set()
    await listening
    await eventually(lambda: not fake.sockets.open)
    assert fake.sockets.answers == {"e1": (200, None)}


async def test_a_press_is_answered_over_the_connection(fake: FakeFeishu, channel: FeishuChannel) -> None:
    """With what is shown to who pressed."""
    inlet = PlayedInlet()
    listening = asyncio.create_task(channel.listen(inlet, asyncio.Event()))
    body = pressed({"shoal": "Tea", "chat": CHAT}, context={"open_message_id": "om_2", "open_chat_id": CHAT})
    tell(fake, "p1", body, is_press=True)
    try:
        await eventually(lambda: "p1" in fake.sockets.answers)
    finally:
        await cancel_all([listening])
    assert fake.sockets.answers["p1"] == (200, {"toast": {"type": "success", "content": "✓ Tea"}})


async def test_a_connection_whose_end_is_cancelled_is_closed() -> None:
    class PlayedWebSocket:
        closed = False

        async def send_bytes(self, _: bytes) -> None:
            pass

        async def close(self) -> None:
            self.closed = True

    socket = PlayedWebSocket()
    connection = LongConnection(cast(ClientWebSocketResponse, socket), 1, 60.0)
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0)  # it ends the pings
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert socket.closed
