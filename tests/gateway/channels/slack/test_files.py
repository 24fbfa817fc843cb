"""Files that come and go; the token is seen by Slack alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from gateway.channels.slack.api import SlackApi
from gateway.channels.slack.calls import SlackWebApi
from gateway.platform.protocol import (
    Button,
    File,
    MaybeSent,
    NotAccepted,
    Post,
    PostRefused,
    PostTarget,
    RemoteFile,
    Throttled,
)
from tests.fakes.slack import BOT_TOKEN, FakeSlack

PLACE = PostTarget(session="slack:C7%231695223200.000100", chat_id="C7", thread="1695223200.000100")


@pytest.fixture
async def fake() -> AsyncIterator[FakeSlack]:
    async with FakeSlack({"C7"}).serving() as server:
        yield server


@pytest.fixture
async def api(fake: FakeSlack) -> AsyncIterator[SlackApi]:
    made = SlackApi(BOT_TOKEN, fake.api, timeout_s=1.0)
    await made.open()
    yield made
    await made.close()


def post(**more: Any) -> Post:
    file = File(reference="r", name="pond <1>.txt", media_type="text/plain", size_bytes=4, data=b"deep")
    return Post(target=PLACE, key="slack:C7:1:1", file=file, **more)


async def fetched(api: SlackApi, handle: str, media_type: str = "") -> bytes:
    return b"".join([part async for part in api.fetch(RemoteFile(handle=handle, media_type=media_type))])


async def test_a_file_is_shown_in_its_thread_with_its_name(fake: FakeSlack, api: SlackApi) -> None:
    """Three calls: an address, the bytes, the message."""
    id = await api.send(post())
    [posted_message] = fake.posts["C7"]
    assert (posted_message["_file"], posted_message["thread_ts"]) == (b"deep", PLACE.thread)
    assert [(file["id"], file["name"]) for file in posted_message["files"]] == [(id, "pond <1>.txt")]
    assert [block["text"]["text"] for block in posted_message["blocks"]] == ["pond <1>.txt"]


async def test_a_file_is_found_again_by_its_key(fake: FakeSlack, api: SlackApi) -> None:
    """Its message has no metadata, but a block of its own."""
    assert await api.find_post(post()) is None
    fake.script("unanswered", "send", None, 1, 0)
    with pytest.raises(MaybeSent):
        await api.send(post())
    assert await api.find_post(post()) == fake.posts["C7"][0]["ts"]


async def test_buttons_of_a_file_are_below_its_name(fake: FakeSlack, api: SlackApi) -> None:
    """Refused once, they are words."""
    buttons = (Button("Yes", "/yes ab"),)
    await api.send(post(buttons=buttons))
    await api.send(post(buttons=buttons, as_plain=True))
    first, second = (posted_message["blocks"] for posted_message in fake.posts["C7"])
    assert [block["type"] for block in first] == ["section", "actions"]
    assert [block["text"]["text"] for block in second] == ["pond <1>.txt\n- /yes ab"]


@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "files.completeUploadExternal"])
async def test_a_bot_that_may_not_upload_loses_the_file_alone(fake: FakeSlack, api: SlackApi, method: str) -> None:
    """Everything else works without that scope; the dead letter names it."""
    fake.answers[method] = web.json_response({"ok": False, "error": "missing_scope", "needed": "files:write"})
    with pytest.raises(PostRefused, match="files:write"):
        await api.send(post())


async def test_before_the_last_call_nothing_was_shown(fake: FakeSlack, api: SlackApi) -> None:
    """So it is surely not there, and can be sent again without a look."""
    fake.answers["files.getUploadURLExternal"] = web.Response(status=500)
    with pytest.raises(NotAccepted):
        await api.send(post())
    for url in ("http://127.0.0.1:9/up", f"{fake.address}/upload/v1/none"):
        answer = {"ok": True, "upload_url": url, "file_id": "F1"}
        fake.answers["files.getUploadURLExternal"] = web.json_response(answer)
        with pytest.raises((NotAccepted, PostRefused)):
            await api.send(post())
    fake.answers["files.getUploadURLExternal"] = web.json_response({"ok": False, "error": "ratelimited"}, status=429)
    with pytest.raises(Throttled):
        await api.send(post())
    assert fake.posts == {}


async def test_a_file_of_a_person_is_fetched_in_parts(fake: FakeSlack, api: SlackApi) -> None:
    """By its address, or by its id where Slack tells no address."""
    fake.files["F1"] = b"x" * 200_000
    assert await fetched(api, fake.file_url("F1")) == b"x" * 200_000
    assert await fetched(api, "F1") == b"x" * 200_000
    assert [token for _, token in fake.fetched] == [f"Bearer {BOT_TOKEN}"] * 2


@pytest.mark.parametrize("handle", ["F404", "files-pri/T0001-F404/x"])
async def test_a_file_that_is_gone_is_refused(fake: FakeSlack, api: SlackApi, handle: str) -> None:
    """The person is told so."""
    with pytest.raises(PostRefused):
        await fetched(api, f"{fake.address}/{handle}" if "/" in handle else handle)


async def test_a_page_to_log_in_is_no_file(fake: FakeSlack) -> None:
    """Slack sends who may not read a file there; no redirect is followed with the token, or at all."""
    made = SlackApi("xoxb-another-another", fake.api, timeout_s=1.0)
    fake.answers["auth.test"] = web.json_response({"ok": True, "team_id": "T", "user_id": "U", "bot_id": "B"})
    await made.open()
    fake.files["F1"] = b"secret"
    with pytest.raises(PostRefused, match="files:read"):
        await fetched(made, fake.file_url("F1"))
    await made.close()


async def test_a_page_in_the_place_of_a_file_is_refused(fake: FakeSlack, api: SlackApi) -> None:
    """With status 200, too; a page that somebody sent is a file."""
    fake.answers["page"] = web.Response(text="<html>", content_type="text/html")
    with pytest.raises(PostRefused, match="files:read"):
        await fetched(api, f"{fake.api}page", "image/png")
    fake.answers["page"] = web.Response(text="<html>", content_type="text/html")
    assert await fetched(api, f"{fake.api}page", "text/html") == b"<html>"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_file_may_come_later(fake: FakeSlack, api: SlackApi, status: int) -> None:
    """The platform is out of order, the file is not."""
    fake.answers["page"] = web.Response(status=status)
    with pytest.raises(NotAccepted):
        await fetched(api, f"{fake.api}page")


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/files-pri/T1-F1/x",
        "http://files.slack.com/files-pri/T1-F1/x",
        "https://files.slack.com.example.org/x",
        "https://files.slack.com@example.org/x",
        "https://files.slack.com:8443/x",
        "https://files.slack.com\\@example.org/x",
        "https://files.slack.com",
        "HTTPS://FILES.SLACK.COM/x",
        "//files.slack.com/x",
        "file:///etc/passwd",
        "http://169.254.169.254/latest",
    ],
)
async def test_the_token_goes_to_slack_alone(api: SlackApi, url: str) -> None:
    """An address is text that somebody sent."""
    with pytest.raises(PostRefused):
        await fetched(api, url if "://" in url else f"x://{url}")


async def test_the_real_addresses_are_slacks() -> None:
    """Of the API and of files, with the settings as they stand."""
    calls = SlackWebApi(BOT_TOKEN, "https://slack.com/api/", timeout_s=1.0)
    for url in ("https://files.slack.com/files-pri/T1-F1/download/x", "https://slack.com/api/x"):
        assert calls.may_have_token(url)
    await calls.http.close()
