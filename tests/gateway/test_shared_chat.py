"""A link to a chat: everybody reads what was said until it was made, and nothing else; it ends in many ways."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.clock import SYSTEM_CLOCK
from shared.media.store import MediaStore
from shared.messages.codec import encode
from shared.messages.outbound import Approval, OutboundMessage, UserLine
from shared.settings import MediaSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.schedules.agenda import Agenda
from shared.store.sessions.erase import erase_deleted_chat
from shared.store.sessions.shares import Shares
from tests.gateway.harness import TOKENS, Client, Gateway, client, gateway, session_of
from tests.gateway.test_about import ask
from tests.helpers.media_files import png

SESSION = session_of("a")


@pytest.fixture
async def gw(redis_url: str, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(redis_url, media=MediaSettings(dir=tmp_path)) as running:
        yield running


@pytest.fixture
async def owner(gw: Gateway) -> AsyncIterator[Client]:
    async with client(gw.address) as person:
        await person.say("a", "What do <otters> eat?")
        yield person


async def get(gw: Gateway, path: str) -> tuple[int, str, dict[str, str]]:
    """Ask as anybody does: without a token."""

    def call() -> tuple[int, str, dict[str, str]]:
        try:
            with urllib.request.urlopen(f"http://{gw.address}{path}") as answer:
                return answer.status, answer.read().decode(errors="replace"), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), dict(error.headers)

    return await asyncio.to_thread(call)


async def say(store: RedisClient, *lines: OutboundMessage | UserLine) -> None:
    """Add lines to the log, as workers and gateways do."""
    for line in lines:
        seq = await store.command("HINCRBY", keys.session(SESSION), "log", 1)
        await store.command("XADD", keys.outbox(SESSION), f"{seq}-0", "m", encode(line))


async def link(gw: Gateway) -> str:
    status, about = await ask(gw, "a/share", method="POST")
    assert status == 200
    path: str = about["share"]["path"]
    return path


async def test_everybody_reads_the_conversation_and_nothing_else(gw: Gateway, owner: Client) -> None:
    """Rendered safely, without commands, questions, apologies and what `/retry` replaced; no search engine lists it."""
    question = Approval(id="q", state="open", tool="exec", arguments="rm -rf /", digest="d")
    await say(
        gw.client,
        OutboundMessage(content="**Fish** <script>alert(1)</script>", turn=1),
        UserLine(id="c", text="/memory"),
        OutboundMessage(content="remembered things", turn=0, kind="command"),
        OutboundMessage(content="May I?", turn=2, kind="notice", approval=question),
        OutboundMessage(content="Sorry (reference 1234)", turn=2, kind="apology"),
        UserLine(id="m3", text="bad question"),
        OutboundMessage(content="bad answer", turn=3, in_reply_to=("m3",)),
        UserLine(id="m4", text="good question", replaces=3),
    )
    path = await link(gw)
    await say(gw.client, OutboundMessage(content="later words", turn=4))
    status, page, headers = await get(gw, path)
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert "noindex" in headers["x-robots-tag"]
    assert "no-store" in headers["cache-control"]
    for shown in ("What do &lt;otters&gt; eat?", "<strong>Fish</strong>", "good question"):
        assert shown in page
    for hidden in (
        "<script>alert",
        "/memory",
        "remembered",
        "May I?",
        "rm -rf",
        "reference",
        "bad ",
        "later words",
        "owner",
    ):
        assert hidden not in page


async def test_files_of_shown_lines_come_along_and_no_others(gw: Gateway, owner: Client, tmp_path: Path) -> None:
    """A picture is shown in the page."""
    store = MediaStore(MediaSettings(dir=tmp_path))
    shown, other = store.put(SESSION, png(), "otter.png"), store.put(SESSION, b"secret", "notes.txt")
    await say(gw.client, OutboundMessage(content="Look:", turn=1, media=(str(shown),)))
    path = await link(gw)
    _, page, _ = await get(gw, path)
    assert f'<img src="{path}/{shown.file}" alt="otter.png"' in page
    status, _, headers = await get(gw, f"{path}/{shown.file}")
    assert (status, headers["content-type"]) == (200, "image/png")
    for name in (other.file, "x.png", "..%2F..%2Fetc"):
        assert (await get(gw, f"{path}/{name}"))[0] == 404


async def test_a_link_ends_and_is_renewed(gw: Gateway, owner: Client) -> None:
    """By its person; the new one leads to the chat as it is then, the old one nowhere."""
    first = await link(gw)
    await say(gw.client, OutboundMessage(content="later words", turn=1))
    second = await link(gw)
    assert (await get(gw, first))[0] == 404
    assert "later words" in (await get(gw, second))[1]
    _, about = await ask(gw, "a")
    assert (about["share"]["path"], about["share"]["days"]) == (second, 30)
    status, about = await ask(gw, "a/share", method="DELETE")
    assert (status, about["share"]) == (200, {"days": 30})
    ended = await get(gw, second)
    assert ended[0] == 404
    assert ended[1] == (await get(gw, "/s/" + "x" * 22))[1], "an ended link and one that never was have one answer"
    audit = await gw.client.command("XRANGE", keys.AUDIT, "-", "+")
    found = [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in audit]
    assert [one[b"outcome"] for one in found if one[b"kind"] == b"share"] == [b"made", b"made", b"ended"]


@pytest.mark.parametrize("how", ["delete", "erase", "forget", "expire", "lost"])
async def test_it_ends_with_the_chat_and_with_time(
    gw: Gateway, owner: Client, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted, though that may still be undone; erased, and begun anew under the same name; forgotten; too old."""
    path = await link(gw)
    assert (await get(gw, path))[0] == 200
    match how:
        case "delete":
            await owner.send("delete", chat="a")
            await owner.next("deleted")
        case "erase":
            await owner.send("delete", chat="a")
            await owner.next("deleted")
            due = await Agenda(gw.client, keys.EPHEMERAL).find(SESSION)
            assert due is not None
            assert await erase_deleted_chat(gw.client, due)
            await owner.say("a", "Hello again")
        case "forget":
            await owner.say("a", "/forget")
        case "expire":
            now_ms = SYSTEM_CLOCK.now_ms() + 31 * 86_400_000
            monkeypatch.setattr(SYSTEM_CLOCK, "now_ms", lambda: now_ms)
        case "lost":
            await gw.client.command("DEL", keys.share(path.removeprefix("/s/")))
    assert (await get(gw, path))[0] == 404


async def test_only_its_person_makes_and_ends_one(gw: Gateway, owner: Client) -> None:
    path = await link(gw)
    for method in ("POST", "DELETE"):
        assert (await ask(gw, "a/share", method=method, token=TOKENS["ann"]))[0] == 404
        assert (await ask(gw, "a/share", method=method, token="wrong"))[0] == 401
        assert (await ask(gw, "none/share", method=method))[0] == 404
    assert (await get(gw, path))[0] == 200


async def test_an_operator_turns_sharing_off_for_old_links_too(gw: Gateway, owner: Client) -> None:
    path = await link(gw)
    off = Shares(gw.client, days=0)
    assert await off.of_id(path.removeprefix("/s/")) is None
    assert await off.of_session(SESSION) is None


@pytest.mark.parametrize("record", [b"", b"x", b"id 1", b"id one 2", b"id 1 2 3", b"\xff 1 9999999999999"])
async def test_a_damaged_record_is_no_link(client: RedisClient, record: bytes) -> None:
    await client.command("HSET", keys.session(SESSION), "share", record)
    await client.command("SET", keys.share("id"), SESSION)
    assert await Shares(client, days=30).of_id("id") is None
