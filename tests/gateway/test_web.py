"""The web socket from outside: a real server, a real Valkey, a real client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.channels.web.http.auth import Principals
from gateway.channels.web.socket.frame_handler import FrameLimits
from gateway.channels.web.socket.socket import FLOOD, SocketLimits
from shared.embedded import EmbeddedValkey
from shared.messages.inbound import TIMEZONE, decode_inbound
from shared.messages.live import DeltaEvent, ProgressEvent
from shared.messages.outbound import UserLine
from shared.metrics import REGISTRY
from shared.process.http_connection import LIMITS_S
from shared.store import keys
from shared.store.delivery.fanout import publish
from tests.gateway.harness import TOKENS, Gateway, client, gateway, session_of, stranger, worker
from tests.gateway.test_protocol import BAD
from tests.helpers.build import message
from tests.helpers.valkey import command
from tests.helpers.wait import eventually


@pytest.fixture
async def gw(redis_url: str) -> AsyncIterator[Gateway]:
    async with gateway(redis_url) as running:
        yield running


# Saying hello


async def test_hello_with_a_token_is_welcomed_by_name(gw: Gateway) -> None:
    """The client learns who it is, which release it talks to, and which commands there are."""
    async with stranger(gw.address) as ann:
        await ann.send("hello", token=TOKENS["ann"])
        welcome = await ann.next("welcome")
        commands = {command["name"]: command["about"] for command in welcome.pop("commands")}
        off = {"first_run": False, "kill": False, "presets": []}
        limits = {
            "files": 4,
            "file_bytes": 10 * 1024 * 1024,
            **off,
            "features": ["chats", "search", "export", "about", "feed", "branch", "rate", "settings"],
        }
        assert welcome == {"type": "welcome", "principal": "ann", "version": "0.2.0"} | limits
        assert set(commands) >= {"help", "new", "stop", "status", "model", "memory", "forget"}
        assert all(commands.values())


@pytest.mark.parametrize(
    "first",
    [
        {"type": "hello", "token": "wrong"},
        {"type": "hello", "token": ""},
        {"type": "chats"},
        {"type": "message", "id": "m", "chat": "a", "text": "hi"},
    ],
)
async def test_who_shows_no_valid_token_first_is_sent_away(gw: Gateway, first: dict[str, str]) -> None:
    """`not_allowed`, close 4401, and nothing happened."""
    async with stranger(gw.address) as nobody:
        await nobody.raw(json.dumps(first))
        assert (await nobody.next("error"))["code"] == "not_allowed"
        assert await nobody.closed() == 4401
    assert await gw.client.command("DBSIZE") == 0


async def test_a_token_in_the_address_opens_nothing(gw: Gateway) -> None:
    """Addresses end up in logs and histories."""
    async with stranger(gw.address, path=f"/ws?token={TOKENS['owner']}") as nobody:
        await nobody.send("chats")
        assert await nobody.closed() == 4401


async def test_who_says_nothing_is_closed(redis_url: str) -> None:
    """An idle stranger holds no connection."""
    async with gateway(redis_url, socket_limits=SocketLimits(hello_s=0.1)) as gw, stranger(gw.address) as nobody:
        assert await nobody.closed() == 4401


@pytest.mark.parametrize(
    "first", ["{", b"bytes", '{"type":"hello","token":"' + "x" * 5000 + '"}'], ids=["", "bytes", "long"]
)
async def test_a_stranger_gets_one_try(gw: Gateway, first: str | bytes) -> None:
    """Nobody keeps a gateway busy without a token: an error that says why, then the end."""
    async with stranger(gw.address) as nobody:
        await nobody.raw(first)
        assert (await nobody.next("error"))["code"] == "bad_frame"
        assert await nobody.closed() == 4401


async def test_a_rotated_token_is_refused_on_the_next_frame_of_an_open_socket(redis_url: str, tmp_path: Path) -> None:
    """Also for who is in already."""
    file = tmp_path / "token"
    file.write_text("first")
    async with gateway(redis_url, principals=Principals({}, {"owner": file})) as gw:
        async with client(gw.address, "first") as old:
            (tmp_path / "new").write_text("second")
            os.replace(tmp_path / "new", file)
            await old.send("message", id="m1", chat="a", text="hi")
            assert (await old.next("error"))["code"] == "not_allowed"
            assert await old.closed() == 4401
        async with client(gw.address, "second") as new:
            assert (await new.say("a", "hi"))["turn"] == 1


async def test_a_rotated_token_ends_a_socket_that_only_listens(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who lost the right to read must not go on reading."""
    monkeypatch.setattr("gateway.channels.web.channel.TOKENS_EVERY_S", 0.1)
    file = tmp_path / "token"
    file.write_text("first")
    async with gateway(redis_url, principals=Principals({}, {"owner": file})) as gw:
        async with client(gw.address, "first") as old:
            (tmp_path / "new").write_text("second")
            os.replace(tmp_path / "new", file)
            assert await old.closed() == 4401


async def test_a_page_of_another_host_is_refused_at_the_handshake(redis_url: str) -> None:
    """403, before anything is said; programs without an Origin, this host and allowed origins come in."""
    async with gateway(redis_url, allowed_origins=("https://chat.example.org",)) as gw:
        with pytest.raises(InvalidStatus) as refused:
            async with stranger(gw.address, origin="https://evil.example.org"):
                pass
        assert refused.value.response.status_code == 403
        assert refused.value.response.headers["content-type"] == "application/problem+json"
        for origin in (None, f"http://{gw.address}", "https://chat.example.org"):
            async with client(gw.address, origin=origin):
                pass


# Bad input


async def test_every_bad_frame_gets_an_error_and_the_socket_stays_open(gw: Gateway) -> None:
    """No input from outside ends the conversation, let alone the gateway."""
    async with client(gw.address) as bad, client(gw.address) as other:
        for name, (raw, code) in BAD.items():
            await bad.raw(raw)
            assert (await bad.next("error"))["code"] == code, name
        await bad.raw(b"\x00\xff")
        assert (await bad.next("error"))["code"] == "bad_frame"
        await bad.send("hello", token=TOKENS["owner"])
        assert (await bad.next("error"))["code"] == "bad_frame"
        for frame, code in (
            ({"type": "withdraw", "id": "m"}, "not_found"),
            ({"type": "approve", "chat": "a", "call": "c", "yes": True}, "approval_unknown"),
        ):
            await bad.raw(json.dumps(frame))
            assert (await bad.next("error"))["code"] == code
        assert (await bad.say("a", "still here"))["turn"] == 1
        assert [frame["type"] for frame in other.seen] == ["welcome"]


async def test_an_error_names_the_message_it_is_about(gw: Gateway) -> None:
    """The page marks that message and no other."""
    async with client(gw.address) as me:
        await me.send("message", id="m1", chat="a", text="  ")
        error = await me.next("error")
        assert (error["code"], error["id"], error["chat"]) == ("empty", "m1", "a")


async def test_a_megabyte_of_text_is_refused_with_the_number(gw: Gateway) -> None:
    """The person learns the limit instead of losing the connection."""
    async with client(gw.address) as me:
        await me.send("message", id="m1", chat="a", text="x" * 1_000_000)
        error = await me.next("error")
        assert (error["code"], error["id"]) == ("too_big", "m1")
        assert "65,536" in error["message"]
        assert (await me.say("a", "x" * 65_536))["turn"] == 1


async def test_a_frame_over_two_megabytes_ends_the_socket(gw: Gateway) -> None:
    """1009, and the gateway goes on."""
    async with client(gw.address) as me:
        await me.send("message", id="m1", chat="a", text="x" * 2_200_000)
        assert await me.closed() == 1009
    async with client(gw.address) as me:
        await me.say("a", "hi")


async def test_a_client_that_sends_too_fast_is_asked_to_wait(redis_url: str) -> None:
    """`rate_limited` with a time, for this socket alone; nothing of the refused ones is stored."""
    limits = SocketLimits(messages_burst=3, messages_per_s=0.1)
    async with gateway(redis_url, socket_limits=limits) as gw, client(gw.address) as fast, client(gw.address) as other:
        for n in range(5):
            await fast.send("message", id=f"m{n}", chat="a", text="hi")
        errors = [await fast.next("error"), await fast.next("error")]
        assert {error["code"] for error in errors} == {"rate_limited"}
        assert {error["id"] for error in errors} == {"m3", "m4"}
        assert all(0 < error["retry_after"] <= 20 for error in errors)
        await fast.shown("a", 3)
        assert (await other.say("a", "me too"))["turn"] == 4


async def test_whoever_says_far_too_much_loses_the_socket(redis_url: str) -> None:
    """To refuse a frame takes longer than to send it: a thousand too many in a row end with 1013, and nobody else
    waits."""
    limits = SocketLimits(frames_burst=5, frames_per_s=0.1)
    async with gateway(redis_url, socket_limits=limits) as gw, client(gw.address) as fast, client(gw.address) as other:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(2 * FLOOD):
                await fast.raw("{}")
        assert await fast.closed() == 1013
        assert len(fast.seen) <= FLOOD + 10
        assert (await other.say("a", "hi"))["turn"] == 1


# Messages


async def test_a_message_is_accepted_only_when_it_is_durable(gw: Gateway) -> None:
    """What is in the inbox when `accepted` comes is the message itself; the title and the log have it too."""
    async with client(gw.address) as me:
        accepted = await me.say("a", "hello there", id="m1")
        assert accepted == {"type": "accepted", "id": "m1", "chat": "a", "ahead": 0, "turn": 1}
        assert await gw.client.command("XLEN", keys.inbox(session_of("a"))) == 1
        second = await me.say("a", "and more")
        assert (second["turn"], second["ahead"]) == (2, 1)
        await me.shown("a", 2)
        assert [line["text"] for line in me.lines("a")] == ["hello there", "and more"]


async def test_the_same_id_again_gets_the_same_answer_and_no_second_turn(gw: Gateway, redis_url: str) -> None:
    """A client that lost the answer asks again, even when the reply is there already; then it is shown the reply."""
    async with client(gw.address) as me, worker(redis_url) as w:
        first = await me.say("a", "hello", id="m1")
        await w.run_once()
        await me.next("reply")
        async with client(gw.address) as again:
            assert await again.say("a", "hello", id="m1") == first
            await again.shown("a", 2)
            assert again.lines("a")[1]["in_reply_to"] == ["m1"]
            assert again.seqs("a") == [1, 2]
        assert await w.run_once() == 0


async def test_the_same_id_in_another_chat_is_another_message(gw: Gateway) -> None:
    """Ids belong to a chat."""
    async with client(gw.address) as me:
        await me.say("a", "hello", id="m1")
        assert (await me.say("b", "hello", id="m1"))["turn"] == 1


async def test_messages_of_one_socket_are_accepted_in_the_order_they_were_sent(gw: Gateway, redis_url: str) -> None:
    """Sent without waiting, answered in order."""
    async with client(gw.address) as me, worker(redis_url) as w:
        for n in range(40):
            await me.send("message", id=f"m{n}", chat="a", text=f"text {n}")
        await me.next("accepted", id="m39")
        assert [f["turn"] for f in me.seen if f["type"] == "accepted"] == list(range(1, 41))
        while await w.run_once():
            pass
        await me.next("reply", turn=40)
        replies = [line for line in me.lines("a") if line["type"] == "reply"]
        assert [line["text"] for line in replies] == [f"you said: text {n}" for n in range(40)]
        assert me.seqs("a") == list(range(1, 81))


async def test_a_full_inbox_is_refused_with_a_time_to_wait(gw: Gateway) -> None:
    """Back-pressure is an answer, not a silence."""
    async with client(gw.address) as me:
        for n in range(50):
            await me.say("a", f"text {n}")
        await me.send("message", id="one-more", chat="a", text="x")
        error = await me.next("error")
        assert (error["code"], error["id"], error["retry_after"]) == ("inbox_full", "one-more", 10)


async def test_a_reply_streams_and_then_comes_whole(gw: Gateway, redis_url: str) -> None:
    """turn started, delta, reply with safe HTML, turn done."""
    async with client(gw.address) as me, worker(redis_url) as w:
        await me.say("a", "**bold** <script>")
        await me.next("message")
        await w.run_once()
        assert await me.next("turn") == {"type": "turn", "chat": "a", "turn": 1, "state": "started", "attempt": 1}
        delta = await me.next("delta")
        assert (delta["turn"], delta["attempt"], delta["seq"], delta["text"], delta["full"]) == (1, 1, 0, "you ", True)
        reply = await me.next("reply")
        assert reply["html"] == "<p>you said: <strong>bold</strong> &lt;script&gt;</p>\n"
        assert reply["text"] == "you said: **bold** <script>"
        assert (reply["seq"], reply["turn"], reply["kind"]) == (2, 1, "reply")
        assert (await me.next("turn"))["state"] == "done"


async def test_live_events_reach_every_device_of_the_person(gw: Gateway) -> None:
    """Two sockets on one chat see the same."""
    async with client(gw.address) as phone, client(gw.address) as laptop:
        for device in (phone, laptop):
            await device.send("resume", chat="a", after=0)
            await device.next("resumed")
        await phone.say("a", "from the phone")
        assert (await laptop.next("message"))["text"] == "from the phone"
        await publish(gw.client, session_of("a"), ProgressEvent(1, "calculate"))
        await publish(gw.client, session_of("a"), DeltaEvent(1, 1, 0, "4"))
        for device in (phone, laptop):
            assert (await device.next("progress"))["text"] == "calculate"
            assert "full" not in await device.next("delta")


async def test_stop_reaches_the_turn_and_stopping_nothing_is_no_error(gw: Gateway) -> None:
    """Somebody always presses the button once too often."""
    async with client(gw.address) as me:
        await me.send("stop", chat="a")
        await me.say("a", "hello")
        await me.send("stop", chat="a")
        await me.send("chats")
        await me.next("chats")
        assert await gw.client.command("HGET", keys.session(session_of("a")), "stop") == b"1"
        assert not [frame for frame in me.seen if frame["type"] == "error"]


# Commands


async def test_a_command_is_accepted_without_a_turn_and_answered_on_every_device(gw: Gateway, redis_url: str) -> None:
    """`accepted` with turn 0; the answer is a line like others; the turn that runs goes on."""
    async with client(gw.address) as phone, client(gw.address) as laptop, worker(redis_url) as w:
        await laptop.send("resume", chat="a", after=0)
        await phone.say("a", "hello")
        accepted = await phone.say("a", "/help", id="c1")
        assert accepted == {"type": "accepted", "id": "c1", "chat": "a", "ahead": 0, "turn": 0}
        for device in (phone, laptop):
            answer = await device.next("reply")
            assert (answer["seq"], answer["turn"], answer["kind"], answer["in_reply_to"]) == (3, 0, "command", ["c1"])
            assert "<li><code>/new</code>" in answer["html"]
        assert await phone.say("a", "/help", id="c1") == accepted
        await w.run_once()
        assert (await phone.next("reply"))["turn"] == 1
        assert phone.seqs("a") == [1, 2, 3, 4]


async def test_new_during_a_turn_ends_it_for_every_device(gw: Gateway, redis_url: str) -> None:
    """The turn is over, the answer names what gets no other one, and who resumes finds nothing running."""
    async with client(gw.address) as me, client(gw.address) as other, worker(redis_url) as w:
        for device in (me, other):  # who only begins to follow now may get the reply, as a line of the log, first
            await device.send("resume", chat="a", after=0)
            await device.next("resumed")
        await me.say("a", "first", id="m1")
        await me.say("a", "second", id="m2")
        await me.send("message", id="c1", chat="a", text="/new")
        for device in (me, other):
            turn = await device.next("turn")
            assert (turn["turn"], turn["state"]) == (1, "stopped")
            answer = await device.next("reply")
            assert (answer["turn"], answer["in_reply_to"]) == (2, ["c1", "m1", "m2"])
        await other.send("resume", chat="a", after=0)
        assert (await other.next("resumed"))["running"] is None
        assert other.seqs("a")[-4:] == [1, 2, 3, 4]
        assert await w.run_once() == 0
        assert (await me.say("a", "third"))["turn"] == 3
        await w.run_once()
        assert (await me.next("reply", turn=3))["text"] == "you said: third"


@pytest.mark.parametrize("shown", [True, False])
async def test_what_the_agent_does_is_shown_unless_a_setting_says_no(redis_url: str, shown: bool) -> None:
    """`web.progress`: text and turns are shown all the same."""
    async with gateway(redis_url, progress=shown) as gw, client(gw.address) as me:
        await me.send("resume", chat="a", after=0)
        await me.next("resumed")
        await publish(gw.client, session_of("a"), ProgressEvent(1, "calculate"))
        await publish(gw.client, session_of("a"), ProgressEvent(1, "trying again in 12 s", note=True))
        await publish(gw.client, session_of("a"), DeltaEvent(1, 1, 0, "4", full=True))
        await me.next("delta")
        why = {"text": "trying again in 12 s", "note": True}  # why nothing happens is shown in any case
        progress = [{"text": "calculate"}] * shown + [why]
        seen = [frame for frame in me.seen if frame["type"] == "progress"]
        assert [{key: frame[key] for key in ("text", "note") if key in frame} for frame in seen] == progress


@pytest.mark.parametrize(
    ("timezone", "kept"),
    [
        ("Asia/Tokyo", {TIMEZONE: "Asia/Tokyo"}),
        *((bad, {}) for bad in ("", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "Europe", "a\0b", "x" * 900)),
    ],
)
async def test_a_message_knows_the_time_zone_of_its_person(gw: Gateway, timezone: str, kept: dict[str, str]) -> None:
    """What is none is ignored: nobody is kept out for a strange browser."""
    async with stranger(gw.address) as me:
        await me.send("hello", token=TOKENS["owner"], timezone=timezone)
        await me.next("welcome")
        await me.say("a", "remind me at nine")
        [(_, fields)] = await gw.client.command("XRANGE", keys.inbox(session_of("a")), "-", "+")
        assert decode_inbound(fields[fields.index(b"m") + 1]).metadata == kept


# Lists, history, resuming


async def test_the_list_of_chats_is_the_latest_first_with_titles_and_who_runs(gw: Gateway, redis_url: str) -> None:
    """What the side of the page shows."""
    async with client(gw.address) as me, worker(redis_url) as w:
        await me.say("one", "first chat")
        await w.run_once()
        await me.say("two", "second chat " + "x" * 100)
        await me.send("chats")
        rows = (await me.next("chats"))["chats"]
        assert [(row["chat"], row["running"]) for row in rows] == [("two", True), ("one", False)]
        assert rows[1]["title"] == "first chat"
        assert len(rows[0]["title"]) == 60
        assert rows[0]["at"] >= rows[1]["at"] > 0


async def test_history_comes_in_pages_of_fifty_from_the_newest(gw: Gateway) -> None:
    """And ends where the log begins."""
    async with client(gw.address) as me:
        for n in range(1, 41):
            await me.say("a", f"text {n}", id=f"m{n}")
        for n in range(41, 61):  # beyond the inbox's cap, so straight into the log
            await gw.client.command("DEL", keys.inbox(session_of("a")))
            await me.say("a", f"text {n}", id=f"m{n}")
        await me.send("history", chat="a")
        page = await me.next("history")
        assert [line["seq"] for line in page["lines"]] == list(range(11, 61))
        assert page["more"] is True
        assert page["lines"][0]["type"] == "message"
        await me.send("history", chat="a", before=11)
        page = await me.next("history")
        assert ([line["seq"] for line in page["lines"]], page["more"]) == (list(range(1, 11)), False)
        for before in (0, 1):
            await me.send("history", chat="a", before=before)
            page = await me.next("history")
            assert (page["lines"], page["more"]) == ([], False)


async def test_history_of_huge_lines_comes_in_smaller_pages(gw: Gateway) -> None:
    """A frame has a bound, whatever was said."""
    async with client(gw.address) as me:
        for n in range(25):
            await me.say("a", f"{n} " + "x" * 60_000)
        await me.send("history", chat="a")
        page = await me.next("history")
        assert 10 <= len(page["lines"]) <= 18
        assert page["more"] is True


async def test_a_resume_on_a_long_log_brings_all_of_it_once(gw: Gateway, redis_url: str) -> None:
    """More lines than a page, from the number the client knows."""
    async with client(gw.address) as me, worker(redis_url) as w:
        for n in range(130):
            await me.say("a", f"text {n}")
            await w.run_once()
        async with client(gw.address) as again:
            await again.send("resume", chat="a", after=3)
            resumed = await again.next("resumed")
            assert again.seqs("a") == list(range(4, 261))
            mark = again.lines("a")[-1]["mark"]
            assert resumed == {"type": "resumed", "chat": "a", "seq": 260, "running": None, "mark": mark}


async def test_a_resume_beyond_the_log_resets(gw: Gateway) -> None:
    """The client knows more than there is: it gets everything, and is told to forget the rest."""
    async with client(gw.address) as me:
        await me.say("a", "hello")
        async with client(gw.address) as ahead:
            await ahead.send("resume", chat="a", after=99)
            resumed = await ahead.next("resumed")
            assert (resumed["reset"], resumed["seq"], resumed["running"]) == (True, 1, 1)
            assert ahead.seqs("a") == [1]


async def test_a_page_comes_back_to_a_log_whose_numbers_were_used_again(gw: Gateway) -> None:
    """An older copy of the store took over, and went on: the line that the page holds was never said there."""
    names = [make(session_of("a")) for make in (keys.session, keys.inbox, keys.outbox)]
    async with client(gw.address) as me:
        await me.say("a", "kept")
        copies = [await gw.client.command("DUMP", name) for name in names]
        await me.say("a", "lost")
        await me.shown("a", 2)
    for name, copy in zip(names, copies, strict=True):
        await gw.client.command("RESTORE", name, 0, copy, "REPLACE")
    async with client(gw.address) as other, client(gw.address) as back:
        await other.say("a", "new")
        await other.say("a", "newer")
        await back.send("resume", chat="a", after=2, mark=me.lines("a")[-1]["mark"])
        assert (await back.next("resumed"))["reset"] is True
        # A line that came between the request and its answer stands before it: the reset takes it away.
        assert [line["text"] for line in back.lines("a")][-3:] == ["kept", "new", "newer"]
        # It holds the log now, and is not reset again.
        await other.send("resume", chat="a", after=3, mark=back.lines("a")[-1]["mark"])
        assert "reset" not in await other.next("resumed")


async def test_acks_are_remembered_and_never_beyond_the_log(gw: Gateway) -> None:
    """They let the log be trimmed."""
    async with client(gw.address) as me:
        await me.say("a", "hello")
        await me.send("ack", chat="a", seq=2**53 - 1)
        await me.send("ack", chat="a", seq=0)
        await me.send("chats")
        await me.next("chats")
        assert await gw.client.command("HGET", keys.session(session_of("a")), "acked") == b"1"


async def test_a_socket_is_shown_at_most_so_many_chats_and_lets_the_oldest_go(redis_url: str) -> None:
    """Twenty by default; here three."""
    async with gateway(redis_url, answer_limits=FrameLimits(chats=3)) as gw, client(gw.address) as me:
        for chat in ("a", "b", "a", "c", "d"):
            await me.send("resume", chat=chat, after=0)
            await me.next("resumed", chat=chat)
        await eventually(lambda: gw.chats == 3)
        for chat in ("b", "a"):
            await gw.inbox.ingest(
                message(f"to {chat}", chat=f"owner/{chat}"), log_line=UserLine(id="s", text=f"to {chat}")
            )
        assert (await me.next("message"))["chat"] == "a"
        assert not me.lines("b")


async def test_what_nobody_shows_is_forgotten(gw: Gateway) -> None:
    """No chat, no subscription and no socket stays behind."""
    for _ in range(3):
        async with client(gw.address) as me:
            for n in range(5):
                await me.say(f"chat-{n}", "hello")
            assert gw.chats == 5
    await eventually(lambda: gw.chats == 0 and gw.sockets == 0)
    assert await gw.client.command("PUBSUB", "CHANNELS", "*") == []


# People apart


async def test_one_principal_cannot_see_touch_or_even_name_anothers_chat(gw: Gateway, redis_url: str) -> None:
    """The same chat name is another chat; a name that reaches out of it is refused."""
    async with client(gw.address) as owner, client(gw.address, TOKENS["ann"]) as ann, worker(redis_url) as w:
        await owner.say("a", "owner's secret", id="m1")
        await ann.send("resume", chat="a", after=0)
        assert (await ann.next("resumed"))["seq"] == 0
        for chat in ("owner/a", "../owner/a", "owner%2Fa", "a/../../owner/a", "a#b", "a:b", "*", "a\u0000"):
            for frame in (
                {"type": "resume", "after": 0},
                {"type": "history"},
                {"type": "stop"},
                {"type": "ack", "seq": 1},
                {"type": "message", "id": "m2", "text": "x"},
            ):
                await ann.send(**{**frame, "chat": chat})  # type: ignore[arg-type]
                assert (await ann.next("error"))["code"] == "bad_chat"
        for kind in ("history", "chats"):
            await ann.send(kind, **({"chat": "a"} if kind == "history" else {}))
            frame = await ann.next(kind)
            assert frame.get("lines", []) == frame.get("chats", []) == []
        await ann.send("stop", chat="a")
        assert (await ann.say("a", "ann's own", id="m1"))["turn"] == 1
        await w.run_once()
        await ann.next("reply")
        assert "secret" not in json.dumps(ann.seen)
        assert await gw.client.command("HGET", keys.session(session_of("a")), "stop") is None


# Trouble


async def test_while_redis_is_away_a_message_is_refused_in_time_and_pings_are_answered(
    redis_url: str, valkey: EmbeddedValkey
) -> None:
    """`unavailable` with the id, nothing kept in memory; afterwards the same message is taken."""
    limits = FrameLimits(retry_s=0.3)
    async with gateway(redis_url, answer_limits=limits) as gw, client(gw.address) as me, client(gw.address) as other:
        await me.say("a", "before")
        valkey.kill()
        await me.send("message", id="m1", chat="a", text="meanwhile")
        await me.send("message", id="m2", chat="a", text="meanwhile")
        await me.pong()
        await other.pong()
        for id in ("m1", "m2"):
            error = await me.next("error", id=id)
            assert error["code"] == "unavailable"
            assert error["retry_after"] > 0
        valkey.start()

        async def accepted() -> bool:
            await me.send("message", id="m1", chat="a", text="meanwhile")
            return bool((await me.answer("m1"))["type"] == "accepted")

        await eventually(accepted, within_s=60)
        await me.shown("a", 2)
        assert [line["text"] for line in me.lines("a")] == ["before", "meanwhile"]


async def test_a_short_absence_of_redis_goes_unnoticed_but_for_the_wait(redis_url: str, valkey: EmbeddedValkey) -> None:
    """The message is tried again for five seconds before anybody is told."""
    async with gateway(redis_url) as gw, client(gw.address) as me:
        await me.say("a", "before")
        valkey.kill()
        await me.send("message", id="m1", chat="a", text="meanwhile")
        await me.pong()
        valkey.start()
        assert (await me.next("accepted", id="m1"))["turn"] == 2
        assert not [frame for frame in me.seen if frame["type"] == "error"]


async def test_after_the_pub_sub_connection_was_cut_nothing_is_missing(gw: Gateway, redis_url: str) -> None:
    """Lines said while nobody listened come from the log, in their place."""
    async with client(gw.address) as me, worker(redis_url) as w:
        for n in range(1, 6):
            await me.say("a", f"text {n}")
            command(redis_url, "CLIENT", "KILL", "TYPE", "PUBSUB")
            await w.run_once()
            await me.next("reply", turn=n)
        assert me.seqs("a") == list(range(1, 11))


async def test_a_socket_that_does_not_read_is_given_up_and_delays_nobody(redis_url: str) -> None:
    """1013 once it reads again; it resumes and has everything."""
    limits = SocketLimits(stuck_s=0.5, messages_burst=1000)
    async with gateway(redis_url, socket_limits=limits) as gw, client(gw.address) as me, worker(redis_url) as w:
        await me.say("a", "hello")
        await w.run_once()
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.setblocking(False)
        host, _, port = gw.address.rpartition(":")
        await asyncio.get_running_loop().sock_connect(small, (host, int(port)))
        async with client(gw.address, sock=small, max_queue=1) as stuck:
            await stuck.send("resume", chat="a", after=0)
            await stuck.next("resumed")
            for n in range(40):
                await me.say("a", f"{n} " + "x" * 60_000)
                await w.run_once()
                await me.next("reply", turn=n + 2)  # the others are not held up
            await eventually(lambda: gw.sockets == 1, within_s=60, what="the stuck socket given up")
            assert await stuck.closed() in (1013, 1006)
        async with client(gw.address) as again:
            await again.send("resume", chat="a", after=0)
            await again.next("resumed")
            assert again.seqs("a") == me.seqs("a") == list(range(1, 83))


async def test_a_closing_gateway_finishes_what_was_sent_and_sends_everybody_elsewhere(redis_url: str) -> None:
    """Messages that came are accepted, then 1012; no new socket gets in."""
    async with gateway(redis_url) as gw, client(gw.address) as me, client(gw.address) as idle:
        for n in range(10):
            await me.send("message", id=f"m{n}", chat="a", text="hi")
        await me.next("accepted", id="m0")
        gw.stop.set()
        assert await me.closed() == 1012
        assert await idle.closed() == 1012
        accepted = {frame["id"] for frame in me.seen if frame["type"] == "accepted"}
        assert await gw.client.command("XLEN", keys.inbox(session_of("a"))) == len(accepted)
        with pytest.raises((InvalidStatus, OSError)):
            async with stranger(gw.address):
                pass


# HTTP


def get(address: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(f"http://{address}{path}", method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, {k.lower(): v for k, v in exc.headers.items()}, exc.read()


STRICT = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(self), payment=(), usb=()",
    "x-dns-prefetch-control": "off",
}


async def test_the_page_comes_with_strict_headers_and_is_not_sent_twice(gw: Gateway) -> None:
    """CSP without inline anything; a browser that has it gets 304."""
    status, headers, body = await asyncio.to_thread(get, gw.address, "/")
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert b"<html" in body
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "media-src blob:; connect-src 'self'; font-src 'self'; manifest-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert {name: headers[name] for name in STRICT} == STRICT
    known = {"If-None-Match": headers["etag"]}
    status, headers, body = await asyncio.to_thread(get, gw.address, "/", **known)
    assert (status, body) == (304, b"")
    assert headers["etag"] == known["If-None-Match"]
    assert (await asyncio.to_thread(get, gw.address, "/", **{"If-None-Match": '"old"'}))[0] == 200
    status, headers, body = await asyncio.to_thread(get, gw.address, "/", "HEAD")
    assert (status, body) == (200, b"")


async def test_an_address_with_too_many_wrong_tokens_is_refused(redis_url: str) -> None:
    """On the socket and in the API; a right token that cannot be guessed opens all the same."""
    long = "a-token-that-nobody-guesses"
    async with gateway(redis_url, principals=Principals({"owner": "sesame", "ann": long})) as gw:
        for number in range(11):
            async with stranger(gw.address) as nobody:
                await nobody.send("hello", token=f"wrong-{number}")
                error = await nobody.next("error")
                assert error["code"] == ("not_allowed" if number < 10 else "rate_limited")
                assert await nobody.closed() == 4401
        for token, status in (("wrong", 429), ("sesame", 429), (long, 200)):
            bearer = {"Authorization": f"Bearer {token}"}
            got, headers, _ = await asyncio.to_thread(get, gw.address, "/v1/models", **bearer)
            assert (got, "retry-after" in headers) == (status, status == 429)
        async with client(gw.address, token=long):
            pass


async def test_open_sockets_and_requests_of_the_api_are_counted(gw: Gateway) -> None:
    """What gateways are scaled on, and the status and time of each request below /v1."""

    def value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"shoal_{name}", labels) or 0

    sockets, done, missing = value("web_sockets"), *(value("api_seconds_count", status=one) for one in ("200", "404"))
    async with client(gw.address):
        assert value("web_sockets") == sockets + 1
    await eventually(lambda: value("web_sockets") == sockets)
    bearer = {"Authorization": f"Bearer {TOKENS['owner']}"}
    for path, status in (("/v1/models", 200), ("/v1/none", 404), ("/", 200)):
        assert (await asyncio.to_thread(get, gw.address, path, **bearer))[0] == status
    await eventually(lambda: value("api_seconds_count", status="404") == missing + 1)
    assert value("api_seconds_count", status="200") == done + 1


async def test_a_401_comes_before_the_body(gw: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the connection of whoever goes on sending is not kept."""
    monkeypatch.setitem(LIMITS_S, "rest", 0.1)
    for path in ("/v1/chat/completions", "/media/a"):
        reader, writer = await asyncio.open_connection(*gw.address.split(":"))
        writer.write(f"POST {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer wrong\r\n".encode())
        writer.write(b"Content-Length: 1000000\r\n\r\nx")
        async with asyncio.timeout(10):
            assert b" 401 " in await reader.readline()
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
        writer.close()


async def test_a_person_at_a_wrong_address_reads_a_page(gw: Gateway) -> None:
    """A browser asks for HTML; programs get problem JSON. An ended link of a shared chat says that it has ended."""
    link = "/s/" + "x" * 22
    for path, words in (("/nowhere", "There is nothing at this address."), (link, "Nothing is shared under this link")):
        status, headers, body = await asyncio.to_thread(get, gw.address, path, accept="text/html,*/*;q=0.8")
        assert (status, headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert {name: headers[name] for name in STRICT} == STRICT
        assert words in body.decode()
        assert '<a href="/">Open your chats</a>' in body.decode()


async def test_everything_that_the_page_names_is_served_from_here(gw: Gateway) -> None:
    """With a type that a browser which does not sniff will take."""
    _, _, page = await asyncio.to_thread(get, gw.address, "/")
    names = [part.split('"')[0] for part in page.decode().split('"/static/')[1:]]
    assert names
    for name in names:
        status, headers, _ = await asyncio.to_thread(get, gw.address, f"/static/{name}")
        assert status == 200, name
        types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
        wanted = (types | {"webmanifest": "application/manifest+json"})[name.rpartition(".")[2]]
        assert headers["content-type"].startswith(wanted), name


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/static/nothing.js", 404),
        ("GET", "/static/../server.py", 404),
        ("GET", "/static/..%2fserver.py", 404),
        ("GET", "/static//etc/passwd", 404),
        ("GET", "/static/", 404),
        ("GET", "/metrics", 404),
        ("GET", "/ws", 404),
        ("POST", "/", 405),
        ("DELETE", "/static/app.js", 405),
    ],
)
async def test_http_errors_are_problem_json(gw: Gateway, method: str, path: str, status: int) -> None:
    """RFC 9457, with the same strict headers; metrics are not on the public listener."""
    got, headers, body = await asyncio.to_thread(get, gw.address, path, method)
    assert got == status
    assert headers["content-type"] == "application/problem+json"
    assert {name: headers[name] for name in STRICT} == STRICT
    problem = json.loads(body)
    assert (problem["status"], problem["type"]) == (status, "about:blank")
    assert problem["title"]
    if status == 405:
        assert "GET" in headers["allow"]
