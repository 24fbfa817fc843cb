"""The job of a turn: every way it can end, on a real Valkey, with an agent of the test's own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from shared.clock import Clock
from shared.errors import ModelError, TurnLimited, TurnReleased, TurnStopped
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.transcript import AssistantEntry, ToolCall, UserEntry, decode_transcript
from shared.metrics import REGISTRY
from shared.settings import AgentSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, say
from tests.helpers.fleet import watching
from tests.helpers.wait import eventually
from worker.agent.model.model import TokenUsage
from worker.agent.turn import AgentResult
from worker.attempt.attempt import CRASH_LIMIT
from worker.attempt.run_turn import RunTurn
from worker.lease.lease_loop import LeaseLoop
from worker.turn.conversation import Conversation
from worker.turn.journal import TurnJournal
from worker.turn.live_updates import LiveUpdates

SESSION = "web:owner/a"

Agent = Callable[[Conversation, TurnJournal, LiveUpdates], Awaitable[AgentResult]]


class NoWaits(random.Random):
    """Back-off without the wait."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


def answer(text: str, conversation: Conversation) -> AgentResult:
    entries = (conversation.entry, AssistantEntry(content=text, turn=conversation.entry.turn))
    return AgentResult(content=text, entries=entries, rounds=1, usage=TokenUsage())


async def echo(conversation: Conversation, _journal: TurnJournal, _show: LiveUpdates) -> AgentResult:
    return answer(f"you said {conversation.message.content}", conversation)


def make_loop(client: RedisClient, agent: Agent, *, timeout_s: float = 60) -> LeaseLoop:
    runner = RunTurn(client, Turns(client), agent, settings=AgentSettings(turn_timeout_s=timeout_s), rng=NoWaits())
    return LeaseLoop(LeaseQueue(client, "turns", owner=nonce(), lease_s=30), slots=10, run=runner)


async def run_until_idle(client: RedisClient, loop: LeaseLoop, *, within_s: float = 10) -> None:
    async def idle() -> bool:
        await loop.claim_once()
        return loop.running == 0 and int(await client.command("ZCARD", keys.queue("turns"))) == 0

    await eventually(idle, within_s=within_s)


async def lines(client: RedisClient) -> list[OutboundMessage]:
    found = await Outbox(client).read_after(SESSION, after=0)
    return [one.line for one in found if isinstance(one.line, OutboundMessage)]


async def dead(client: RedisClient) -> list[str]:
    entries = await client.command("XRANGE", keys.DEAD, "-", "+")
    return [dict(zip(fields[::2], fields[1::2], strict=True))[b"reason"].decode() for _, fields in entries]


async def saved(client: RedisClient) -> list[str]:
    entries = await client.command("LRANGE", keys.history(SESSION), 0, -1)
    return [str(decode_transcript(entry).content) for entry in entries]


async def test_a_turn_ends_in_one_reply_that_names_its_message(client: RedisClient) -> None:
    """Commit: reply, history and inbox together."""
    await say(Inbox(client), "hi", id="x1")
    await run_until_idle(client, make_loop(client, echo))
    [line] = await lines(client)
    assert (line.content, line.turn, line.in_reply_to, line.kind) == ("you said hi", 1, ("x1",), "reply")
    assert await saved(client) == ["hi", "you said hi"]


@pytest.mark.parametrize(("ends", "last"), [("", "you said two"), ("stop", "[stopped by the user]"), ("bug", "[no")])
async def test_what_a_message_brings_is_saved_before_it(client: RedisClient, ends: str, last: str) -> None:
    """However the turn ends: the next message of a session that can be continued finds it there."""

    async def agent(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        if ends == "stop":
            raise TurnStopped()
        if ends == "bug":
            raise RuntimeError("bug")
        return await echo(conversation, journal, show)

    session = "api:owner/~-1"
    brought = (UserEntry(content="one", turn=0), AssistantEntry(content="1", turn=0))
    asked = InboundMessage(
        channel="api", chat_id="owner/~-1", sender_id="owner", id="x", content="two", timestamp=1, history=brought
    )
    await Inbox(client).ingest(asked)
    await run_until_idle(client, make_loop(client, agent))
    entries = await client.command("LRANGE", keys.history(session), 0, -1)
    texts = [str(decode_transcript(entry).content) for entry in entries]
    assert texts[:3] == ["one", "1", "two"]
    assert texts[-1].startswith(last)


async def test_a_bug_makes_three_tries_and_then_a_dead_letter_with_an_apology(client: RedisClient) -> None:
    """The error count belongs to the message; the next message of the chat goes on."""
    tries = list[int]()

    async def broken(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        if conversation.message.content != "poison":
            return await echo(conversation, journal, show)
        tries.append(conversation.entry.turn)
        raise RuntimeError("secret detail")

    await say(Inbox(client), "poison")
    await say(Inbox(client), "after")
    await run_until_idle(client, make_loop(client, broken))
    assert tries == [1, 1, 1]
    first, second = await lines(client)
    assert first.kind == "apology"
    assert "reference" in first.content
    assert "secret" not in first.content
    assert second.content == "you said after"
    [reason] = await dead(client)
    assert reason.startswith("error ")
    assert reason.split()[1] in first.content


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"\x80\x04\x95\x10\x00\x00\x00", "pickle"),
        (b"x" * (1024 * 1024 + 1), "over a megabyte"),
        (b"\x91" * 10_000 + b"\xc0", "ten thousand deep"),
        (b"\x82\xa1t\xa2in\xa7channel\x05", "wrong types"),
        (b"\x81\xa1t\xa6python", "an unknown tag"),
        (b"", "nothing"),
        (encode(message(channel="system", chat="web:owner/a")), "a forged message of the system"),
        (encode(message(chat="ann/a")), "a message of somebody else's chat"),
        (encode(message(chat="x" * 300)), "a chat that cannot be"),
        (encode(message(channel="")), "no channel"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_bytes_that_are_no_record_become_a_dead_letter_and_harm_nobody_else(
    client: RedisClient, record: bytes, why: str
) -> None:
    """Whatever lies in an inbox: a code, an apology, nothing imported, the next message is answered."""
    await client.command("HSET", keys.session(SESSION), "n", 1)
    await client.command("XADD", keys.inbox(SESSION), "1-0", "v", 1, "m", record)
    await client.command("ZADD", keys.queue("turns"), 1, keys.turn(SESSION))
    await say(Inbox(client), "after")
    await run_until_idle(client, make_loop(client, echo))
    first, second = await lines(client)
    assert first.kind == "apology"
    assert second.content == "you said after"
    [reason] = await dead(client)
    assert reason.startswith("bad_record ")


async def test_a_model_that_is_away_is_waited_for_and_nothing_is_counted(client: RedisClient) -> None:
    """Release with back-off: no slot held, no attempt counted, the answer comes when the model is back."""
    tries = 0

    async def away(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise ModelError("overloaded", "busy", retryable=True)
        fields = await client.command("HMGET", keys.session(SESSION), "errors", "crashes")
        assert fields == [None, None]
        return await echo(conversation, journal, show)

    await Inbox(client).ingest(message_now())
    await run_until_idle(client, make_loop(client, away))
    assert [line.kind for line in await lines(client)] == ["reply"]


def message_now() -> InboundMessage:
    return msgspec.structs.replace(message("hello"), timestamp=Clock().now_ms())


async def test_a_model_that_stays_away_past_the_limit_ends_in_an_apology(client: RedisClient) -> None:
    """No chat is wedged: after the age limit the message is dead-lettered."""

    async def away(*_: object) -> AgentResult:
        raise ModelError("overloaded", "busy", retryable=True)

    await say(Inbox(client))  # its time stamp is years old: waiting in a queue is not waiting for a model
    await client.command("HSET", keys.session(SESSION), "tries", 1, "away", Clock().now_ms() - 901_000)
    await run_until_idle(client, make_loop(client, away))
    [line] = await lines(client)
    assert line.kind == "apology"
    assert (await dead(client))[0].startswith("model_away")


async def test_a_provider_that_asks_for_a_day_of_patience_gets_a_minute(client: RedisClient) -> None:
    """Retry-After is a wish; the chat behind the message must not stand still for it."""

    async def away(*_: object) -> AgentResult:
        raise ModelError("rate_limit", "429", retryable=True, retry_after_s=86_000)

    await say(Inbox(client))
    loop = make_loop(client, away)
    await loop.claim_once()
    await eventually(lambda: loop.running == 0)
    seconds, _ = await client.command("TIME")
    due = float(await client.command("ZSCORE", keys.queue("turns"), keys.turn(SESSION))) / 1000
    assert 0 < due - int(seconds) < 62


async def test_a_history_entry_of_a_newer_release_is_skipped(client: RedisClient) -> None:
    """A rollback must not silence a chat: what cannot be read is left out, the message is answered."""
    await client.command("RPUSH", keys.history(SESSION), b"\x81\xa1t\xa6future")
    await say(Inbox(client), "hi")
    await run_until_idle(client, make_loop(client, echo))
    assert [line.content for line in await lines(client)] == ["you said hi"]


async def test_a_refused_key_is_not_tried_again(client: RedisClient) -> None:
    """Faults that waiting cannot mend end at once, and say whom to ask."""
    tries = 0

    async def refused(*_: object) -> AgentResult:
        nonlocal tries
        tries += 1
        raise ModelError("auth", "401", retryable=False, reason="this key has expired")

    await say(Inbox(client))
    await run_until_idle(client, make_loop(client, refused))
    assert tries == 1
    [line] = await lines(client)
    assert "key" in line.content
    assert (line.failed, line.refusal) == ("auth", "this key has expired")


async def test_a_turn_that_takes_too_long_ends_in_an_apology(client: RedisClient) -> None:
    """The wall clock of a turn is bounded."""

    async def hang(*_: object) -> AgentResult:
        await asyncio.Event().wait()
        raise AssertionError

    await say(Inbox(client))
    await run_until_idle(client, make_loop(client, hang, timeout_s=0.05))
    [line] = await lines(client)
    assert line.kind == "apology"
    assert (await dead(client))[0].startswith("timeout")


async def test_a_full_ledger_ends_the_turn_with_its_reason(client: RedisClient) -> None:
    """A cap is named to the person."""

    async def greedy(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        while True:
            await journal.append(AssistantEntry(content="x" * 1_000_000, turn=1))

    await say(Inbox(client))
    await run_until_idle(client, make_loop(client, greedy))
    [line] = await lines(client)
    assert "2 MB" in line.content


async def test_eight_crashes_without_a_step_end_a_message(client: RedisClient) -> None:
    """A message that kills whatever touches it is set aside, and the chat goes on."""
    await say(Inbox(client), "poison")
    assert CRASH_LIMIT == 8
    await client.command("HSET", keys.session(SESSION), "tries", 1, "crashes", CRASH_LIMIT)
    await say(Inbox(client), "after")
    await run_until_idle(client, make_loop(client, echo))
    assert [line.kind for line in await lines(client)] == ["apology", "reply"]
    assert (await dead(client))[0].startswith("crashes")


async def test_a_stopped_turn_keeps_its_text_and_its_steps(client: RedisClient) -> None:
    """Stop: the shown text is the reply, the ledger's steps go into history, the next message is untouched."""
    running = asyncio.Event()

    async def slow(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        if conversation.message.content == "after":
            return await echo(conversation, journal, show)
        await journal.append(AssistantEntry(content="", turn=1, tool_calls=(ToolCall("c1", "calculate", "{}"),)))
        await show.add_text("half an ans")
        running.set()
        await asyncio.Event().wait()
        raise AssertionError

    inbox, loop = Inbox(client), make_loop(client, slow)
    await say(inbox, "go")
    await say(inbox, "after")
    await loop.claim_once()
    await running.wait()
    await inbox.stop(SESSION)
    await loop.renew_once()
    await run_until_idle(client, loop)
    first, second = await lines(client)
    assert (first.kind, first.content) == ("stopped", "half an ans")
    assert second.content == "you said after"
    history = await saved(client)
    assert history[0] == "go"
    assert history[3].startswith("half an ans")
    assert "stopped by the user" in history[3]


async def test_a_limit_of_the_agent_is_reported_in_its_own_words(client: RedisClient) -> None:
    """TurnLimited carries the reason to the person."""

    async def limited(*_: object) -> AgentResult:
        raise TurnLimited("tokens", "the budget of 10 tokens for this chat is used up")

    await say(Inbox(client))
    await run_until_idle(client, make_loop(client, limited))
    [line] = await lines(client)
    assert "10 tokens" in line.content


async def test_two_bursts_over_two_workers_are_answered_in_the_order_of_accepted(client: RedisClient) -> None:
    """Fifty messages at once to one chat: one at a time, in order."""
    order = list[str]()
    busy = 0

    async def watch(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        nonlocal busy
        busy += 1
        assert busy == 1
        order.append(conversation.message.content)
        await journal.append(AssistantEntry(content="step", turn=conversation.entry.turn))
        busy -= 1
        return await echo(conversation, journal, show)

    inbox = Inbox(client)
    accepted = await asyncio.gather(*(say(inbox, f"m{i}") for i in range(50)))
    loops = [make_loop(client, watch) for _ in range(2)]
    tasks = [asyncio.create_task(loop.run()) for loop in loops]
    await eventually(lambda: len(order) == 50, within_s=60)
    wanted = [f"m{i}" for _, i in sorted((answer.turn, i) for i, answer in enumerate(accepted))]
    assert order == wanted
    for loop in loops:
        loop.drain()
    await asyncio.gather(*tasks)
    assert [line.turn for line in await lines(client)] == list(range(1, 51))


async def test_history_is_handed_to_the_next_turn(client: RedisClient) -> None:
    """What was committed is what the next turn sees, wherever it runs."""
    seen: list[list[str]] = []

    async def watch(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        seen.append([str(entry.content) for entry in conversation.history])
        return await echo(conversation, journal, show)

    await say(Inbox(client), "one")
    await run_until_idle(client, make_loop(client, watch))
    await say(Inbox(client), "two")
    await run_until_idle(client, make_loop(client, watch))
    assert seen == [[], ["one", "you said one"]]


async def test_a_turn_that_a_newer_release_began_is_left_to_it_and_given_up_only_after_long(
    client: RedisClient,
) -> None:
    """In a rolling deploy an old worker gives back what it cannot read, counts nothing, and buries nobody's message."""
    await say(Inbox(client))
    await client.command(
        "XADD", keys.ledger(SESSION), "1-0", "m", msgspec.msgpack.encode({"t": "of-tomorrow", "turn": 1})
    )
    await client.command("HSET", keys.session(SESSION), "tries", 1, "ledger", 21)
    loop = make_loop(client, echo)
    await loop.claim_once()
    await eventually(lambda: loop.running == 0)
    counters = await client.command("HMGET", keys.session(SESSION), "errors", "crashes")
    assert counters == [None, None]
    assert await lines(client) == []
    assert await client.command("HEXISTS", keys.session(SESSION), "away") == 1
    assert await client.command("ZSCORE", keys.queue("turns"), keys.turn(SESSION)) is not None
    await client.command("HSET", keys.session(SESSION), "tries", 1, "away", Clock().now_ms() - 901_000)
    await client.command("ZADD", keys.queue("turns"), 1, keys.turn(SESSION))
    await run_until_idle(client, loop)
    assert [line.kind for line in await lines(client)] == ["apology"]


async def test_how_long_people_waited_is_counted_by_how_it_ended(client: RedisClient) -> None:
    """From the acceptance of each message to its end, once, whatever the number of tries."""

    def waited() -> dict[str, tuple[float, float]]:
        return {
            end: (
                REGISTRY.get_sample_value("shoal_answer_seconds_count", {"outcome": end}) or 0.0,
                REGISTRY.get_sample_value("shoal_answer_seconds_sum", {"outcome": end}) or 0.0,
            )
            for end in ("done", "failed")
        }

    tries: list[int] = []

    async def broken(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        if conversation.message.content != "bad":
            return await echo(conversation, journal, show)
        tries.append(1)
        raise RuntimeError("a bug")

    before, inbox = waited(), Inbox(client)
    accepted_at = Clock().now_ms() - 4000
    for content in ("fine", "bad"):
        sent = msgspec.structs.replace(message(content), timestamp=accepted_at)
        await inbox.ingest(sent, log_line=UserLine(id=sent.id, text=content), principal="owner")
    await run_until_idle(client, make_loop(client, broken))
    after = waited()
    assert len(tries) == 3
    for end in ("done", "failed"):
        assert after[end][0] - before[end][0] == 1
        assert 4 <= after[end][1] - before[end][1] < 60


async def test_a_turn_that_is_stopped_before_another_attempt_wrote_keeps_what_people_read(client: RedisClient) -> None:
    """A second attempt gets the text of the first; a stop leaves it as the reply, and history says so."""
    attempts: list[str] = []

    async def agent(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        attempts.append(conversation.begun)
        if len(attempts) == 2:
            raise TurnStopped
        await show.add_text("Once upon a time")
        await show.send_once()
        raise TurnReleased("drain")

    async with watching(client, SESSION):
        await say(Inbox(client), "tell me")
        await run_until_idle(client, make_loop(client, agent))
    assert attempts == ["", "Once upon a time"]
    [line] = await lines(client)
    assert (line.kind, line.content) == ("stopped", "Once upon a time")
    assert (await saved(client))[1].startswith("Once upon a time\n\n[stopped")
