"""Discord's HTTP API, against a server that says what Discord says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.channels.discord.api import DiscordApi
from gateway.channels.discord.parse import ConversationInfo
from gateway.channels.discord.render import nonce
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
from tests.fakes.discord import BOT, GUILD, TOKEN, FakeDiscord
from tests.helpers.wait import call_s

ALONE, CHANNEL, THREAD = "400000000000000001", "500000000000000001", "500000000000000002"
PLACE = PostTarget(session=f"discord:{ALONE}", chat_id=ALONE)


@pytest.fixture
async def fake() -> AsyncIterator[FakeDiscord]:
    server = FakeDiscord()
    server.channels = {
        ALONE: {"id": ALONE, "type": 1},
        CHANNEL: {"id": CHANNEL, "type": 0, "guild_id": GUILD, "parent_id": "500000000000000009"},
        THREAD: {"id": THREAD, "type": 11, "guild_id": GUILD, "parent_id": CHANNEL},
    }
    async with server.serving():
        yield server


def made(fake: FakeDiscord, token: str = TOKEN, timeout_s: float = 10.0) -> DiscordApi:
    return DiscordApi("discord", token, f"{fake.address}/api/v10/", files_from=[fake.address], timeout_s=timeout_s)


@pytest.fixture
async def api(fake: FakeDiscord, request: pytest.FixtureRequest) -> AsyncIterator[DiscordApi]:
    api = made(fake, timeout_s=call_s(request))
    yield api
    await api.close()


def post(text: str = "**hi**", *, place: PostTarget = PLACE, key: str = "k", **more: object) -> Post:
    return Post(target=place, key=key, piece=Piece(text, "hi"), **more)  # type: ignore[arg-type]


def with_file(name: str = "a.pdf", **more: object) -> Post:
    file = File(reference="r", name=name, media_type="application/pdf", size_bytes=3, data=b"abc")
    return Post(target=PLACE, key="f", file=file, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("throttled", Throttled),
        ("throttled bot", Throttled),
        ("banned", Throttled),
        ("refused", PostRefused),
        ("400/50006", PostRefused),
        ("400/200000", PostRefused),
        ("413/40005", PostRefused),
        ("403/20009", PostRefused),
        ("closed", ChatClosed),
        ("403/50001", ChatClosed),
        ("403/50013", ChatClosed),
        ("403/50278", ChatClosed),
        ("400/160005", ChatClosed),
        ("404/10003", ChatClosed),
        ("403/40333", NotAccepted),
        ("down", MaybeSent),
        ("500/0", MaybeSent),
        ("502/0", MaybeSent),
        ("504/0", MaybeSent),
        ("unheard", MaybeSent),
        ("unanswered", MaybeSent),
        ("stored", MaybeSent),
        ("hang", MaybeSent),
    ],
)
async def test_each_failure_has_its_error(
    fake: FakeDiscord, api: DiscordApi, kind: str, error: type[Exception]
) -> None:
    """One try a call: whether it is tried again is the gateway's to decide."""
    fake.script(kind, "send", None, 1, 3.25)
    with pytest.raises(error) as caught:
        await api.send(post())
    if isinstance(caught.value, Throttled):
        assert caught.value.retry_after_s == (60 if kind == "banned" else 3.25)
        assert caught.value.whole_bot == (kind != "throttled")
    assert "hi" not in str(caught.value)
    assert len(fake.calls) == 1


async def test_nobody_there_is_not_accepted() -> None:
    """No connection, so nothing can have arrived."""
    api = DiscordApi("discord", TOKEN, "http://127.0.0.1:9", files_from=[], timeout_s=1.0)
    with pytest.raises(NotAccepted):
        await api.send(post())
    await api.close()


async def test_a_wrong_token_says_which_setting(fake: FakeDiscord) -> None:
    """Nothing but a person can mend it."""
    api = made(fake, "x" * 60)
    for call in (api.identify(), api.gateway_info(), api.send(post())):
        with pytest.raises(ChannelBroken, match=r"channels\.discord\.token"):
            await call
    await api.close()


async def test_we_know_who_we_are(api: DiscordApi) -> None:
    """By the token alone."""
    me = await api.identify()
    assert (me.id, me.username) == (BOT["id"], "shoal")


async def test_a_post_that_is_sent_again_is_there_once(fake: FakeDiscord, api: DiscordApi) -> None:
    """Its key decides, and not its text."""
    first = await api.send(post())
    assert await api.send(post()) == first
    assert await api.send(post(key="l")) != first
    assert len(fake.posts(ALONE)) == 2
    assert len(nonce("discord:" + "9" * 200)) <= 25


async def test_a_post_names_nobody_and_has_no_preview(fake: FakeDiscord, api: DiscordApi) -> None:
    """Whatever is in its text."""
    await api.send(post("@everyone https://pond.example"))
    [sent] = fake.posts(ALONE)
    assert (sent["allowed_mentions"], sent["flags"]) == ({"parse": []}, 4)


async def test_a_thread_is_written_to_as_a_channel(fake: FakeDiscord, api: DiscordApi) -> None:
    """And not the channel that it was begun in."""
    place = PostTarget(session="s", chat_id=CHANNEL, thread=THREAD)
    id = await api.send(post(place=place))
    await api.edit(id, post("other", place=place))
    await api.typing(place)
    assert [one["content"] for one in fake.posts(THREAD)] == ["other"]
    assert {channel for _, _, channel in fake.calls} == {THREAD}


@pytest.mark.parametrize(
    ("reply_to", "quoted"),
    [("123", "123"), ("123/1462015105796", "123"), ("press/123", None), ("pressed", None), (None, None)],
)
async def test_an_answer_names_its_message(
    fake: FakeDiscord, api: DiscordApi, reply_to: str | None, quoted: str | None
) -> None:
    """Edited ones by what they were; a press is no message. One that is gone costs no answer."""
    await api.send(post(reply_to=reply_to))
    wanted = None if quoted is None else {"message_id": quoted, "fail_if_not_exists": False}
    assert fake.posts(ALONE)[0]["message_reference"] == wanted


async def test_who_may_not_read_history_answers_without_a_quote(fake: FakeDiscord, api: DiscordApi) -> None:
    """Surely not accepted, so it is sent once more."""
    fake.script("400/160002", "send", None, 1, 0)
    await api.send(post(reply_to="123"))
    assert [one["message_reference"] for one in fake.posts(ALONE)] == [None]
    fake.script("400/160002", "send", None, 1, 0)
    with pytest.raises(PostRefused):
        await api.send(post(key="l"))


async def test_buttons_carry_what_they_say(fake: FakeDiscord, api: DiscordApi) -> None:
    """In rows of five; two may say the same; what is too long is on the button."""
    many = [Button("Yes", "/yes ab"), Button("Yes", "/yes ab"), Button("w" * 99, "w" * 99)]
    await api.send(post(buttons=(*many, *(Button(str(n), str(n)) for n in range(22)))))
    [sent] = fake.posts(ALONE)
    assert [len(row["components"]) for row in sent["components"]] == [5, 5, 5, 5, 5]
    first = sent["components"][0]["components"]
    assert [one["custom_id"] for one in first] == ["0:/yes ab", "1:/yes ab", "2:", "3:0", "4:1"]
    assert [len(one["label"]) for one in first] == [3, 3, 80, 1, 1]


async def test_an_edit_takes_the_buttons_away(fake: FakeDiscord, api: DiscordApi) -> None:
    """As it takes the text."""
    id = await api.send(post(buttons=(Button("Yes", "/yes"),)))
    await api.edit(id, post("done"))
    [sent] = fake.posts(ALONE)
    assert (sent["content"], sent["components"]) == ("done", [])


async def test_an_edit_of_what_is_gone_is_refused(api: DiscordApi) -> None:
    """The chat is not closed for it."""
    with pytest.raises(PostRefused):
        await api.edit("5", post())


async def test_files_come_whole_and_by_their_names(fake: FakeDiscord, api: DiscordApi) -> None:
    """Also by one with quotes in it; sent again they are there once."""
    id = await api.send(with_file('a "b".pdf', buttons=(Button("Yes", "/yes"),)))
    assert await api.send(with_file('a "b".pdf', buttons=(Button("Yes", "/yes"),))) == id
    [sent] = fake.posts(ALONE)
    assert (sent["file"], len(sent["components"])) == (b"abc", 1)


async def test_a_chat_in_which_files_are_forbidden_is_not_closed(fake: FakeDiscord, api: DiscordApi) -> None:
    """Text may pass."""
    fake.script("403/50013", "send", None, 1, 0)
    with pytest.raises(PostRefused):
        await api.send(with_file())


async def test_a_file_of_a_person_is_fetched_in_parts_and_only_from_discord(fake: FakeDiscord, api: DiscordApi) -> None:
    """Without our token, which those addresses need not know."""
    fake.files["1"] = b"x" * 200_000
    url = f"{fake.address}/attachments/1/a.txt?ex=1"
    assert b"".join([part async for part in api.fetch(RemoteFile(handle=url))]) == b"x" * 200_000
    others = ["http://127.0.0.1:9/a", url.replace("http:", "https:"), "file:///etc/passwd", "", "http://[", "\0"]
    for other in (*others, url.replace("127.0.0.1", "127.0.0.1.example"), fake.address + "0/a", fake.address + "@h/a"):
        with pytest.raises(PostRefused, match=r"channels\.discord\.files_from"):
            [part async for part in api.fetch(RemoteFile(handle=other))]
    with pytest.raises(PostRefused):
        [part async for part in api.fetch(RemoteFile(handle=f"{fake.address}/attachments/2/gone.txt"))]


async def test_a_channel_is_asked_what_it_is(api: DiscordApi) -> None:
    """A category is no chat; one that cannot be seen is taken as it is."""
    assert await api.get_conversation(CHANNEL) == ConversationInfo(CHANNEL)
    assert await api.get_conversation(THREAD) == ConversationInfo(CHANNEL, THREAD)
    assert await api.get_conversation("500000000000000008") == ConversationInfo("500000000000000008")


async def test_history_comes_oldest_first(fake: FakeDiscord, api: DiscordApi) -> None:
    """Page after page, whatever the order on a page is."""
    ids = [fake.message(ALONE, dict(BOT), str(number))["id"] for number in range(150)]
    first = await api.get_messages(ALONE, "0")
    second = await api.get_messages(ALONE, first[-1]["id"])
    assert [one["id"] for one in (*first, *second)] == ids
