"""The Graph API, against a server that says what WhatsApp says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import msgspec
import pytest

from gateway.channels.whatsapp.channel import WhatsAppChannel
from gateway.channels.whatsapp.refusals import map_error
from gateway.channels.whatsapp.settings import read_whatsapp
from gateway.platform.protocol import (
    Button,
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
from tests.fakes.whatsapp import NUMBER, TOKEN, FakeWhatsApp
from tests.helpers.wait import call_s

ANNA = "491701234567"
PLACE = PostTarget(session=f"whatsapp:{ANNA}", chat_id=ANNA)


@pytest.fixture
async def fake() -> AsyncIterator[FakeWhatsApp]:
    async with FakeWhatsApp({ANNA}).serving() as server:
        yield server


def connected(address: str, *, token: str = TOKEN, number: str = NUMBER, timeout_s: float = 10.0) -> WhatsAppChannel:
    table = {"access_token": token, "app_secret": "0" * 32, "verify_token": "verify me", "phone_number_id": number}
    settings = read_whatsapp("whatsapp", {**table, "api": address})
    return WhatsAppChannel("whatsapp", msgspec.structs.replace(settings, timeout_s=timeout_s))


@pytest.fixture
async def api(fake: FakeWhatsApp, request: pytest.FixtureRequest) -> AsyncIterator[WhatsAppChannel]:
    api = connected(fake.address, timeout_s=call_s(request))
    yield api
    await api.close()


def post(text: str = "*hi*", *, place: PostTarget = PLACE, **more: object) -> Post:
    return Post(target=place, key="k", piece=Piece(text, "hi"), **more)  # type: ignore[arg-type]


def file(media_type: str, name: str) -> Post:
    return Post(
        target=PLACE, key="k", file=File(reference="r", name=name, media_type=media_type, size_bytes=3, data=b"abc")
    )


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttled", Throttled),
        ("throttled bot", Throttled),
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
    fake: FakeWhatsApp, api: WhatsAppChannel, kind: str, error: type[Exception]
) -> None:
    """One try a call."""
    fake.script(kind, "send", None, 1)
    with pytest.raises(error) as caught:
        await api.send(post())
    if isinstance(caught.value, Throttled):
        assert caught.value.whole_bot is (kind == "throttled bot")
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (401, 190, ChannelBroken), (400, 0, ChannelBroken), (403, 10, ChannelBroken), (403, 200, ChannelBroken),
        (400, 131005, ChannelBroken), (400, 33, ChannelBroken), (400, 131031, ChannelBroken), (403, 368, ChannelBroken),
        (400, 131056, Throttled), (429, 130429, Throttled), (400, 80007, Throttled), (400, 131048, Throttled),
        (400, 131047, ChatClosed), (400, 131026, ChatClosed), (400, 131030, ChatClosed),
        (400, 131009, PostRefused), (400, 100, PostRefused), (400, 131051, PostRefused), (404, 999, PostRefused),
        (500, 131000, NotAccepted), (400, 131000, NotAccepted), (503, 131016, MaybeSent),
        (400, 131016, NotAccepted), (500, 2, MaybeSent),
        (500, None, MaybeSent), (503, None, MaybeSent), (302, None, NotAccepted),
        (502, None, MaybeSent), (504, None, MaybeSent),
        (429, None, Throttled), (401, None, ChannelBroken), (413, None, PostRefused),
    ],
)  # fmt: skip
def test_the_number_of_an_error_says_what_it_means(status: int, code: int | None, error: type[Exception]) -> None:
    """And its words, which may quote a message, are handed to nobody."""
    body = json.dumps({"error": {"message": "SECRET", "code": code, "error_data": {"details": "SECRET"}}}).encode()
    found = map_error(status, body if code is not None else b"<html>SECRET</html>")
    assert type(found) is error
    assert "SECRET" not in str(found)


async def test_nobody_there_is_not_accepted() -> None:
    """No connection, so nothing can have arrived."""
    api = connected("http://127.0.0.1:9/v23.0")
    with pytest.raises(NotAccepted):
        await api.send(post())
    await api.close()


async def test_a_number_that_may_not_be_written_to_is_a_closed_chat(api: WhatsAppChannel) -> None:
    """As a test number has them."""
    with pytest.raises(ChatClosed):
        await api.send(post(place=PostTarget(session="whatsapp:8", chat_id="15550000008")))


async def test_a_wrong_token_or_number_says_which_setting(fake: FakeWhatsApp, api: WhatsAppChannel) -> None:
    """Nothing but a person can mend it."""
    await api.open()
    for token, number, setting in ((TOKEN + "x", NUMBER, "access_token"), (TOKEN, "123456", "phone_number_id")):
        other = connected(fake.address, token=token, number=number)
        with pytest.raises(ChannelBroken, match=rf"channels\.whatsapp\.{setting}"):
            await other.open()
        with pytest.raises(ChannelBroken, match=rf"channels\.whatsapp\.{setting}"):
            await other.send(post())
        await other.close()


async def test_a_well_formed_message_is_accepted(fake: FakeWhatsApp, api: WhatsAppChannel) -> None:
    """Text with markup, buttons, a list, a reply, files."""
    await api.send(post(buttons=(Button("Yes", "/yes ab"),), reply_to="wamid.x"))
    await api.send(post("long " * 400, buttons=(Button("The blue one with the spots", "blue"),)))
    for media_type, name in (("image/png", "a.png"), ("application/pdf", "ä b.pdf"), ("audio/mpeg", "a.mp3")):
        await api.send(file(media_type, name))
    first, second, *files = fake.posts[ANNA]
    assert (first.text, first.markup, first.reply_to, first.choices) == (
        "hi", True, "wamid.x", [{"id": "/yes ab", "title": "Yes"}],
    )  # fmt: skip
    assert second.choices[0]["id"] == "blue"
    assert [(one.kind, one.file) for one in files] == [
        ("image", b"abc"), ("document", b"abc"), ("audio", b"abc"),
    ]  # fmt: skip


async def test_a_file_that_whatsapp_does_not_take_is_named(fake: FakeWhatsApp, api: WhatsAppChannel) -> None:
    """The person is told that there is one."""
    await api.send(file("image/gif", "a.gif"))
    assert fake.posts[ANNA][0].text == "[file: a.gif, of a kind that WhatsApp does not take]"


async def test_a_file_of_a_person_is_fetched_in_parts(fake: FakeWhatsApp, api: WhatsAppChannel) -> None:
    """From the address that WhatsApp tells, with the token."""
    fake.files["5"] = b"x" * 200_000
    assert b"".join([part async for part in api.fetch(RemoteFile(handle="5"))]) == b"x" * 200_000
    assert fake.asked == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:9/lookaside", "https://evil.example/x", "https://lookaside.fbsbx.com.evil.example/x",
        "https://evilfbsbx.com/x", "http://lookaside.fbsbx.com/x", "https://lookaside.fbsbx.com@evil.example/x",
        "https://lookaside.fbsbx.com:8443/x", "file:///etc/passwd", "https://[::1", "",
    ],
)  # fmt: skip
async def test_the_token_goes_to_whatsapp_alone(fake: FakeWhatsApp, api: WhatsAppChannel, address: str) -> None:
    """A file that is anywhere else is not fetched at all."""
    fake.files["5"] = b"x"
    fake.files_at = address or "x"
    with pytest.raises(PostRefused):
        [part async for part in api.fetch(RemoteFile(handle="5"))]
    assert fake.asked == []


async def test_files_are_where_whatsapp_has_them(api: WhatsAppChannel) -> None:
    """Its own host for files, by TLS."""
    assert api._may_have_token("https://lookaside.fbsbx.com/whatsapp_business/attachments/?mid=1&ext=2&hash=A")


@pytest.mark.parametrize("handle", ["gone", "../x", "5?x=1", ""])
async def test_a_file_that_is_not_there_breaks_nothing(fake: FakeWhatsApp, api: WhatsAppChannel, handle: str) -> None:
    """It is one file, not the channel."""
    with pytest.raises((PostRefused, NotAccepted)):
        [part async for part in api.fetch(RemoteFile(handle=handle))]
    await api.send(post())
