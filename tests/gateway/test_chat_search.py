"""Search in one's chats over the socket, and their export over HTTP."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest

from shared.messages.codec import encode
from shared.messages.outbound import UserLine
from shared.store import keys
from shared.store.sessions.log_pages import LogPages
from tests.gateway.harness import TOKENS, Client, Frame, Gateway, client, gateway, session_of, worker


@pytest.fixture
async def gw(redis_url: str) -> AsyncIterator[Gateway]:
    async with gateway(redis_url) as running:
        yield running


async def search(person: Client, text: str) -> Frame:
    await person.send("search", text=text)
    return await person.next("found")


async def test_chats_are_found_by_title_and_text_in_any_case(gw: Gateway, redis_url: str) -> None:
    """The latest first, with a piece of the newest line that has the text; answers are searched, too."""
    async with client(gw.address) as owner, worker(redis_url) as made:
        await owner.say("a", "Where do OTTERS sleep?")
        await owner.say("b", "Seals")
        await owner.say("b", "and the straße to the sea")
        await made.run_once()
        assert [row["chat"] for row in (await search(owner, "otters"))["chats"]] == ["a"]
        [row] = (await search(owner, "STRASSE"))["chats"]
        assert (row["title"], row["excerpt"]) == ("Seals", "and the straße to the sea")
        assert len((await search(owner, "you said"))["chats"]) == 2
        assert (await search(owner, "nowhere")) == {"type": "found", "text": "nowhere", "chats": [], "whole": True}
        await owner.send("search", text="  ")
        assert (await owner.next("error"))["code"] == "empty"


async def test_old_lines_are_found_and_other_peoples_and_deleted_chats_are_not(gw: Gateway) -> None:
    """A line in a page is a line."""
    async with client(gw.address) as owner, client(gw.address, TOKENS["ann"]) as ann:
        await owner.say("long", "the needle")
        await fill(gw, "long", 900)
        assert [row["seq"] for row in (await search(owner, "needle"))["chats"]] == [0]  # its title
        assert [row["seq"] for row in (await search(owner, "line 7 of"))["chats"]] == [7]
        assert (await search(ann, "needle"))["chats"] == []
        await owner.send("delete", chat="long")
        await owner.next("deleted")
        assert (await search(owner, "needle"))["chats"] == []


async def test_a_chat_is_exported_whole_as_markdown_and_json(gw: Gateway) -> None:
    """From its first line, with those in pages, to nobody but its person."""
    async with client(gw.address) as owner:
        await owner.say("long", "the needle")
    await fill(gw, "long", 900)
    status, body, kind = await get(gw, "/export/long?format=json")
    lines = json.loads(body)["lines"]
    assert (status, kind, len(lines)) == (200, "application/json", 900)
    assert [line["seq"] for line in lines] == list(range(1, 901))
    assert (lines[0]["from"], lines[0]["kind"], lines[0]["text"]) == ("person", "message", "the needle")
    status, body, kind = await get(gw, "/export/long?format=md")
    assert (status, kind) == (200, "text/markdown; charset=utf-8")
    assert body.startswith(b"# the needle\n\n## You, ")
    assert b"line 899 " in body
    assert (await get(gw, "/export/long", TOKENS["ann"]))[0] == 404
    assert (await get(gw, "/export/long", "wrong"))[0] == 401
    assert (await get(gw, "/export/long?format=exe"))[0] == 404


async def test_an_export_shows_where_a_conversation_ended(gw: Gateway) -> None:
    """A rule below the answer to `/new`, and no other command's."""
    async with client(gw.address) as owner:
        await owner.say("a", "hello")
        await owner.say("a", "/help")
        await owner.say("a", "/new")
        await owner.say("a", "hello again")
    _, body, _ = await get(gw, "/export/a?format=json")
    lines = json.loads(body)["lines"]
    [ended] = [line for line in lines if line.get("ended")]
    assert ended["text"].startswith("New conversation.")
    _, body, _ = await get(gw, "/export/a?format=md")
    before, rule, after = body.partition(b"\n\n---\n\n*New conversation*\n\n")
    assert rule
    assert before.count(b"New conversation") == 1
    assert b"hello again" in after


async def fill(gw: Gateway, chat: str, lines: int) -> None:
    """Lines up to a number; all but the newest 500 go to pages."""
    session = session_of(chat)
    records = [encode(UserLine(id=f"x{seq}", text=f"line {seq} of many", at=seq)) for seq in range(2, lines + 1)]
    await gw.client.pipeline(
        [("XADD", keys.outbox(session), f"{seq}-0", "m", record) for seq, record in enumerate(records, 2)]
    )
    await gw.client.command("HSET", keys.session(session), "log", lines)
    await LogPages(gw.client).page_out(session, cap_bytes=1 << 24, keep_ms=86_400_000)


async def get(gw: Gateway, path: str, token: str = TOKENS["owner"]) -> tuple[int, bytes, str]:
    request = urllib.request.Request(f"http://{gw.address}{path}", headers={"Authorization": f"Bearer {token}"})

    def ask() -> tuple[int, bytes, str]:
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read(), answer.headers["content-type"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), error.headers["content-type"]

    return await asyncio.to_thread(ask)
