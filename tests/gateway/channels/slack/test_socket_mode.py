"""The fake's Socket Mode is Slack's: its own SDK gets along with it; and so do we, also when connections break."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from gateway.channels.slack.api import SlackApi
from gateway.channels.slack.channel import SocketModeListener
from gateway.channels.slack.wire import EventCallback, SlackEvent
from gateway.platform.protocol import ChannelBroken, NotAccepted
from shared.tasks import cancel_all
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, FakeSlack
from tests.gateway.channels.slack.payloads import callback, message
from tests.helpers.wait import eventually


@pytest.fixture
async def fake() -> AsyncIterator[FakeSlack]:
    async with FakeSlack({"D7"}).serving() as server:
        yield server


@pytest.fixture
async def api(fake: FakeSlack) -> AsyncIterator[SlackApi]:
    made = SlackApi(BOT_TOKEN, fake.api, app_token=APP_TOKEN, timeout_s=2.0)
    await made.open()
    yield made
    await made.close()


def tell(fake: FakeSlack, text: str) -> str:
    return fake.sockets.tell("events_api", json.loads(callback(message(text))), "D024BE91L")


async def test_the_sdks_own_client_gets_along_with_the_fake(fake: FakeSlack) -> None:
    """So what we tell of Slack is not only what we believe of it."""
    received: list[str] = []

    async def take(client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        received.append(request.payload["event"]["text"])
        await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))

    client = SocketModeClient(APP_TOKEN, web_client=AsyncWebClient(BOT_TOKEN, fake.api))
    client.socket_mode_request_listeners.append(take)
    await client.connect()  # type: ignore[no-untyped-call]
    try:
        id = tell(fake, "hello")
        await eventually(lambda: fake.sockets.confirmed == [id])
    finally:
        await client.close()  # type: ignore[no-untyped-call]
        processing = [task for task in (client.message_processor, client.message_receiver) if task is not None]
        await asyncio.gather(*processing, return_exceptions=True)
    assert received == ["hello"]


class RecordingListener:
    """A listener of ours on the fake."""

    def __init__(self, api: SlackApi) -> None:
        self.texts: list[str] = []
        self.until = asyncio.Event()
        self._api = api

    async def _take(self, event: SlackEvent) -> None:
        assert isinstance(event, EventCallback)
        self.texts.append(event.event.text or "")

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(SocketModeListener(self._api.connect, self._take).run(self.until))
        try:
            yield task
        finally:
            await cancel_all([task])


async def test_events_come_and_are_confirmed(fake: FakeSlack, api: SlackApi) -> None:
    """Over a real socket."""
    listener = RecordingListener(api)
    async with listener.listening() as task:
        ids = [tell(fake, f"message {number}") for number in range(20)]
        await eventually(lambda: fake.sockets.confirmed == ids)
        listener.until.set()
        await task
    assert listener.texts == [f"message {number}" for number in range(20)]
    await eventually(lambda: fake.sockets.open == [])


async def test_a_cut_connection_is_noticed_and_what_was_lost_comes_again(fake: FakeSlack, api: SlackApi) -> None:
    """By whoever connects next."""
    listener = RecordingListener(api)
    async with listener.listening() as task:
        await eventually(lambda: fake.sockets.open)
        fake.sockets.cut()
        with pytest.raises(NotAccepted):
            await task
    tell(fake, "meanwhile")
    async with listener.listening():
        await eventually(lambda: listener.texts == ["meanwhile"])


async def test_a_refresh_leaves_no_gap(fake: FakeSlack, api: SlackApi) -> None:
    """The second connection is open while the first one is."""
    listener = RecordingListener(api)
    async with listener.listening():
        await eventually(lambda: fake.sockets.open)
        await fake.sockets.say({"type": "disconnect", "reason": "refresh_requested"})
        await eventually(lambda: len(fake.sockets.open) == 2)
        await fake.sockets.open[0].close()
        await eventually(lambda: len(fake.sockets.open) == 1)
        tell(fake, "after")
        await eventually(lambda: listener.texts == ["after"])


@pytest.mark.parametrize(
    ("greeting", "error"),
    [
        ({"type": "disconnect", "reason": "link_disabled"}, ChannelBroken),
        ({"type": "disconnect", "reason": "too_many_websockets"}, NotAccepted),
    ],
)
async def test_a_connection_that_slack_refuses_says_why(
    fake: FakeSlack, api: SlackApi, greeting: dict[str, str], error: type[Exception]
) -> None:
    """Instead of a greeting."""
    fake.sockets.greeting = greeting
    async with RecordingListener(api).listening() as task:
        with pytest.raises(error):
            await task


async def test_a_wrong_app_token_says_which_setting(fake: FakeSlack) -> None:
    """Nothing but a person can mend it."""
    made = SlackApi(BOT_TOKEN, fake.api, app_token="xapp-1-wrong", timeout_s=2.0)
    await made.open()
    with pytest.raises(ChannelBroken, match=r"channels\.slack\.app_token"):
        await made.connect()
    await made.close()


async def test_an_address_elsewhere_is_not_gone_to(fake: FakeSlack, api: SlackApi) -> None:
    """Without encryption nobody but the API's own host is spoken with, though somebody would answer."""
    async with FakeSlack(set()).serving() as other:
        elsewhere = f"ws://127.0.0.1:{other.port}/link?ticket={other.sockets.ticket()}"
        fake.answers["apps.connections.open"] = web.json_response({"ok": True, "url": elsewhere})
        with pytest.raises(NotAccepted):
            await api.connect()
        assert len(other.sockets.tickets) == 1  # it was not used
