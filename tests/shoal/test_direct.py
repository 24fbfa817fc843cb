"""`process_direct`: a message like any other, and a caller who waits for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest
import structlog

from shared.errors import BadInput, RedisAway, Refused, SettingsError, TooBig
from shared.messages.codec import encode
from shared.messages.inbound import TEXT_LIMIT_BYTES, InboundMessage, decode_inbound
from shared.messages.live import DeltaEvent, TurnEvent
from shared.messages.outbound import OutboundKind, OutboundMessage, UserLine
from shared.settings import load
from shared.settings.trust import trust_folder
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import publish
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.session import Sessions
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from shoal import direct
from shoal.direct import AnswerLate, NotAnswered, _message, process_direct
from tests.helpers.build import message
from tests.helpers.wait import eventually

SESSION: Final = "cli:direct"


class Hand:
    """A worker moved by hand."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._turns = Turns(client)
        self.queue = LeaseQueue(client, "turns", owner="hand", lease_s=15)

    async def take(self) -> tuple[Claim, InboundMessage]:
        """The next message, as soon as there is one."""
        [claim] = await eventually(lambda: self.queue.acquire(1), what="a due message")
        assert claim.turn is not None
        return claim, decode_inbound(claim.turn.record)

    async def answer(
        self, text: str = "", *, kind: OutboundKind = "reply", lines: Sequence[OutboundMessage] = ()
    ) -> InboundMessage:
        """Answer the next message by its text in capitals, or as told."""
        claim, message = await self.take()
        assert claim.turn is not None
        n = claim.turn.n
        line = OutboundMessage(content=text or message.content.upper(), turn=n, in_reply_to=(message.id,), kind=kind)
        await self._turns.commit(claim, history=[], lines=lines or [line], event=TurnEvent(n, "done"))
        return message


@pytest.fixture
async def hand(client: RedisClient) -> AsyncIterator[Hand]:
    made = Hand(client)
    yield made
    await made.queue.close()


async def test_an_answer_comes_back_to_its_caller(client: RedisClient, hand: Hand) -> None:
    """Through the inbox and a lease; what was said and answered stands in the chat's log."""
    asked = asyncio.create_task(process_direct("hello", client=client))
    message = await hand.answer()
    assert await asked == "HELLO"
    assert (message.session, message.channel, message.chat_id, message.thread) == (SESSION, "cli", "direct", None)
    sent_text, replied = [row.line for row in await Outbox(client).read_after(SESSION, after=0)]
    assert isinstance(sent_text, UserLine)
    assert (sent_text.id, sent_text.text) == (message.id, "hello")
    assert isinstance(replied, OutboundMessage)
    assert replied.in_reply_to == (message.id,)


async def test_calls_on_one_session_are_answered_in_order_each_with_its_own(client: RedisClient, hand: Hand) -> None:
    """Ten callers at once: nobody gets what another asked for."""
    asked = [asyncio.create_task(process_direct(f"question {i}", client=client)) for i in range(10)]
    for _ in range(10):
        await hand.answer()
    assert await asyncio.gather(*asked) == [f"QUESTION {i}" for i in range(10)]
    rows = await Outbox(client).read_after(SESSION, after=0)
    turns = [row.line.turn for row in rows if isinstance(row.line, OutboundMessage)]
    assert turns == list(range(1, 11))


async def test_commands_apply_in_the_callers_own_chats(client: RedisClient, hand: Hand) -> None:
    """Answered at once, as a gateway does, and by no worker; other texts with a slash are messages."""
    asked = asyncio.create_task(process_direct("remember me", client=client))
    await hand.answer()
    await asked
    assert "/memory" in await process_direct("/help", client=client)
    assert (await process_direct("/new", client=client)).startswith("New conversation.")
    assert (await Sessions(client).state(SESSION)).entries == 0
    asked = asyncio.create_task(process_direct("/etc/passwd is a path", client=client))
    assert (await hand.answer()).content == "/etc/passwd is a path"
    assert await asked == "/ETC/PASSWD IS A PATH"
    lines = [row.line for row in await Outbox(client).read_after(SESSION, after=0)]
    kinds = [line.kind for line in lines if isinstance(line, OutboundMessage)]
    assert kinds == ["reply", "command", "command", "reply"]


async def test_a_program_that_configured_no_log_gets_the_answer_alone(
    client: RedisClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it prints is its own: structlog would write every line of ours to its output."""
    before = structlog.get_config()
    structlog.reset_defaults()
    try:
        assert "/memory" in await process_direct("/help", client=client)
    finally:
        structlog.configure(**before)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["/yes", "/trust", "/new"])
async def test_a_program_gives_no_command_in_a_persons_chat(client: RedisClient, hand: Hand, text: str) -> None:
    """What it passes on may be a stranger's text: it must not consent to anything, nor end the conversation."""
    asked = asyncio.create_task(process_direct(text, "web:owner/a", client=client))
    assert (await hand.answer()).content == text
    assert await asked == text.upper()


async def test_a_chat_of_this_channel_is_no_chat_of_the_page(client: RedisClient, hand: Hand) -> None:
    """`cli` and `web` have sessions of their own, also under one chat id, and nobody's list of chats changes."""
    asked = asyncio.create_task(process_direct("hello", "cli:owner/a", chat_id="owner/a", client=client))
    assert (await hand.answer()).session == "cli:owner/a"
    await asked
    assert await Outbox(client).read_after("web:owner/a", after=0) == []
    assert await client.command("KEYS", "shoal:{0ax}:chats:*") == []


async def test_a_thread_is_a_session_of_its_own(client: RedisClient, hand: Hand) -> None:
    """`channel:chat_id#thread`, as everywhere."""
    asked = asyncio.create_task(process_direct("hello", "cli:direct#side", client=client))
    message = await hand.answer()
    assert (message.session, message.chat_id, message.thread) == ("cli:direct%23side", "direct", "side")
    assert await asked == "HELLO"


@pytest.mark.parametrize(("session_key", "thread"), [("cron:123", None), ("cli:a", None), ("cli:a#side", "side")])
def test_a_session_key_alone_says_the_chat(session_key: str, thread: str | None) -> None:
    """Its channel, its chat and its thread, as nanobot's callers write it."""
    message = _message("hello", session_key, None, None)
    assert (f"{message.channel}:{message.chat_id}", message.thread) == (session_key.partition("#")[0], thread)


@pytest.mark.parametrize(
    ("session_key", "channel", "chat_id"),
    [
        ("cli:a", "cli", "direct"),
        ("web:direct", "cli", "direct"),
        ("cli:direct", "cli", "a"),
        ("cli:direct#", "cli", "direct"),
        ("cli:direct#", None, None),
        ("direct", None, None),
        ("cli:", None, None),
    ],
)
async def test_a_session_that_is_not_of_this_chat_is_refused(
    client: RedisClient, session_key: str, channel: str | None, chat_id: str | None
) -> None:
    """Said before anything is stored: the answer would go to another chat than the question."""
    with pytest.raises(BadInput, match=r"session_key .* is not of channel"):
        await process_direct("hello", session_key, channel, chat_id, client=client)
    assert await client.command("DBSIZE") == 0


@pytest.mark.parametrize(
    ("content", "channel", "error"),
    [("x" * (TEXT_LIMIT_BYTES + 1), "cli", TooBig), (" ", "cli", BadInput), ("hello", "system", BadInput)],
)
async def test_what_no_chat_takes_this_does_not_take_either(
    client: RedisClient, content: str, channel: str, error: type[Exception]
) -> None:
    """Too big, empty, or in Shoal's own name."""
    with pytest.raises(error):
        await process_direct(content, f"{channel}:direct", channel, client=client)
    assert await client.command("EXISTS", keys.inbox(SESSION), keys.inbox("system:direct")) == 0


async def test_a_full_inbox_is_refused_at_once(client: RedisClient, redis_url: str) -> None:
    """With the caps of the settings."""
    settings = load({"SHOAL_REDIS__URL": redis_url, "SHOAL_INBOX__CAP": "1"})
    first = asyncio.create_task(process_direct("one", settings=settings))
    await eventually(lambda: client.command("XLEN", keys.inbox(SESSION)))
    with pytest.raises(Refused) as refused:
        await process_direct("two", settings=settings)
    assert refused.value.code == "inbox_full"
    first.cancel()
    await asyncio.wait([first])


@pytest.mark.parametrize("kind", ["apology", "stopped"])
async def test_no_reply_is_an_empty_text(client: RedisClient, hand: Hand, kind: OutboundKind) -> None:
    """A caller that asks for nothing else needs no exceptions; with `strict` it learns what happened."""
    asked = asyncio.create_task(process_direct("hello", client=client))
    await hand.answer("private words", kind=kind)
    assert await asked == ""


@pytest.mark.parametrize("kind", ["apology", "stopped"])
async def test_no_answer_is_an_error_that_says_which(client: RedisClient, hand: Hand, kind: OutboundKind) -> None:
    """Its text goes to the caller and not into the error's own, which may be logged."""
    asked = asyncio.create_task(process_direct("hello", client=client, strict=True))
    message = await hand.answer("private words", kind=kind)
    with pytest.raises(NotAnswered) as failed:
        await asked
    assert (failed.value.kind, failed.value.text, failed.value.message_id) == (kind, "private words", message.id)
    assert kind in str(failed.value)
    assert "private" not in str(failed.value)


async def test_an_apology_for_a_record_that_nobody_can_read_is_found(client: RedisClient, hand: Hand) -> None:
    """It names no message, only the turn."""
    asked = asyncio.create_task(process_direct("hello", client=client, strict=True))
    await hand.answer(lines=[OutboundMessage(content="sorry", turn=1, kind="apology")])
    with pytest.raises(NotAnswered) as failed:
        await asked
    assert failed.value.text == "sorry"


async def test_an_agent_that_spoke_by_its_tool_has_answered(client: RedisClient, hand: Hand) -> None:
    """Its final text is not sent; notices on the way are no answer."""
    asked = asyncio.create_task(process_direct("hello", client=client))
    lines = [
        OutboundMessage(content="said by the tool", turn=1),
        OutboundMessage(content="80 % of today's budget", turn=1, kind="notice"),
    ]
    await hand.answer(lines=lines)
    assert await asked == "said by the tool"


async def test_a_conversation_that_is_ended_takes_its_waiting_callers_along(client: RedisClient, hand: Hand) -> None:
    """`/new` drops what waits: nobody waits for ever for an answer that will not come."""
    asked = [asyncio.create_task(process_direct(text, client=client, strict=True)) for text in ("one", "two")]
    await eventually(lambda: _waiting(client, 2))
    sessions = Sessions(client)
    command = InboundMessage(channel="cli", chat_id="direct", sender_id="u", id="c1", content="/new", timestamp=1)
    answer = OutboundMessage(content="A new conversation.", turn=0, kind="notice")
    await sessions.answer_command(command, answer, await sessions.state(SESSION), change="new")
    for one in asked:
        with pytest.raises(NotAnswered, match="dropped"):
            await one


async def _waiting(client: RedisClient, many: int) -> bool:
    return bool(await client.command("XLEN", keys.inbox(SESSION)) == many)


async def test_deltas_of_a_growing_answer_are_handed_over(client: RedisClient, hand: Hand) -> None:
    """The deltas of this turn, and no other's."""
    received: list[DeltaEvent] = []
    asked = asyncio.create_task(process_direct("hello", client=client, on_delta=received.append))
    claim, _ = await hand.take()
    result = [DeltaEvent(1, 1, 0, "HEL", full=True), DeltaEvent(1, 1, 1, "LO")]
    for event in (result[0], DeltaEvent(7, 1, 0, "not ours", full=True), result[1]):
        await publish(client, SESSION, event)
    await hand.queue.release(claim)
    await hand.answer()
    assert await asked == "HELLO"
    assert received == result


async def test_an_answer_that_takes_too_long_still_comes_to_its_chat(client: RedisClient, hand: Hand) -> None:
    """The caller learns the id of the message; nothing is taken back."""
    with pytest.raises(TimeoutError) as late:
        await process_direct("hello", client=client, timeout_s=0.05)
    assert isinstance(late.value, AnswerLate)
    message = await hand.answer()
    assert message.id == late.value.message_id
    assert message.id in str(late.value)
    line = (await Outbox(client).read_after(SESSION, after=0))[-1].line
    assert isinstance(line, OutboundMessage)
    assert line.in_reply_to == (message.id,)


async def test_a_broken_subscription_costs_no_answer(client: RedisClient, hand: Hand) -> None:
    """What was said while it was away is in the log."""
    asked = asyncio.create_task(process_direct("hello", client=client))
    claim, message = await hand.take()
    await client.command("CLIENT", "KILL", "TYPE", "pubsub")
    line = OutboundMessage(content="HELLO", turn=1, in_reply_to=(message.id,))
    await Turns(client).commit(claim, history=[], lines=[line], event=TurnEvent(1, "done"))
    async with asyncio.timeout(5):
        assert await asked == "HELLO"


async def test_an_answer_without_an_event_is_found_after_a_silence(
    client: RedisClient, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a commit leaves when its pub/sub messages are lost: a line in the log, and nothing in the inbox."""
    monkeypatch.setattr(direct, "LOOK_EVERY_S", 0.2)
    asked = asyncio.create_task(process_direct("hello", client=client))
    _, message = await hand.take()
    line = OutboundMessage(content="HELLO", turn=1, in_reply_to=(message.id,))
    await client.command("XADD", keys.outbox(SESSION), "2-0", "m", encode(line))
    await client.command("XDEL", keys.inbox(SESSION), "1-0")
    async with asyncio.timeout(5):
        assert await asked == "HELLO"


async def test_silence_costs_next_to_nothing(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that waits asks once in a while, not all the time."""
    monkeypatch.setattr(direct, "LOOK_EVERY_S", 0.2)
    before = await _commands(client)
    with pytest.raises(AnswerLate):
        await process_direct("hello", client=client, timeout_s=0.8)
    assert await _commands(client) - before < 80  # 45 of the message and its scripts, 4 of each look


async def _commands(client: RedisClient) -> int:
    info = (await client.command("INFO", "stats")).decode()
    return int(info.partition("total_commands_processed:")[2].split()[0])


async def test_without_redis_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not late but not taken: the caller may say it again."""
    monkeypatch.setattr(direct, "LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(direct, "STORE_PATIENCE_S", 0.1)
    with pytest.raises(RedisAway):
        await process_direct("hello", settings=load({"SHOAL_REDIS__URL": "redis://127.0.0.1:1/0"}))


async def test_a_message_into_a_persons_chat_leaves_its_memory_as_it_is(client: RedisClient, hand: Hand) -> None:
    """With a memory for each person, a caller who speaks into many chats is none of those persons: their memories do
    not meet in one of the caller's."""
    settings = load({"SHOAL_MEMORY__SCOPE": "user"})
    await Inbox(client, InboxLimits.of(settings)).ingest(message("hello", chat="ann"))
    await hand.answer()
    for chat, scope in (("ann", "user:web:owner"), ("bob", "chat:web:bob")):
        asked = asyncio.create_task(
            process_direct("remember", f"web:{chat}", "web", chat, settings=settings, client=client)
        )
        claim, _ = await hand.take()
        assert claim.turn is not None
        assert claim.turn.scope == scope
        asked.cancel()


async def test_a_client_of_the_callers_own_changes_no_setting(
    client: RedisClient, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `settings` it is what every process reads that counts, also with a `client`."""
    monkeypatch.setenv("SHOAL_MEMORY__SCOPE", "shared")
    asked = asyncio.create_task(process_direct("hello", client=client))
    claim, _ = await hand.take()
    assert claim.turn is not None
    assert claim.turn.scope == "shared"
    asked.cancel()


async def test_the_settings_of_a_folder_must_be_trusted(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `shoal` commands: a hostile folder must not decide where a message and secrets are sent."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("shoal.toml").write_text(f'[redis]\nurl = "{redis_url}"\n')
    with pytest.raises(SettingsError, match="shoal config trust"):
        await process_direct("/help")
    trust_folder()
    assert "/memory" in await process_direct("/help")
