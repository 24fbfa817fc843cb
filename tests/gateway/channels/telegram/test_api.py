"""The Bot API through aiogram, against a server that says what Telegram says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.channels.telegram.api import TelegramApi
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
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.helpers.media_files import OGG
from tests.helpers.wait import call_s

PLACE = PostTarget(session="telegram:7", chat_id="7")


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram({"7"}).serving() as server:
        yield server


@pytest.fixture
async def api(fake: FakeTelegram, request: pytest.FixtureRequest) -> AsyncIterator[TelegramApi]:
    api = TelegramApi(TOKEN, fake.address, timeout_s=call_s(request))
    yield api
    await api.close()


def post(text: str = "<b>hi</b>", *, place: PostTarget = PLACE, as_plain: bool = False, **more: object) -> Post:
    return Post(target=place, key="k", piece=Piece(text, "hi"), as_plain=as_plain, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttled", Throttled),
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
async def test_each_failure_has_its_error(
    fake: FakeTelegram, api: TelegramApi, kind: str, error: type[Exception]
) -> None:
    """One try a call: whether it is tried again is not the SDK's to decide."""
    fake.script(kind, "send", None, 1, 3.0)
    with pytest.raises(error) as caught:
        await api.send(post())
    if isinstance(caught.value, Throttled):
        assert caught.value.retry_after_s == 3
    assert len(fake.calls) == 1


async def test_nobody_there_is_not_accepted(fake: FakeTelegram) -> None:
    """No connection, so nothing can have arrived."""
    api = TelegramApi(TOKEN, "http://127.0.0.1:9", timeout_s=1.0)
    with pytest.raises(NotAccepted):
        await api.send(post())
    await api.close()


async def test_a_chat_that_is_not_there_is_closed(api: TelegramApi) -> None:
    """As one that the bot was put out of."""
    with pytest.raises(ChatClosed):
        await api.send(post(place=PostTarget(session="telegram:8", chat_id="8")))


async def test_a_wrong_token_says_which_setting(fake: FakeTelegram) -> None:
    """Nothing but a person can mend it."""
    api = TelegramApi("1:" + "x" * 30, fake.address, timeout_s=1.0)
    with pytest.raises(ChannelBroken, match=r"channels\.telegram\.token"):
        await api.identify()
    await api.close()


async def test_buttons_carry_what_they_say(fake: FakeTelegram, api: TelegramApi) -> None:
    """A press carries 64 bytes; what is longer is found by its number."""
    long = "ü" * 40
    await api.send(post(buttons=(Button("Yes", "/yes ab"), Button(long, long), Button("#", "#x"))))
    [sent] = fake.posts["7"]
    assert [one["callback_data"] for one in sent.buttons] == ["/yes ab", "#1", "#2"]


async def test_an_edit_that_changes_nothing_has_succeeded(fake: FakeTelegram, api: TelegramApi) -> None:
    """Telegram calls it an error; the person sees what was meant."""
    id = await api.send(post())
    await api.edit(id, post())
    assert fake.posts["7"][0].edits == 0
    await api.edit(id, post("<i>other</i>"))
    assert fake.posts["7"][0].text == "other"


@pytest.mark.parametrize(
    ("media_type", "data", "kind"),
    [
        ("image/png", b"abc", "photo"),
        ("audio/ogg", OGG, "voice"),
        ("audio/ogg", b"OggS and no Opus", "document"),
        ("application/pdf", b"abc", "document"),
    ],
)
async def test_pictures_are_photos_and_all_else_documents(
    fake: FakeTelegram, api: TelegramApi, media_type: str, data: bytes, kind: str
) -> None:
    """But a recording that it plays is a voice note. Each comes whole."""
    file = File(reference="r", name="a", media_type=media_type, size_bytes=len(data), data=data)
    await api.send(Post(target=PLACE, key="k", file=file))
    assert [(one.kind, one.file) for one in fake.posts["7"]] == [(kind, data)]


async def test_a_file_of_a_person_is_fetched_in_parts(fake: FakeTelegram, api: TelegramApi) -> None:
    """One that is not there any more, or too big for bots, is refused."""
    fake.files["f"] = b"x" * 200_000
    assert b"".join([part async for part in api.fetch(RemoteFile(handle="f"))]) == b"x" * 200_000
    with pytest.raises(PostRefused):
        [part async for part in api.fetch(RemoteFile(handle="gone"))]


async def test_a_strange_update_stands_in_nobodys_way(fake: FakeTelegram, api: TelegramApi) -> None:
    """It is confirmed with the others and says nothing."""
    fake.tell({"update_id": 5, "message": {"chat": "what?"}})
    fake.tell({"update_id": 6, "message": {"message_id": 1, "chat": {"id": 7, "type": "private"}, "text": "hi"}})
    first, second = await api.get_updates(0, 1)
    assert (first.update_id, first.message, second.update_id) == (5, None, 6)
    assert await api.get_updates(6, 0) == []
