"""The Web API through slack-sdk, against a server that says what Slack says."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from gateway.channels.slack.api import LOOK_BACK_S, SlackApi
from gateway.channels.slack.calls import AGAIN_S, map_error
from gateway.channels.slack.channel import ABILITIES
from gateway.platform.protocol import (
    Button,
    ChannelBroken,
    ChatClosed,
    MarkupRefused,
    MaybeSent,
    NotAccepted,
    Piece,
    Post,
    PostRefused,
    PostTarget,
    Throttled,
)
from tests.fakes.slack import BOT_TOKEN, FakeSlack
from tests.helpers.wait import call_s

PLACE = PostTarget(session="slack:D7", chat_id="D7")
THREAD = PostTarget(session="slack:C7%231695223200.000100", chat_id="C7", thread="1695223200.000100")


@pytest.fixture
async def fake() -> AsyncIterator[FakeSlack]:
    async with FakeSlack({"D7", "C7"}).serving() as server:
        yield server


@pytest.fixture
async def api(fake: FakeSlack, request: pytest.FixtureRequest) -> AsyncIterator[SlackApi]:
    made = SlackApi(BOT_TOKEN, fake.api, timeout_s=call_s(request))
    await made.open()
    yield made
    await made.close()


def post(text: str = "*hi*", *, key: str = "slack:D7:1:0", place: PostTarget = PLACE, **more: Any) -> Post:
    return Post(target=place, key=key, piece=Piece(text, "hi"), **more)


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
async def test_each_failure_has_its_error(fake: FakeSlack, api: SlackApi, kind: str, error: type[Exception]) -> None:
    """One try a call: whether it is made again is not the SDK's to decide."""
    fake.script(kind, "send", None, 1, 3.0)
    with pytest.raises(error) as caught:
        await api.send(post())
    if isinstance(caught.value, Throttled):
        assert (caught.value.retry_after_s, caught.value.whole_bot) == (3, False)
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ("ratelimited", 429, Throttled),
        ("", 429, Throttled),
        ("ratelimited", 200, Throttled),
        ("invalid_auth", 200, ChannelBroken),
        ("token_revoked", 200, ChannelBroken),
        ("account_inactive", 200, ChannelBroken),
        ("missing_scope", 200, ChannelBroken),
        ("channel_not_found", 200, ChatClosed),
        ("not_in_channel", 200, ChatClosed),
        ("is_archived", 200, ChatClosed),
        ("thread_not_found", 200, ChatClosed),
        ("invalid_blocks", 200, MarkupRefused),
        ("invalid_attachments", 200, MarkupRefused),
        ("msg_too_long", 200, PostRefused),
        ("no_text", 200, PostRefused),
        ("message_not_found", 200, PostRefused),
        ("something_new", 200, PostRefused),
        ("service_unavailable", 503, MaybeSent),
        ("", 503, MaybeSent),
        ("", 404, NotAccepted),
        ("", 200, MaybeSent),
        ("internal_error", 500, MaybeSent),
        ("fatal_error", 200, MaybeSent),
        ("", 502, MaybeSent),
        ({"a": 1}, 500, MaybeSent),
        ("<b>words of somebody</b>", 400, NotAccepted),
    ],
)
def test_each_error_of_slack_is_one_of_ours(error: object, status: int, kind: type[Exception]) -> None:
    """MaybeSent where Slack itself says that something may have been done."""
    found = map_error(error, status=status)
    assert type(found) is kind or (kind is ChannelBroken and isinstance(found, kind))
    assert "somebody" not in str(found)


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [("30", 30), ("0", 0.1), (None, AGAIN_S), ("soon", AGAIN_S), ("9" * 9, 3600)]
)
def test_how_long_to_wait_is_believed_within_reason(retry_after: str | None, seconds: float) -> None:
    """Retry-After is in seconds."""
    found = map_error("ratelimited", status=429, retry_after=retry_after)
    assert isinstance(found, Throttled)
    assert found.retry_after_s == seconds


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "fine"},
        {"text": "[]", "content_type": "application/json"},
        {"text": "{", "content_type": "application/json"},
        {"text": "<html>", "content_type": "text/html"},
        {"body": b"\x00\xff", "content_type": "application/gzip"},
        {"text": "{", "content_type": "application/json", "status": 500},
    ],
)
async def test_an_answer_that_is_not_slacks_is_unclear(fake: FakeSlack, api: SlackApi, answer: dict[str, Any]) -> None:
    """Something stands between: what it made of the post, nobody knows. Nothing of it is in the reason."""
    fake.answers["chat.postMessage"] = web.Response(**answer)
    with pytest.raises(MaybeSent) as caught:
        await api.send(post())
    assert not set("<[{") & set(caught.value.reason)


async def test_nobody_there_is_not_accepted() -> None:
    """No connection, so nothing can have arrived."""
    made = SlackApi(BOT_TOKEN, "http://127.0.0.1:9/api/", timeout_s=1.0)
    with pytest.raises(NotAccepted):
        await made.open()
    with pytest.raises(NotAccepted):
        await made.send(post())
    await made.close()


async def test_before_it_is_open_nothing_is_sent() -> None:
    """As if nobody were there."""
    with pytest.raises(NotAccepted):
        await SlackApi(BOT_TOKEN, "http://127.0.0.1:9/api/", timeout_s=1.0).send(post())


async def test_who_we_are(api: SlackApi) -> None:
    """By it our own words and mentions are known."""
    me = await api.open()
    assert (me.team_id, me.user_id, me.bot_id, me.name) == ("T0001", "U0SHOAL", "B0SHOAL", "shoal")


async def test_a_wrong_token_says_which_setting(fake: FakeSlack) -> None:
    """Nothing but a person can mend it."""
    made = SlackApi("xoxb-wrong-wrong-wrong", fake.api, timeout_s=1.0)
    with pytest.raises(ChannelBroken, match=r"invalid_auth.*channels\.slack\.token"):
        await made.open()
    await made.close()


async def test_a_bot_that_may_not_write_says_so_at_once(fake: FakeSlack, api: SlackApi) -> None:
    """Before anybody waits for an answer."""
    fake.scopes = "im:history,files:read"
    with pytest.raises(ChannelBroken, match="chat:write"):
        await api.open()


async def test_a_token_of_a_person_is_none(fake: FakeSlack, api: SlackApi) -> None:
    """It would write in their name."""
    identity = {"ok": True, "team_id": "T1", "user_id": "U1", "user": "anna"}
    fake.answers["auth.test"] = web.json_response(identity)
    with pytest.raises(ChannelBroken, match="bot"):
        await api.open()


async def test_a_post_is_in_its_thread_and_shows_no_pages(fake: FakeSlack, api: SlackApi) -> None:
    """Slack fetches no address for us, and reads marks only where they are meant."""
    id = await api.send(post(place=THREAD))
    await api.send(post(place=THREAD, key="k", as_plain=True))
    first, second = fake.posts["C7"]
    assert (first["ts"], first["thread_ts"], first["text"], first["mrkdwn"]) == (id, THREAD.thread, "*hi*", True)
    assert (second["text"], second["mrkdwn"]) == ("hi", False)


async def test_buttons_stand_beside_the_text(fake: FakeSlack, api: SlackApi) -> None:
    """An edit without them takes them away; refused once, they are words."""
    buttons = (Button("Yes", "/yes ab"), Button("x" * 90, "<no>"))
    id = await api.send(post(buttons=buttons))
    [posted_message] = fake.posts["D7"]
    [row] = posted_message["attachments"][0]["blocks"]
    assert [(one["text"]["text"], one["value"]) for one in row["elements"]] == [("Yes", "/yes ab"), ("x" * 75, "<no>")]
    await api.edit(id, post("other"))
    assert (posted_message["attachments"], posted_message["text"]) == ([], "other")
    await api.edit(id, post(buttons=buttons, as_plain=True))
    assert (posted_message["attachments"], posted_message["text"]) == ([], "hi\n\n- /yes ab\n- &lt;no&gt;")


async def test_a_message_that_is_gone_cannot_be_edited(api: SlackApi) -> None:
    """It is refused, so that the text gets a message of its own."""
    with pytest.raises(PostRefused):
        await api.edit("1.000001", post())


async def test_edits_rest_when_slack_has_had_enough_of_them(fake: FakeSlack, api: SlackApi) -> None:
    """All edits of a workspace have one budget; new messages have another."""
    id = await api.send(post())
    fake.script("throttled", "edit", None, 1, 30.0)
    for _ in range(3):
        with pytest.raises(Throttled) as caught:
            await api.edit(id, post("more"))
        assert 29 < caught.value.retry_after_s <= 30
    assert fake.methods.count("chat.update") == 1
    await api.send(post(key="another"))


@pytest.mark.parametrize("place", [PLACE, THREAD])
async def test_a_post_is_found_by_its_key(fake: FakeSlack, api: SlackApi, place: PostTarget) -> None:
    """Wherever it is, however much was said since; its key itself is not shown to other apps."""
    id = await api.send(post(place=place))
    for number in range(450):
        fake.posts[place.chat_id].append(
            {**fake.posts[place.chat_id][0], "metadata": None, "ts": f"{fake.ts()}{number}"}
        )
    assert await api.find_post(post(place=place)) == id
    assert await api.find_post(post(place=place, key="another")) is None
    assert "slack:D7:1:0" not in str(fake.posts)


async def test_a_post_is_looked_for_where_it_was_sent(fake: FakeSlack, api: SlackApi) -> None:
    """Not in the channel above its thread."""
    await api.send(post(place=THREAD))
    assert await api.find_post(post(place=PostTarget(session="slack:C7", chat_id="C7"))) is None


async def test_what_another_app_marked_is_not_ours(fake: FakeSlack, api: SlackApi) -> None:
    """Or it could keep our answers from being sent."""
    await api.send(post())
    fake.posts["D7"][0] |= {"user": "U777", "bot_id": "B777"}
    assert await api.find_post(post()) is None


async def test_a_look_that_fails_leaves_it_open(fake: FakeSlack, api: SlackApi) -> None:
    """Never is a post sent twice because nobody could look."""
    no = {"ok": False, "error": "missing_scope", "needed": "im:history"}
    fake.answers["conversations.history"] = web.json_response(no)
    with pytest.raises(NotAccepted, match="im:history"):
        await api.find_post(post())
    fake.answers["conversations.history"] = web.json_response({"ok": False, "error": "ratelimited"}, status=429)
    with pytest.raises(Throttled):
        await api.find_post(post())


async def test_the_texts_of_messages_are_in_no_log(
    fake: FakeSlack, api: SlackApi, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK would write every call into it."""
    with caplog.at_level(logging.DEBUG):
        await api.send(post("canary"))
        fake.script("refused", "send", None, 1, 0)
        with pytest.raises(PostRefused) as caught:
            await api.send(post("canary"))
    assert "canary" not in caplog.text + str(caught.value)
    assert BOT_TOKEN not in caplog.text


def test_no_post_is_tried_for_longer_than_is_looked_back() -> None:
    """Or an old one would be sent again."""
    assert ABILITIES.give_up_after_s < LOOK_BACK_S
