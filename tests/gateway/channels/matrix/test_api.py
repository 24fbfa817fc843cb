"""The client-server API, against a server that says what a homeserver says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.channels.matrix.api import MatrixApi
from gateway.channels.matrix.http import MatrixHttp
from gateway.platform.protocol import (
    ChannelBroken,
    ChatClosed,
    File,
    MaybeSent,
    NotAccepted,
    Piece,
    Post,
    PostRefused,
    PostTarget,
    RemoteFile,
    Throttled,
)
from tests.fakes.matrix import BOT, PASSWORD, TOKEN, FakeMatrix
from tests.helpers.wait import call_s

ROOM = "!pond/+:pond.example"
PLACE = PostTarget(session="matrix:r", chat_id=ROOM)


@pytest.fixture
async def fake() -> AsyncIterator[FakeMatrix]:
    async with FakeMatrix({ROOM: {"@anna:pond.example": "Anna", BOT: "Shoal"}}).serving() as server:
        yield server


def connected(
    address: str, *, token: str = TOKEN, user: str = "", password: str = "", timeout_s: float = 10.0
) -> MatrixApi:
    return MatrixApi(MatrixHttp(address, token=token, user=user, password=password, timeout_s=timeout_s))


@pytest.fixture
async def api(fake: FakeMatrix, request: pytest.FixtureRequest) -> AsyncIterator[MatrixApi]:
    api = connected(fake.address, timeout_s=call_s(request))
    yield api
    await api.close()


def post(text: str = "<b>hi</b>", *, key: str = "k", place: PostTarget = PLACE, **more: object) -> Post:
    return Post(target=place, key=key, piece=Piece(text, "hi"), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttled", Throttled),
        ("refused", PostRefused),
        ("too large", PostRefused),
        ("closed", ChatClosed),
        ("logged out", ChannelBroken),
        ("down", MaybeSent),
        ("hang", MaybeSent),
    ],
)
async def test_each_failure_has_its_error(fake: FakeMatrix, api: MatrixApi, kind: str, error: type[Exception]) -> None:
    """One try a call. What a proxy answers for a homeserver leaves it unclear whether the call went through."""
    fake.script(kind, "send", None, 1, 2.5)
    with pytest.raises(error) as caught:
        await api.send(post())
    if isinstance(caught.value, Throttled):
        assert (caught.value.retry_after_s, caught.value.whole_bot) == (2.5, True)
    assert len(fake.calls) == 1


async def test_a_post_whose_answer_was_lost_is_there_once(fake: FakeMatrix, api: MatrixApi) -> None:
    """The same transaction, whoever of the same device sends it again."""
    fake.script("unanswered", "send", None, 2, 0)
    with pytest.raises(MaybeSent):
        await api.send(post())
    another = connected(fake.address)
    id = await another.send(post())
    await another.close()
    assert [one.id for one in fake.posts[ROOM]] == [id]
    assert await api.send(post(key="other")) != id


async def test_nobody_there_is_not_accepted() -> None:
    """No connection, so nothing can have arrived."""
    api = connected("http://127.0.0.1:9")
    with pytest.raises(NotAccepted):
        await api.send(post())
    await api.close()


async def test_what_is_no_homeserver_says_which_setting(fake: FakeMatrix) -> None:
    """Nothing but a person can mend it; nor a token that nobody knows."""
    elsewhere, unknown = connected(f"{fake.address}/elsewhere"), connected(fake.address, token="syt_x")
    with pytest.raises(ChannelBroken, match=r"channels\.matrix\.homeserver"):
        await elsewhere.open()
    with pytest.raises(ChannelBroken, match=r"channels\.matrix\.access_token"):
        await unknown.open()
    await elsewhere.close()
    await unknown.close()


async def test_who_has_a_password_logs_in_again_when_logged_out(fake: FakeMatrix) -> None:
    """With a device of its own each time; what another device sent is looked up by its key."""
    api = connected(fake.address, token="", user=BOT, password=PASSWORD)
    await api.open()
    assert api.me == BOT
    id = await api.send(post())
    fake.tokens = {TOKEN: "D"}
    with pytest.raises(NotAccepted):
        await api.send(post(key="k2"))
    await api.send(post(key="k2"))
    assert (await api.find_post(post()), await api.find_post(post(key="k3"))) == (id, None)
    assert len(fake.tokens) == 2
    await api.close()
    assert set(fake.tokens) == {TOKEN}


async def test_a_wrong_password_says_which_setting(fake: FakeMatrix) -> None:
    """And asks nothing else."""
    api = connected(fake.address, token="", user=BOT, password="wrong")
    with pytest.raises(ChannelBroken, match=r"channels\.matrix\.password"):
        await api.open()
    await api.close()


@pytest.mark.parametrize(
    ("thread", "reply_to", "relation"),
    [
        (None, None, None),
        (None, "$q|$edit", {"m.in_reply_to": {"event_id": "$q"}}),
        (
            "$root",
            None,
            {
                "rel_type": "m.thread",
                "event_id": "$root",
                "is_falling_back": True,
                "m.in_reply_to": {"event_id": "$root"},
            },
        ),
        (
            "$root",
            "$q",
            {
                "rel_type": "m.thread",
                "event_id": "$root",
                "is_falling_back": False,
                "m.in_reply_to": {"event_id": "$q"},
            },
        ),
    ],
)
async def test_where_a_post_belongs(
    fake: FakeMatrix, api: MatrixApi, thread: str | None, reply_to: str | None, relation: object
) -> None:
    """An answer to an edited message is one to the message."""
    await api.send(post(place=PostTarget(session="s", chat_id=ROOM, thread=thread), reply_to=reply_to))
    assert fake.posts[ROOM][0].content.get("m.relates_to") == relation


async def test_text_names_nobody_and_has_a_plain_form(fake: FakeMatrix, api: MatrixApi) -> None:
    """`m.mentions` is empty; an edit says both what is new and what clients without edits show."""
    id = await api.send(post())
    content = fake.posts[ROOM][0].content
    assert (content["msgtype"], content["body"], content["formatted_body"]) == ("m.text", "hi", "<b>hi</b>")
    assert content["m.mentions"] == {}
    await api.edit(id, post("<i>ho</i>"))
    await api.edit(id, post("<i>hum</i>"))
    assert (fake.posts[ROOM][0].text, fake.posts[ROOM][0].edits) == ("hum", 2)
    await api.edit(id, post("<i>ho</i>", as_plain=True))
    assert fake.posts[ROOM][0].text == "hi"
    assert fake.newest["body"] == "* hi"


async def test_files_are_uploaded_and_fetched(fake: FakeMatrix, api: MatrixApi) -> None:
    """Pictures as pictures; an address that is none of the store's is not asked for."""
    for media_type, kind in (("image/png", "m.image"), ("application/pdf", "m.file")):
        file = File(reference="r", name="a", media_type=media_type, size_bytes=3, data=b"abc")
        await api.send(Post(target=PLACE, key=kind, file=file))
        content = fake.posts[ROOM][-1].content
        assert (content["msgtype"], content["info"]) == (kind, {"mimetype": media_type, "size": 3})
    fetched = [part async for part in api.fetch(RemoteFile(handle=content["url"]))]
    assert b"".join(fetched) == b"abc"
    with pytest.raises(NotAccepted):
        [part async for part in api.fetch(RemoteFile(handle="mxc://pond.example/gone"))]
    with pytest.raises(PostRefused):
        [part async for part in api.fetch(RemoteFile(handle="https://pond.example/x"))]


async def test_a_logout_that_is_cut_short_leaves_no_connection_open(
    fake: FakeMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The homeserver takes longer to answer than there is time to close."""
    api = connected(fake.address, token="", user="shoal", password=PASSWORD)
    await api.open()
    session, asked = api._http._http.session, asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(api._http, "call", never)
    closing = asyncio.create_task(api.close())
    await asked.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert session.closed
