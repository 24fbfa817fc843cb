"""What the channel makes of calls and events: who is believed, what is looked up, what is answered."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from gateway.channels.feishu.channel import FeishuChannel
from gateway.channels.feishu.cipher import signature
from gateway.channels.feishu.settings import read_feishu
from gateway.platform.protocol import HookAnswer, HookRequest, InletVerdict, Piece, PlatformMessage, Post, PostTarget
from shared.errors import RedisAway, Refused
from shared.messages.inbound import InboundMessage
from tests.fakes.feishu import APP_ID, BOT, SECRET, FakeFeishu
from tests.fakes.feishu_parts import encrypt_body
from tests.gateway.channels.feishu.events import ANNA, event, mention, message, pressed, recalled

KEY = "our-own-encrypt-key"
TOKEN = "v1wSQnPzPYFZcZeNoiSDYX8nCoU2UL0J"
CHAT = "oc_1"
MESSAGE = "om_1"
ROOT = "om_root"


class PlayedInlet:
    """What was heard and taken back; `says` is what becomes of it."""

    def __init__(self) -> None:
        self.received: list[PlatformMessage] = []
        self.gone: list[InboundMessage] = []
        self.says: InletVerdict = "taken"
        self.fails: Exception | None = None

    async def take(self, event: PlatformMessage) -> InletVerdict:
        if self.fails is not None:
            raise self.fails
        self.received.append(event)
        return self.says

    async def on_delete(self, deleted: InboundMessage) -> None:
        self.gone.append(deleted)


@pytest.fixture
async def fake() -> AsyncIterator[FakeFeishu]:
    async with FakeFeishu({CHAT}).serving() as fake:
        yield fake


def channel_of(fake: FakeFeishu, **more: Any) -> FeishuChannel:
    table = {
        "app_id": APP_ID, "app_secret": SECRET, "run": "webhook", "encrypt_key": KEY, "verification_token": TOKEN,
        "api": fake.address, "timeout_s": 1.0, "allow_groups": [CHAT],
    }  # fmt: skip
    return FeishuChannel("feishu", read_feishu("feishu", table | more))


@pytest.fixture
async def channel(fake: FakeFeishu) -> AsyncIterator[FeishuChannel]:
    channel = channel_of(fake)
    await channel.open()
    yield channel
    await channel.close()


@pytest.fixture
def inlet() -> PlayedInlet:
    return PlayedInlet()


def call(body: bytes, *, key: str = KEY, signed: bool = True, **header: Any) -> HookRequest:
    """A call of the webhook, for our app, about CHAT."""
    deliver = json.loads(body)
    if "header" in deliver:
        deliver["header"] |= {"app_id": APP_ID, "token": TOKEN} | header
    data = encrypt_body(key, json.dumps(deliver).encode(), b"i" * 16)
    at = str(int(time.time()))
    headers = {"x-lark-request-timestamp": at, "x-lark-request-nonce": "9"}
    headers["x-lark-signature"] = signature(key, at, "9", data)
    return HookRequest(method="POST", path="", query={}, headers=headers if signed else {}, body=data)


async def deliver(channel: FeishuChannel, inlet: PlayedInlet, body: bytes, **header: Any) -> HookAnswer:
    return await channel.hook(call(body, **header), inlet)


async def test_a_message_is_accepted_and_confirmed(channel: FeishuChannel, inlet: PlayedInlet) -> None:
    """With an answer that is JSON."""
    answer = await deliver(channel, inlet, message(chat_id=CHAT))
    assert (answer.status, answer.body, answer.media_type[:16]) == (200, b"{}", "application/json")
    assert [one.message.content for one in inlet.received] == ["hello"]


@pytest.mark.parametrize("trouble", [RedisAway("away"), Refused("overloaded", "too much", 1.0)])
async def test_a_message_that_cannot_be_accepted_is_not_confirmed(
    channel: FeishuChannel, inlet: PlayedInlet, trouble: Exception
) -> None:
    """The gateway makes a 503 of it."""
    inlet.fails = trouble
    with pytest.raises(type(trouble)):
        await deliver(channel, inlet, message(chat_id=CHAT))


NO_TEXT = encrypt_body(KEY, b'{"header":{"event_id":"\xba"}}', b"i" * 16)
"""Decrypts to JSON with a text that is not UTF-8, as a changed byte of a call makes it."""

CHECK = json.dumps({"challenge": "ajls384kdjxxxx", "token": TOKEN, "type": "url_verification"}).encode()


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        (lambda: call(CHECK, signed=False), 200, b'{"challenge":"ajls384kdjxxxx"}'),
        (lambda: call(CHECK), 200, b'{"challenge":"ajls384kdjxxxx"}'),
        (lambda: call(CHECK, key="another-key", signed=False), 401, b""),
        (lambda: call(CHECK.replace(TOKEN.encode(), b"guessed"), signed=False), 401, b""),
        (lambda: call(CHECK.replace(TOKEN.encode(), b""), signed=False), 401, b""),
        (lambda: call(message(chat_id=CHAT), signed=False), 401, b""),
        (lambda: call(CHECK[:-1] + b', "x": "' + b"x" * 5000 + b'"}', signed=False), 401, b""),
        (lambda: call(message(chat_id=CHAT), token="guessed"), 401, b""),
        (lambda: call(message(chat_id=CHAT), token=None), 401, b""),
        (lambda: call(message(chat_id=CHAT), key="another-key"), 401, b""),
        (lambda: call(json.dumps({"uuid": "x", "token": TOKEN, "type": "event_callback"}).encode()), 401, b""),
        (lambda: call(b'{"header":{"event_type":7}}'), 400, b""),
        (lambda: HookRequest(method="POST", path="", query={}, headers={}, body=NO_TEXT), 401, b""),
        (lambda: call(event("im.chat.updated_v1", {})), 200, b"{}"),
        (lambda: HookRequest(method="GET", path="", query={}, headers={}, body=b""), 401, b""),
        (lambda: HookRequest(method="POST", path="", query={}, headers={}, body=message(chat_id=CHAT)), 401, b""),
    ],
)
async def test_who_calls_is_believed_by_key_signature_and_token(
    channel: FeishuChannel, inlet: PlayedInlet, asked: Callable[[], HookRequest], status: int, body: bytes
) -> None:
    """The check of the address alone is not signed: it is known by its token, under our key."""
    answer = await channel.hook(asked(), inlet)  # signed now: what is older than five minutes is refused
    assert (answer.status, answer.body) == (status, body)
    assert inlet.received == []


@pytest.mark.parametrize(
    ("says", "shown"),
    [
        ("taken", {"type": "success", "content": "✓ /yes a1"}),
        ("command", {"type": "success", "content": "✓ /yes a1"}),
        ("duplicate", {"type": "success", "content": "✓ /yes a1"}),
        ("not allowed", {"type": "error", "content": "✗"}),
        ("ignored", {"type": "error", "content": "✗"}),
        ("refused", {"type": "error", "content": "✗"}),
    ],
)
async def test_who_pressed_a_button_is_shown_what_became_of_it(
    channel: FeishuChannel, inlet: PlayedInlet, says: InletVerdict, shown: dict[str, str]
) -> None:
    """At once, in the answer of the call."""
    inlet.says = says
    body = pressed({"shoal": "/yes a1", "chat": CHAT}, context={"open_message_id": "om_2", "open_chat_id": CHAT})
    answer = await deliver(channel, inlet, body)
    assert json.loads(answer.body) == {"toast": shown}


async def test_a_press_of_another_card_changes_nothing(channel: FeishuChannel, inlet: PlayedInlet) -> None:
    """And is confirmed."""
    answer = await deliver(channel, inlet, pressed({"other": "card"}))
    assert (answer.status, answer.body, inlet.received) == (200, b"{}", [])


def in_group(text: str = "hi", **more: Any) -> bytes:
    return message({"text": text}, chat_id=CHAT, chat_type="group", message_id=MESSAGE, **more)


async def test_a_reply_to_us_is_addressed_to_us(fake: FakeFeishu, channel: FeishuChannel, inlet: PlayedInlet) -> None:
    """What we posted ourselves is known, and looked up to be quoted; each message is looked up once."""
    mine = await channel.send(Post(target=PostTarget(session="s", chat_id=CHAT), key="k", piece=Piece("x", "x")))
    theirs = {"message_id": "om_theirs", "sender": {"id": APP_ID, "id_type": "app_id", "sender_type": "app"}}
    fake.items["om_theirs"] = [theirs]
    fake.received["om_persons"] = CHAT
    fake.paths.clear()
    for parent in (mine, "om_theirs", "om_theirs", "om_persons", "om_unknown"):
        await deliver(channel, inlet, in_group(parent_id=parent, root_id=parent))
    assert [one.addressed for one in inlet.received] == [True, True, True, False, False]
    looked = [path.rpartition("/")[2] for path in fake.paths if path.startswith("GET")]
    assert looked == [mine.rpartition("/")[2], "om_theirs", "om_persons", "om_unknown"]


@pytest.mark.parametrize("more", [{"allow_groups": []}, {"groups": "off"}])
async def test_nothing_is_looked_up_for_groups_that_are_not_read(
    fake: FakeFeishu, inlet: PlayedInlet, more: dict[str, Any]
) -> None:
    """Their people cost no call."""
    channel = channel_of(fake, **more)
    await channel.open()
    fake.paths.clear()
    await deliver(channel, inlet, in_group(parent_id="om_theirs"))
    await deliver(channel, inlet, message("x", "merge_forward", chat_id=CHAT, chat_type="group"))
    await channel.close()
    assert fake.paths == []
    assert [one.addressed for one in inlet.received] == [False, False]


async def test_what_bots_say_is_not_looked_up(fake: FakeFeishu, channel: FeishuChannel, inlet: PlayedInlet) -> None:
    """It is not read."""
    fake.paths.clear()
    await deliver(channel, inlet, in_group(parent_id="om_theirs", sender="ou_bot", sender_type="app"))
    assert fake.paths == []


async def test_messages_that_were_passed_on_are_looked_up(
    fake: FakeFeishu, channel: FeishuChannel, inlet: PlayedInlet
) -> None:
    """With who said them; what cannot be looked up is named."""
    fake.items[MESSAGE] = [
        {"message_id": MESSAGE, "msg_type": "merge_forward", "body": {"content": "Merged and Forwarded Message"}},
        {"message_id": "om_a", "msg_type": "text", "sender": {"id": ANNA}, "body": {"content": '{"text":"one"}'}},
        {"message_id": "om_b", "msg_type": "text", "sender": {"id": BOT}, "body": {"content": '{"text":"two"}'}},
    ]
    for id in (MESSAGE, "om_unknown"):
        body = message("Merged and Forwarded Message", "merge_forward", chat_id=CHAT, message_id=id)
        await deliver(channel, inlet, body)
    assert [one.message.content for one in inlet.received] == [
        f"[forwarded from {ANNA}]\none\n\n[forwarded from {BOT}]\ntwo", "[merge_forward]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("item", "mode", "threads", "thread"),
    [
        ({}, "p2p", True, None),
        ({}, "group", True, MESSAGE),
        ({}, "group", False, None),
        ({"root_id": ROOT}, "p2p", True, None),
        ({"root_id": ROOT, "thread_id": "omt_1"}, "group", True, ROOT),
        ({"root_id": ROOT, "thread_id": "omt_1"}, "group", False, ROOT),
        ({"thread_id": "omt_1"}, "topic", False, MESSAGE),
    ],
)
async def test_a_recalled_message_is_withdrawn_where_it_stood(
    fake: FakeFeishu, inlet: PlayedInlet, item: dict[str, Any], mode: str, threads: bool, thread: str | None
) -> None:
    """The event tells neither its topic nor what kind of chat it was: both are looked up."""
    channel = channel_of(fake, threads=threads)
    await channel.open()
    fake.items[MESSAGE] = [{"message_id": MESSAGE, "msg_type": "text", "deleted": True} | item]
    fake.modes[CHAT] = mode
    await deliver(channel, inlet, recalled(message_id=MESSAGE, chat_id=CHAT))
    await channel.close()
    [gone] = inlet.gone
    assert (gone.chat_id, gone.id, gone.thread) == (CHAT, MESSAGE, thread)


async def test_a_known_chat_is_not_looked_up(fake: FakeFeishu, channel: FeishuChannel, inlet: PlayedInlet) -> None:
    """No permission is needed for it then. Without one nothing is taken back, which might be another message."""
    fake.items[MESSAGE] = [{"message_id": MESSAGE, "deleted": True}]
    assert (await deliver(channel, inlet, recalled(message_id=MESSAGE, chat_id=CHAT))).status == 200
    assert inlet.gone == []
    await deliver(channel, inlet, in_group("@_user_1 hi", mentions=[mention(1, "Shoal", BOT)]))
    await deliver(channel, inlet, recalled(message_id=MESSAGE, chat_id=CHAT))
    assert [one.thread for one in inlet.gone] == [MESSAGE]


async def test_the_same_message_has_one_place_when_received_and_when_recalled(
    fake: FakeFeishu, channel: FeishuChannel, inlet: PlayedInlet
) -> None:
    """Or the wrong one would be taken back."""
    fake.items[MESSAGE] = [{"message_id": MESSAGE, "deleted": True}]
    await deliver(channel, inlet, in_group())
    await deliver(channel, inlet, recalled(message_id=MESSAGE, chat_id=CHAT))
    [received], [gone] = inlet.received, inlet.gone
    assert gone.session == received.message.session
    assert msgspec.structs.replace(gone, timestamp=0, sender_id="").id == received.message.id


def test_the_abilities_are_those_of_the_documentation() -> None:
    """Fifty a second and a thousand a minute of a call, five a second into a chat; fifty connections."""
    abilities = FeishuChannel.abilities
    for of in ("posts", "edits"):
        for scope, per_s, per_minute in (("bot", 50, 1000), ("chat", 5, 300)):
            rates = [rate for rate in abilities.rates if (rate.of, rate.scope) == (of, scope)]
            assert min(rate.burst + rate.per_s for rate in rates) <= per_s
            assert min(rate.burst + rate.per_s * 60 for rate in rates) <= per_minute
    assert (abilities.sockets, abilities.resend_guard) == (50, "key")
