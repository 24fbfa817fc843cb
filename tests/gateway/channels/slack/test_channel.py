"""The webhook from the call to the inlet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.channels.slack.channel import SlackChannel
from gateway.channels.slack.settings import read_slack
from gateway.channels.slack.wire import signature
from gateway.platform.protocol import HookRequest, InletVerdict, PlatformMessage
from shared.errors import RedisAway
from shared.messages.inbound import InboundMessage
from tests.fakes.slack import BOT_TOKEN, FakeSlack
from tests.gateway.channels.slack.payloads import FORM, callback, form, message, press, slash
from tests.helpers.clock import HandClock

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


class KeptInlet:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.accepted: list[PlatformMessage] = []
        self.gone: list[InboundMessage] = []
        self.away = False

    async def take(self, event: PlatformMessage) -> InletVerdict:
        if self.away:
            raise RedisAway("away")
        self.accepted.append(event)
        return "taken"

    async def on_delete(self, deleted: InboundMessage) -> None:
        self.gone.append(deleted)


class Hooked:
    """An open channel, and calls of its webhook."""

    def __init__(self, slack: SlackChannel, clock: HandClock) -> None:
        self.slack, self.clock = slack, clock
        self.inlet = KeptInlet()

    async def call(self, body: bytes, media_type: str = "application/json", **headers: str) -> tuple[int, bytes]:
        at = str(self.clock.now_ms() // 1000)
        signed = {"x-slack-request-timestamp": at, "x-slack-signature": signature(SECRET, at, body)}
        given = {"content-type": media_type, **signed, **headers}
        request = HookRequest(method="POST", path="/hooks/slack", query={}, headers=given, body=body)
        answer = await self.slack.hook(request, self.inlet)
        return answer.status, answer.body


@pytest.fixture
async def hooked() -> Any:
    async with FakeSlack({"D7"}).serving() as fake:
        table = {"token": BOT_TOKEN, "run": "webhook", "signing_secret": SECRET, "api": fake.api}
        clock = HandClock()
        slack = SlackChannel("slack", read_slack("slack", table), clock=clock)
        await slack.open()
        yield Hooked(slack, clock)
        await slack.close()


async def test_events_presses_and_commands_come_in_by_one_way(hooked: Hooked) -> None:
    """JSON or form, signed alike."""
    assert await hooked.call(callback(message("hello"))) == (200, b"")
    assert await hooked.call(form({"payload": json.dumps(press())}), FORM) == (200, b"")
    assert await hooked.call(form(slash()), FORM) == (200, b"")
    texts = [received.message.content for received in hooked.inlet.accepted]
    assert texts == ["hello", "/yes a1b2", "what time is it?"]


async def test_a_call_that_slack_makes_again_is_the_same_message(hooked: Hooked) -> None:
    """Its number of tries stands beside it; the inlet knows the message."""
    await hooked.call(callback(message("hello")))
    again = {"x-slack-retry-num": "1", "x-slack-retry-reason": "http_timeout"}
    assert (await hooked.call(callback(message("hello")), **again))[0] == 200
    first, second = hooked.inlet.accepted
    assert first == second


async def test_a_deleted_message_is_withdrawn(hooked: Hooked) -> None:
    """By its own id."""
    gone = {"type": "message", "subtype": "message_deleted", "channel": "D024BE91L", "deleted_ts": "1695223200.000100"}
    assert (await hooked.call(callback(gone)))[0] == 200
    assert [message.id for message in hooked.inlet.gone] == ["T0001/D024BE91L/1695223200.000100"]


async def test_an_event_that_is_not_accepted_is_not_confirmed(hooked: Hooked) -> None:
    """The webhook server answers 503, and Slack tells it again."""
    hooked.inlet.away = True
    with pytest.raises(RedisAway):
        await hooked.call(callback(message("hello")))


async def test_a_new_webhook_is_answered_its_word_when_it_is_signed(hooked: Hooked) -> None:
    """Anybody could ask."""
    body = b'{"token":"x","challenge":"3eZbrw1aB","type":"url_verification"}'
    assert await hooked.call(body) == (200, b"3eZbrw1aB")
    assert await hooked.call(body, **{"x-slack-signature": "v0=00"}) == (401, b"")


@pytest.mark.parametrize(("late_s", "status"), [(300, 200), (301, 401), (-301, 401)])
async def test_a_call_is_good_for_five_minutes(hooked: Hooked, late_s: int, status: int) -> None:
    """Then it may be somebody's who wrote it down."""
    at = str(hooked.clock.now_ms() // 1000 - late_s)
    body = callback(message("hello"))
    signed = {"x-slack-request-timestamp": at, "x-slack-signature": signature(SECRET, at, body)}
    assert (await hooked.call(body, **signed))[0] == status


async def test_a_form_that_nobody_knows_is_refused(hooked: Hooked) -> None:
    """Signed well, and still nothing for us."""
    assert (await hooked.call(b"{"))[0] == 400
    assert (await hooked.call(b"a=b", FORM))[0] == 400
    assert (await hooked.call(b'{"type":"app_rate_limited"}'))[0] == 200
    assert hooked.inlet.accepted == []
