"""The open API, against a server that says what Feishu says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from gateway.channels.feishu.api import FeishuApi
from gateway.channels.feishu.refusals import FeishuError, map_connect_error, map_error
from gateway.platform.protocol import (
    Button,
    ChannelBroken,
    ChatClosed,
    File,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    Piece,
    Post,
    PostRefused,
    PostTarget,
    RemoteFile,
    Throttled,
)
from tests.fakes.feishu import APP_ID, BOT, SECRET, FakeFeishu
from tests.fakes.feishu_parts import no
from tests.helpers.wait import call_s, eventually

CHAT = "oc_1"
ASKED = "om_asked"
PLACE = PostTarget(session=f"feishu:{CHAT}", chat_id=CHAT)
TOPIC = PostTarget(session=f"feishu:{CHAT}#{ASKED}", chat_id=CHAT, thread=ASKED, notes={"group": "1"})


@pytest.fixture
async def fake() -> AsyncIterator[FakeFeishu]:
    fake = FakeFeishu({CHAT})
    fake.received[ASKED] = CHAT
    async with fake.serving():
        yield fake


@pytest.fixture
async def api(fake: FakeFeishu, request: pytest.FixtureRequest) -> AsyncIterator[FeishuApi]:
    api = FeishuApi(APP_ID, SECRET, fake.address, timeout_s=call_s(request))
    await api.open()
    yield api
    await api.close()


def post(text: str = "**hi**", *, place: PostTarget = PLACE, key: str = "k", **more: Any) -> Post:
    return Post(target=place, key=key, piece=Piece(text, "hi"), **more)


def file(media_type: str, name: str, data: bytes = b"abc", **more: Any) -> Post:
    made = File(reference="r", name=name, media_type=media_type, size_bytes=len(data), data=data)
    return Post(target=PLACE, key="k", file=made, **more)


async def test_who_we_are_is_asked_with_a_token(fake: FakeFeishu) -> None:
    """One token for all calls."""
    api = FeishuApi(APP_ID, SECRET, fake.address, timeout_s=1.0)
    me = await api.open()
    await api.send(post())
    await api.close()
    assert (me.app_id, me.open_id, fake.tokens) == (APP_ID, BOT, 1)


@pytest.mark.parametrize(("app_id", "secret"), [("cli_another00000000", SECRET), (APP_ID, "another-secret")])
async def test_an_app_that_feishu_does_not_know_breaks_the_channel(fake: FakeFeishu, app_id: str, secret: str) -> None:
    """Who reads it knows which settings to look at, and not what is in them."""
    api = FeishuApi(app_id, secret, fake.address, timeout_s=1.0)
    with pytest.raises(ChannelBroken, match="app_id and app_secret") as caught:
        await api.open()
    with pytest.raises(ChannelBroken, match="app_id and"):
        await api.connect()
    await api.close()
    assert secret not in str(caught.value)


async def test_a_bot_that_is_not_active_breaks_the_channel(fake: FakeFeishu) -> None:
    """A version of the app must be published."""
    fake.bot_status = 1
    api = FeishuApi(APP_ID, SECRET, fake.address, timeout_s=1.0)
    with pytest.raises(ChannelBroken, match="publish"):
        await api.open()
    await api.close()


async def test_no_server_is_no_fault_of_the_settings() -> None:
    """It is tried again."""
    api = FeishuApi(APP_ID, SECRET, "http://127.0.0.1:1", timeout_s=1.0)
    with pytest.raises(NotAccepted):
        await api.open()
    await api.close()
    with pytest.raises(NotAccepted):
        await api.send(post())
    await api.close()


async def test_a_token_that_is_refused_is_renewed_once(fake: FakeFeishu, api: FeishuApi) -> None:
    """For every kind of call; the post is there once."""
    fake.files.data["file_1"] = b"bytes"
    uses: list[Callable[[], Awaitable[object]]] = [
        lambda: api.send(post()), lambda: api.get_items(ASKED), lambda: _fetched(api),
    ]  # fmt: skip
    for number, use in enumerate(uses):
        fake.gone_token()
        await use()
        assert fake.tokens == number + 2
    assert len(fake.posts[CHAT]) == 1


async def _fetched(api: FeishuApi, handle: str = f"{ASKED}/file/file_1") -> bytes:
    return b"".join([part async for part in api.fetch(RemoteFile(handle=handle))])


async def test_a_token_that_is_always_refused_is_not_asked_for_for_ever(fake: FakeFeishu, api: FeishuApi) -> None:
    """Once more, and then later."""
    fake.answers["/open-apis/im/v1/messages"] = lambda: no(99991663, "Invalid access token", status=401)
    with pytest.raises(NotAccepted):
        await api.send(post())
    assert fake.tokens == 2


async def test_a_token_is_renewed_before_its_end(fake: FakeFeishu) -> None:
    """So no call meets an old one."""
    fake.expire = 0
    api = FeishuApi(APP_ID, SECRET, fake.address, timeout_s=1.0)
    await api.open()
    await api.send(post())
    await api.close()
    assert fake.tokens == 2


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttled", Throttled),
        ("throttled bot", Throttled),
        ("markup", MarkupRefused),
        ("refused", PostRefused),
        ("closed", ChatClosed),
        ("down", MaybeSent),
        ("unheard", MaybeSent),
        ("unanswered", MaybeSent),
        ("stored", MaybeSent),
        ("hang", MaybeSent),
    ],
)
@pytest.mark.parametrize("call", ["send", "edit"])
async def test_each_failure_has_its_error(
    fake: FakeFeishu, api: FeishuApi, kind: str, error: type[Exception], call: str
) -> None:
    """One try a call."""
    id = await api.send(post(key="first")) if call == "edit" else ""
    fake.calls.clear()
    fake.script(kind, call, None, 1, 7.0)
    with pytest.raises(error) as caught:
        await (api.send(post()) if call == "send" else api.edit(id, post()))
    if isinstance(caught.value, Throttled):
        assert (caught.value.whole_bot, caught.value.retry_after_s) == (kind == "throttled bot", 7.0)
    assert len(fake.calls) == 1


async def test_the_same_key_is_shown_once(fake: FakeFeishu, api: FeishuApi) -> None:
    """Also when the answer was lost. The key is cut to what Feishu takes."""
    fake.script("unanswered", "send", None, 1, 0)
    with pytest.raises(MaybeSent):
        await api.send(post(key="k" * 300))
    id = await api.send(post(key="k" * 300))
    assert [one.id for one in fake.posts[CHAT]] == [id]
    assert await api.send(post(key="k" * 299)) != id


async def test_a_piece_is_a_card_that_can_be_changed(fake: FakeFeishu, api: FeishuApi) -> None:
    """What the list of chats shows of it is plain."""
    id = await api.send(post("**one**"))
    await api.edit(id, post("**two**"))
    [shown] = fake.posts[CHAT]
    card = json.loads(shown.content)
    assert (shown.kind, shown.shown.text, shown.edits) == ("interactive", "two", 1)
    assert card["config"]["summary"] == {"content": "hi"}
    assert card["config"]["enable_forward_interaction"] is False
    await api.edit(id, post("**three**", as_plain=True))
    assert (shown.shown.text, shown.shown.markup) == ("hi", False)


async def test_plain_text_is_a_text_that_can_be_changed_some_times(fake: FakeFeishu, api: FeishuApi) -> None:
    """Twenty; then it is a post that cannot be changed."""
    id = await api.send(post(as_plain=True, buttons=(Button("Tea", "Tea <at user_id='all'>"),)))
    [shown] = fake.posts[CHAT]
    assert (shown.kind, shown.shown.text) == ("text", "hi\n\n- Tea <at user_id='all'>")
    assert "<at" not in shown.content
    for _ in range(20):
        await api.edit(id, post("**new**"))
    with pytest.raises(PostRefused):
        await api.edit(id, post("**new**"))


async def test_buttons_say_where_they_stand(fake: FakeFeishu, api: FeishuApi) -> None:
    """In what Feishu tells when they are pressed."""
    buttons = (Button("Yes", "/yes a1"), Button("N" * 100, "/no a1"))
    await api.send(post(place=TOPIC, buttons=buttons))
    [shown] = fake.posts[CHAT]
    assert shown.shown.buttons == [
        ("Yes", {"shoal": "/yes a1", "chat": CHAT, "thread": ASKED, "group": "1"}),
        ("N" * 60, {"shoal": "/no a1", "chat": CHAT, "thread": ASKED, "group": "1"}),
    ]


@pytest.mark.parametrize(
    ("place", "reply_to", "parent", "in_topic"),
    [
        (PLACE, None, None, False),
        (PLACE, ASKED, ASKED, False),
        (PLACE, "press/1", None, False),
        (TOPIC, None, ASKED, True),
        (TOPIC, "om_other", ASKED, True),
    ],
)
async def test_an_answer_stands_where_it_belongs(
    fake: FakeFeishu, api: FeishuApi, place: PostTarget, reply_to: str | None, parent: str | None, in_topic: bool
) -> None:
    """In its topic, below its question, or in the chat."""
    await api.send(post(place=place, reply_to=reply_to))
    [shown] = fake.posts[CHAT]
    assert (shown.parent, shown.in_topic) == (parent, in_topic)


@pytest.mark.parametrize("reply_to", [ASKED, "om_unknown"])
async def test_what_is_answered_may_be_gone(fake: FakeFeishu, api: FeishuApi, reply_to: str) -> None:
    """Then the answer stands by itself; in a topic there is nobody to read it."""
    fake.gone.add(ASKED)
    await api.send(post(reply_to=reply_to))
    assert fake.posts[CHAT][0].parent is None
    with pytest.raises(ChatClosed):
        await api.send(post(place=TOPIC, key="other"))


async def test_where_no_topic_can_be_begun_it_is_answered_without(fake: FakeFeishu, api: FeishuApi) -> None:
    """Some groups have none."""
    fake.no_topics = True
    await api.send(post(place=TOPIC))
    assert (fake.posts[CHAT][0].parent, fake.posts[CHAT][0].in_topic) == (ASKED, False)


@pytest.mark.parametrize(
    ("media_type", "name", "data", "kind", "key"),
    [
        ("image/png", "a.png", b"PNG", "image", "img"),
        ("image/png", "a.png", b"broken", "file", "stream"),
        ("text/plain", "日本.txt", b"text", "file", "stream"),
        ("application/pdf", "a.pdf", b"%PDF", "file", "pdf"),
        ("video/mp4", "a.mp4", b"mp4", "media", "mp4"),
        ("audio/ogg", "a.ogg", b"OggS" + b"\0" * 24 + b"OpusHead", "audio", "opus"),
        ("audio/ogg", "a.ogg", b"OggS vorbis", "file", "stream"),
        ("audio/mpeg", "a.mp3", b"mp3", "file", "stream"),
    ],
)
async def test_a_file_is_sent_as_what_it_is(
    fake: FakeFeishu, api: FeishuApi, media_type: str, name: str, data: bytes, kind: str, key: str
) -> None:
    """By its type; an image that cannot be read is a file."""
    await api.send(file(media_type, name, data))
    [shown] = fake.posts[CHAT]
    assert (shown.kind, str(shown.shown.key).partition("_")[0]) == (kind, key)
    assert fake.files.data[str(shown.shown.key)] == data


@pytest.mark.parametrize(("data", "why"), [(b"", "it is empty"), (b"x" * (30 * 1024 * 1024 + 1), "more than 30 MB")])
async def test_a_file_that_cannot_go_is_named(fake: FakeFeishu, api: FeishuApi, data: bytes, why: str) -> None:
    """And why."""
    await api.send(file("text/plain", "a.txt", data))
    [shown] = fake.posts[CHAT]
    assert "a.txt" in shown.shown.text
    assert why in shown.shown.text


async def test_a_file_with_buttons_has_them_below(fake: FakeFeishu, api: FeishuApi) -> None:
    """Twice the same is there once."""
    for _ in range(2):
        await api.send(file("text/plain", "a.txt", buttons=(Button("Yes", "/yes a1"),)))
    above, below = fake.posts[CHAT]
    assert (above.kind, below.kind, [label for label, _ in below.shown.buttons]) == ("file", "interactive", ["Yes"])


async def test_a_file_that_was_not_uploaded_is_surely_not_there(fake: FakeFeishu, api: FeishuApi) -> None:
    """Whatever the server said."""
    fake.answers["/open-apis/im/v1/files"] = lambda: web.Response(status=500, text="?")
    with pytest.raises(NotAccepted):
        await api.send(file("text/plain", "a.txt"))


async def test_a_file_of_a_person_is_fetched(fake: FakeFeishu, api: FeishuApi) -> None:
    """By its message."""
    fake.files.data |= {"file_1": b"bytes" * 100_000, "img_1": b"image"}
    assert await _fetched(api) == b"bytes" * 100_000
    assert await _fetched(api, f"{ASKED}/image/img_1") == b"image"


@pytest.mark.parametrize(
    ("handle", "error"),
    [
        (f"{ASKED}/file/gone", PostRefused),
        ("om_unknown/file/file_1", PostRefused),
        (f"{ASKED}/files/file_1", PostRefused),
        ("../../x", PostRefused),
        (f"{ASKED}/file/a/b", PostRefused),
    ],
)
async def test_a_missing_file_is_reported(api: FeishuApi, handle: str, error: type[Exception]) -> None:
    """A strange handle leads nowhere."""
    with pytest.raises(error):
        await _fetched(api, handle)


async def test_a_connection_pings_and_is_answered(fake: FakeFeishu, api: FeishuApi) -> None:
    """At once."""
    connection = await api.connect()
    await eventually(lambda: fake.sockets.pings == 1)
    assert await connection.receive()
    await connection.close()
    assert await connection.receive() is None
    await eventually(lambda: not fake.sockets.open)


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"handshake-status": "514", "handshake-autherrcode": "1000040350", "handshake-msg": "x"}, NotAccepted),
        ({"handshake-status": "514", "handshake-autherrcode": "0"}, ChannelBroken),
        ({"handshake-status": "403"}, ChannelBroken),
        ({"handshake-status": "ü"}, ChannelBroken),
    ],
)
async def test_a_handshake_that_is_refused_says_why(
    fake: FakeFeishu, api: FeishuApi, headers: dict[str, str], error: type[Exception]
) -> None:
    """Too many connections: later. Not this app: a person must mend it."""
    fake.sockets.refusal = headers
    with pytest.raises(error):
        await api.connect()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"code": 1, "msg": "system busy"}, NotAccepted),
        ({"code": 1000040343, "msg": "internal"}, NotAccepted),
        ({"code": 1000040350, "msg": "too many"}, NotAccepted),
        ({"code": 514, "msg": "auth"}, ChannelBroken),
        ({"code": 0, "data": {"URL": "ws://elsewhere.example/ws"}}, NotAccepted),
        ({"code": 0, "data": {"URL": 7}}, NotAccepted),
        ({"code": 0}, NotAccepted),
    ],
)
async def test_a_missing_address_has_its_reason(
    fake: FakeFeishu, api: FeishuApi, body: dict[str, Any], error: type[Exception]
) -> None:
    """One that is not Feishu's is not called."""
    fake.answers["/callback/ws/endpoint"] = lambda: web.json_response(body)
    with pytest.raises(error):
        await api.connect()


@pytest.mark.parametrize(
    ("status", "code", "msg", "error"),
    [
        (429, 99991400, "request trigger frequency limit", Throttled),
        (400, 99991400, "request trigger frequency limit", Throttled),
        (429, -1, "", Throttled),
        (400, 230020, "This operation triggers the frequency limit.", Throttled),
        (200, 11232, "", Throttled),
        (400, 230099, "Failed to create card content, ext=ErrCode: 11232; ErrMsg: x", Throttled),
        (200, 10003, "", ChannelBroken),
        (200, 10014, "", ChannelBroken),
        (400, 99991672, "Access denied.", ChannelBroken),
        (400, 99991401, "denied", ChannelBroken),
        (400, 230006, "Bot ability is not activated.", ChannelBroken),
        (400, 230036, "Tenant crypt key has been deleted.", ChannelBroken),
        *((400, code, "", ChatClosed) for code in (230002, 230013, 230018, 230027, 230029, 230034, 230035, 230053)),
        (400, 230001, "ext=invalid receive_id.", ChatClosed),
        (400, 230001, "ext=content is wrong", MarkupRefused),
        (400, 230054, "", MarkupRefused),
        (400, 230099, "Failed to create card content, ext=ErrCode: 11310; ErrMsg: card table number", MarkupRefused),
        (400, 230099, "Failed to create card content, ext=ErrCode: 11310; ErrMsg: card action is lock", NotAccepted),
        *((400, code, "", PostRefused) for code in (230017, 230022, 230025, 230028, 230031, 230055)),
        (400, 230049, "", MaybeSent),
        (400, 230101, "", NotAccepted),
        (401, 99991663, "", NotAccepted),
        (503, -1, "", MaybeSent),
        (500, 230101, "", MaybeSent),
        (500, -1, "", MaybeSent),
        (502, -1, "", MaybeSent),
        (500, 2200, "internal error", MaybeSent),
        (200, -1, "", MaybeSent),
        (404, -1, "", NotAccepted),
        (400, 987654, "secret words", PostRefused),
    ],
)
def test_every_number_has_a_meaning(status: int, code: int, msg: str, error: type[Exception]) -> None:
    """And no word of an answer is handed on."""
    found = map_error(FeishuError(status, code, msg))
    assert type(found) is error
    assert "words" not in str(found)


@pytest.mark.parametrize(("reset", "wait_s"), [("52", 52.0), ("1e9", 3600.0), ("-3", 5.0), ("soon", 5.0), (None, 5.0)])
def test_feishu_says_how_long_to_wait(reset: str | None, wait_s: float) -> None:
    """Or does not; within reason."""
    found = map_error(FeishuError(429, 99991400, "", reset))
    assert isinstance(found, Throttled)
    assert (found.retry_after_s, found.whole_bot) == (wait_s, True)


def test_a_permission_that_is_missing_is_named() -> None:
    """The words that Feishu has for it, and nothing else of its answer."""
    msg = "Access denied. One of the following scopes is required: [im:message, im:message:send_as_bot]. Bearer t-x"
    assert "one of im:message, im:message:send_as_bot:" in str(map_error(FeishuError(400, 99991672, msg)))


@pytest.mark.parametrize("status", [200, 502])
def test_a_connection_that_is_refused_for_no_known_reason_is_tried_again(status: int) -> None:
    """It may pass."""
    assert isinstance(map_connect_error(FeishuError(status, 987)), NotAccepted)
