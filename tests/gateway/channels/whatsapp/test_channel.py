"""The webhook's signature and handshake, the 24 hours, and "is typing"."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from gateway.channels.whatsapp.channel import WINDOW_MS, WRITTEN_AT, WhatsAppChannel, signature
from gateway.channels.whatsapp.settings import read_whatsapp
from gateway.platform.protocol import ChatClosed, HookRequest, InletVerdict, Piece, PlatformMessage, Post, PostTarget
from shared.errors import RedisAway
from shared.messages.inbound import InboundMessage
from shared.metrics import DELIVERY_FAILED_LATER
from tests.fakes.whatsapp import NUMBER, TOKEN, FakeWhatsApp
from tests.helpers.clock import HandClock

SECRET = "0123456789abcdef0123456789abcdef"
WORD = "a-word-of-our-own"
ANNA = "491701234567"


class Taking:
    """An inlet that remembers; `away` as if Redis were."""

    def __init__(self) -> None:
        self.accepted: list[PlatformMessage] = []
        self.away = False

    async def take(self, event: PlatformMessage) -> InletVerdict:
        if self.away:
            raise RedisAway("away")
        self.accepted.append(event)
        return "taken"

    async def on_delete(self, deleted: InboundMessage) -> None:
        raise AssertionError("nobody is told of deletions")


@pytest.fixture
async def fake() -> AsyncIterator[FakeWhatsApp]:
    async with FakeWhatsApp({ANNA}).serving() as server:
        yield server


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def channel(fake: FakeWhatsApp, clock: HandClock) -> AsyncIterator[WhatsAppChannel]:
    table = {"access_token": TOKEN, "app_secret": SECRET, "verify_token": WORD, "phone_number_id": NUMBER}
    made = WhatsAppChannel("whatsapp", read_whatsapp("whatsapp", {**table, "api": fake.address}), clock=clock)
    await made.open()
    yield made
    await made.close()


def call(*texts: str, **more: Any) -> bytes:
    messages = [
        {"from": ANNA, "id": f"wamid.{text}", "timestamp": "1749416383", "type": "text", "text": {"body": text}}
        for text in texts
    ]
    value = {"metadata": {"phone_number_id": NUMBER}, "messages": messages, **more}
    return json.dumps({"object": "x", "entry": [{"changes": [{"field": "messages", "value": value}]}]}).encode()


def signed(body: bytes, *, given: str | None = None) -> HookRequest:
    headers = {"x-hub-signature-256": signature(SECRET, body) if given is None else given}
    return HookRequest(method="POST", path="", query={}, headers=headers, body=body)


BODY = call("hi")
GOOD = signature(SECRET, BODY)


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"x-hub-signature-256": GOOD}, BODY, 200),
        ({}, BODY, 401),
        ({"x-hub-signature-256": ""}, BODY, 401),
        ({"x-hub-signature-256": "sha256="}, BODY, 401),
        ({"x-hub-signature-256": GOOD.removeprefix("sha256=")}, BODY, 401),
        ({"x-hub-signature-256": GOOD.upper()}, BODY, 401),
        ({"x-hub-signature-256": GOOD[:-1]}, BODY, 401),
        ({"x-hub-signature-256": GOOD + "0"}, BODY, 401),
        ({"x-hub-signature-256": "sha256=ü"}, BODY, 401),
        ({"x-hub-signature-256": signature("f" * 32, BODY)}, BODY, 401),
        ({"x-hub-signature-256": signature("", BODY)}, BODY, 401),
        ({"x-hub-signature": GOOD}, BODY, 401),
        ({"x-hub-signature-256": GOOD}, BODY.replace(b"hi", b"ho", 1), 401),
        ({"x-hub-signature-256": GOOD}, BODY + b" ", 401),
        ({"x-hub-signature-256": signature(SECRET, b"[]")}, b"[]", 400),
        ({"x-hub-signature-256": signature(SECRET, b"{")}, b"{", 400),
        ({"x-hub-signature-256": signature(SECRET, b"")}, b"", 400),
    ],
)
async def test_only_what_was_signed_with_our_secret_is_read(
    channel: WhatsAppChannel, headers: Mapping[str, str], body: bytes, status: int
) -> None:
    """Over the body as it came."""
    inlet = Taking()
    request = HookRequest(method="POST", path="", query={}, headers=headers, body=body)
    assert (await channel.hook(request, inlet)).status == status
    assert len(inlet.accepted) == (status == 200)


@pytest.mark.parametrize(
    ("query", "status", "body"),
    [
        ({"hub.mode": "subscribe", "hub.verify_token": WORD, "hub.challenge": "77"}, 200, b"77"),
        ({"hub.mode": "subscribe", "hub.verify_token": "another", "hub.challenge": "77"}, 403, b""),
        ({"hub.mode": "subscribe", "hub.verify_token": "", "hub.challenge": "77"}, 403, b""),
        ({"hub.mode": "unsubscribe", "hub.verify_token": WORD, "hub.challenge": "77"}, 403, b""),
        ({}, 403, b""),
    ],
)
async def test_the_handshake_wants_our_word(
    channel: WhatsAppChannel, query: dict[str, str], status: int, body: bytes
) -> None:
    """Nobody else can make our webhook theirs."""
    answer = await channel.hook(HookRequest(method="GET", path="", query=query, headers={}, body=b""), Taking())
    assert (answer.status, answer.body) == (status, body)


async def test_nothing_is_acknowledged_that_is_not_durable(channel: WhatsAppChannel) -> None:
    """RedisAway goes up, and WhatsApp calls again."""
    inlet = Taking()
    inlet.away = True
    with pytest.raises(RedisAway):
        await channel.hook(signed(BODY), inlet)


async def test_late_failures_are_acknowledged(channel: WhatsAppChannel) -> None:
    """They say nothing to anybody but the log; a strange recipient harms nobody."""
    statuses = [{"status": "failed", "recipient_id": to, "errors": [{"code": 131026}]} for to in (ANNA, "", "x" * 999)]
    assert (await channel.hook(signed(call(statuses=statuses)), Taking())).status == 200


async def test_a_person_is_answered_for_24_hours(
    channel: WhatsAppChannel, fake: FakeWhatsApp, clock: HandClock
) -> None:
    """WhatsApp would take a later message and throw it away."""
    inlet = Taking()
    await channel.hook(signed(BODY), inlet)
    notes = inlet.accepted[0].notes
    post = Post(
        target=PostTarget(session=f"whatsapp:{ANNA}", chat_id=ANNA, notes=notes), key="k", piece=Piece("a", "a")
    )
    clock.at += WINDOW_MS / 1000
    await channel.send(post)
    clock.at += 1
    with pytest.raises(ChatClosed, match="24 hours"):
        await channel.send(post)
    assert [sent.text for sent in fake.posts[ANNA]] == ["a"]
    assert notes.keys() == {"message", WRITTEN_AT}


async def test_typing_answers_the_last_message(channel: WhatsAppChannel, fake: FakeWhatsApp) -> None:
    """Which is then shown as read; where nobody wrote there is nothing to answer."""
    fake.received["wamid.hi"] = ANNA
    await channel.typing(PostTarget(session="s", chat_id=ANNA, notes={"message": "wamid.hi"}))
    await channel.typing(PostTarget(session="s", chat_id=ANNA))
    assert [(kind, chat) for _, kind, chat in fake.calls] == [("typing", ANNA)]


async def test_it_only_calls(channel: WhatsAppChannel) -> None:
    """There is nothing to listen to."""
    with pytest.raises(NotImplementedError):
        await channel.listen(Taking(), asyncio.Event())


async def test_posts_that_were_not_delivered_after_all_are_counted(
    channel: WhatsAppChannel, capsys: pytest.CaptureFixture[str]
) -> None:
    """WhatsApp takes a post and says by a status that it could not bring it; what was sent, delivered or read is no
    news. The log has its number, and no phone number."""
    counted = DELIVERY_FAILED_LATER.labels("whatsapp")
    before = counted._value.get()
    status = {"id": "wamid.out1", "timestamp": "1749416383", "recipient_id": ANNA}
    failed = {**status, "status": "failed", "errors": [{"code": 131026, "title": "Message undeliverable"}]}
    nowhere = {**failed, "recipient_id": ""}
    body = call(statuses=[{**status, "status": "delivered"}, failed, nowhere])
    inlet = Taking()
    assert (await channel.hook(signed(body), inlet)).status == 200
    assert (await channel.hook(signed(body, given="sha256=" + "0" * 64), inlet)).status == 401
    assert (counted._value.get(), inlet.accepted) == (before + 2, [])
    logged = capsys.readouterr().out
    assert logged.count("post failed later") == logged.count("131026") == 2
    assert ANNA not in logged
