"""Guards of scripts for which no longer story has a place: what each keeps out, on a real server."""

from __future__ import annotations

import asyncio

import pytest

from shared.errors import LeaseLost, RedisAway, Refused
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.effects import SayEffect
from shared.messages.live import TurnEvent
from shared.messages.transcript import ApprovalEntry, EffectEntry, UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.memory import MemoryLimits, MemoryStore, MemoryText
from shared.store.sessions.session import InboxChanged, Sessions
from shared.store.sessions.workspace_marks import WorkspaceMarks, folder_scope
from shared.store.turns.inbox import BOT_LOOP, Inbox, InboxLimits
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import DeadLetter, Turns
from tests.helpers.build import message, reply, say
from tests.helpers.parked import ask
from tests.helpers.remembering import SCOPE, put

SESSION, OTHER = "web:owner/a", "web:owner/b"
QUEUE, LEASES = keys.queue("turns"), keys.leases("turns")


async def claims(client: RedisClient, many: int = 1) -> list[Claim]:
    return await LeaseQueue(client, "turns", owner=nonce(), lease_s=30.0).acquire(many)


async def commit(turns: Turns, claim: Claim, text: str = "yes", dead: DeadLetter | None = None) -> None:
    assert claim.turn is not None
    n = claim.turn.n
    entry = UserEntry(content=text, turn=n)
    await turns.commit(claim, history=[entry], lines=[reply(text, n)], event=TurnEvent(n, "done"), dead=dead)


async def ms(client: RedisClient) -> int:
    seconds, micros = map(int, await client.command("TIME"))
    return seconds * 1000 + micros // 1000


async def test_a_message_that_is_only_counted_makes_no_turn(client: RedisClient) -> None:
    """A command is answered elsewhere."""
    await Inbox(client).admit(message("/help"), principal="owner")
    assert await client.command("EXISTS", keys.inbox(SESSION), keys.outbox(SESSION), QUEUE) == 0


async def test_a_message_that_merges_is_due_when_its_window_is_over(client: RedisClient) -> None:
    """So that what follows within the window can join it."""
    await say(Inbox(client, InboxLimits(busy="merge", merge_ms=5000)))
    due = float(await client.command("ZSCORE", QUEUE, keys.turn(SESSION)))
    assert 4000 < due - await ms(client) <= 5000


async def test_a_broken_queue_refuses_also_a_message_that_would_only_wait(client: RedisClient) -> None:
    """Its chat stands in the queue already, so that nothing would be written there."""
    await say(Inbox(client))
    await client.command("SET", QUEUE, "broken")
    with pytest.raises(RedisAway):
        await say(Inbox(client))
    assert await client.command("XLEN", keys.inbox(SESSION)) == 1


async def test_a_pause_of_bots_is_announced_once_and_for_itself(client: RedisClient) -> None:
    """Whatever else the chat was told in this minute, and once in each pause."""
    inbox, sent = Inbox(client), message()
    assert await inbox.notify_refusal(sent, Refused("inbox_full", "too many", 1.0))
    paused = Refused(BOT_LOOP, "paused", 1.0)
    assert not await inbox.notify_refusal(sent, paused)
    await client.command("HSET", keys.session(SESSION), "bots", "paused")
    assert [await inbox.notify_refusal(sent, paused) for _ in "ab"] == [True, False]


async def test_who_lost_the_lease_asks_nothing(client: RedisClient) -> None:
    """Another worker runs the turn, and asks itself."""
    await say(Inbox(client))
    [claim] = await claims(client)
    await client.command("HDEL", LEASES, claim.member)
    question = ApprovalEntry(
        id="q", call_id="c1", turn=1, tool="exec", digest="d" * 64, arguments="{}", people=("owner",)
    )
    with pytest.raises(LeaseLost):
        await ask(Turns(client), claim, 1, question, wait_s=60)
    assert await client.command("EXISTS", keys.ledger(SESSION)) == 0


async def test_what_is_sent_to_another_chat_stands_in_its_conversation(client: RedisClient) -> None:
    """A later turn over there knows what was written."""
    await say(Inbox(client), chat="owner/b")
    [before] = await claims(client)
    await commit(Turns(client), before)
    await say(Inbox(client))
    [claim] = await claims(client)
    entry = UserEntry(content="sent from elsewhere", turn=1)
    sent = SayEffect(session=OTHER, line=reply("hello over there", 0), history=(entry,))
    await Turns(client).append_step(claim, 1, EffectEntry(call_id="c1", turn=1, kind="say", to=OTHER), sent)
    history = await client.command("LRANGE", keys.history(OTHER), 0, -1)
    assert [decode_transcript(one).content for one in history] == ["yes", "sent from elsewhere"]
    assert int(await client.command("HGET", keys.session(OTHER), "history")) == sum(map(len, history))


async def test_a_counter_that_is_no_number_begins_again(client: RedisClient) -> None:
    """A field that somebody else has written stops neither the turn nor the counting."""
    await say(Inbox(client))
    [claim] = await claims(client)
    await client.command("HSET", keys.session(SESSION), "ledger", "x")
    await Turns(client).append_step(claim, 1, EffectEntry(call_id="c1", turn=1, kind="say", to=OTHER))
    assert int(await client.command("HGET", keys.session(SESSION), "ledger")) > 0


async def test_a_dead_letter_that_cannot_be_written_leaves_the_turn_as_it_is(client: RedisClient) -> None:
    """Half a commit would lose the message."""
    await say(Inbox(client))
    [claim] = await claims(client)
    await client.command("SET", keys.DEAD, "broken")
    with pytest.raises(RedisAway):
        await commit(Turns(client), claim, dead=DeadLetter("error", b"record"))
    assert await client.command("EXISTS", keys.history(SESSION)) == 0
    assert await client.command("XLEN", keys.inbox(SESSION)) == 1


async def test_turns_committed_with_one_of_a_dead_letter_keep_their_own_texts(client: RedisClient) -> None:
    """One call for all of one moment: reason and record stand between the texts of two turns."""
    for chat in ("owner/a", "owner/b"):
        await say(Inbox(client), chat=chat)
    turns, (first, second) = Turns(client), await claims(client, 2)
    letter = DeadLetter("error", encode(message()))
    await asyncio.gather(commit(turns, first, "one", letter), commit(turns, second, "two"))
    for claim, text in ((first, "one"), (second, "two")):
        [record] = await client.command("LRANGE", keys.history(claim.session), 0, -1)
        assert decode_transcript(record).content == text


async def test_patience_with_a_model_begins_anew_when_the_clock_fell_back(client: RedisClient) -> None:
    """A time that has not come yet would make the wait negative."""
    await say(Inbox(client))
    await client.command("HSET", keys.session(SESSION), "away", await ms(client) + 3_600_000, "tries", 1)
    [claim] = await claims(client)
    assert claim.turn is not None
    assert claim.turn.model_unavailable_ms == 0
    assert int(await client.command("HGET", keys.session(SESSION), "away")) <= await ms(client)


async def test_only_marks_that_were_shown_are_trusted(client: RedisClient) -> None:
    """What was read since then was not in the answer."""
    await say(Inbox(client))
    sessions, session = Sessions(client), keys.session(SESSION)
    state = await sessions.state(SESSION)
    await client.command("HSET", session, "sources", "web a.example")
    with pytest.raises(InboxChanged):
        await sessions.answer_command(message("/trust"), reply("done", 0), state, change="trust")
    assert await client.command("HGET", session, "sources") == b"web a.example"


async def test_of_a_folder_only_marks_that_were_shown_are_trusted(client: RedisClient) -> None:
    """Another chat may have read something there since then."""
    await say(Inbox(client))
    folder, sessions = keys.memory(folder_scope("site")), Sessions(client)
    await client.command("HSET", keys.session(SESSION), "folder", "site")
    state = await sessions.state(SESSION)
    await client.command("HSET", folder, "sources", "web a.example")
    trusted = folder_scope("site"), ""
    with pytest.raises(InboxChanged):
        await sessions.answer_command(message("/trust"), reply("done", 0), state, change="trust", earlier=trusted)
    assert await client.command("HGET", folder, "sources") == b"web a.example"


async def test_only_a_text_that_a_memory_had_is_given_back(client: RedisClient) -> None:
    """The list that named another one is old."""
    await say(Inbox(client))
    sessions = Sessions(client)
    state = await sessions.state(SESSION)
    with pytest.raises(InboxChanged):
        await sessions.answer_command(message(), reply("done", 0), state, change="restore", earlier=(SCOPE, "1"))
    assert await client.command("EXISTS", keys.memory(SCOPE)) == 0


async def test_a_choice_is_given_up_by_an_empty_one(client: RedisClient) -> None:
    """The chat then follows the settings."""
    await say(Inbox(client))
    sessions = Sessions(client)
    for preset, found in (("fast", b"fast"), ("", None)):
        state = await sessions.state(SESSION)
        await sessions.answer_command(message("/model"), reply("done", 0), state, change="preset", preset=preset)
        assert await client.command("HGET", keys.session(SESSION), "preset") == found


async def test_a_summary_of_what_strangers_wrote_is_marked_as_theirs(client: RedisClient) -> None:
    """Also one that changes nothing but MEMORY.md, or nothing but HISTORY.md."""
    memory = MemoryStore(client)
    await say(Inbox(client))
    await put(client, [UserEntry(content="read", turn=n, sources=(f"web {n}.example",)) for n in (1, 2, 3)])
    for entry, text in (("", "- new"), ("[t] entry", None), ("", None)):
        read = await memory.read_unconsolidated(SESSION)
        new = None if text is None else MemoryText(text, (await memory.read_memory(SCOPE)).version)
        assert await memory.consolidate(SESSION, read, take=1, entry=entry, memory=new)
    assert (await memory.read_memory(SCOPE)).sources == ("web 1.example", "web 2.example")


async def test_a_session_that_was_erased_gets_no_mark(client: RedisClient) -> None:
    """It would come back, and stay for ever."""
    await WorkspaceMarks(client).add(SESSION, ("web a.example",))
    assert await client.command("EXISTS", keys.session(SESSION)) == 0


async def test_what_is_due_in_an_hour_stays_so_while_the_clock_goes_on(client: RedisClient) -> None:
    """Only a clock that fell back moves what waits."""
    jobs, in_an_hour = keys.queue("jobs"), await ms(client) + 3_600_000
    await client.command("ZADD", jobs, in_an_hour, "a job")
    await client.command("HSET", keys.CLOCKS, jobs, await ms(client) - 100_000)
    assert await LeaseQueue(client, "jobs", owner=nonce(), lease_s=30.0).acquire(1) == []
    assert int(await client.command("ZSCORE", jobs, "a job")) == in_an_hour


async def refuse(client: RedisClient) -> bool:
    """Write a line into the log of a chat whose number the script counts itself."""
    return await Inbox(client).notify_refusal(message(), Refused("inbox_full", "too many", 1.0))


async def test_a_log_that_takes_no_line_is_reported_at_once(client: RedisClient) -> None:
    """Trying one number after the other would hold everybody up."""
    await client.command("SET", keys.outbox(SESSION), "broken")
    with pytest.raises(Refused) as refused:
        await refuse(client)
    assert refused.value.code == "broken"


async def test_a_counter_of_lines_that_was_lost_is_the_logs_again(client: RedisClient) -> None:
    """The log goes on after its newest line, and the counter with it."""
    await client.command("XADD", keys.outbox(SESSION), "5-0", "m", encode(reply("earlier", 1)))
    assert await refuse(client)
    assert [id for id, _ in await client.command("XRANGE", keys.outbox(SESSION), "-", "+")] == [b"5-0", b"6-0"]
    assert await client.command("HGET", keys.session(SESSION), "log") == b"6"


async def test_the_size_of_a_conversation_that_was_lost_begins_again(client: RedisClient) -> None:
    """Otherwise its entries would leave too early for ever."""
    for text in ("first", "second"):
        await say(Inbox(client), id=text)
        [claim] = await claims(client)
        await client.command("DEL", keys.history(SESSION))
        await commit(Turns(client), claim, text)
    [record] = await client.command("LRANGE", keys.history(SESSION), 0, -1)
    assert int(await client.command("HGET", keys.session(SESSION), "history")) == len(record)


async def test_a_summary_without_a_transcript_leaves_no_trace_of_one(client: RedisClient) -> None:
    """With `memory.archive_days = 0` nothing is kept."""
    memory = MemoryStore(client, MemoryLimits(archive_days=0))
    await say(Inbox(client))
    await put(client, [UserEntry(content="said", turn=1)])
    assert await memory.consolidate(SESSION, await memory.read_unconsolidated(SESSION), take=1, entry="[t] entry")
    assert await client.command("HEXISTS", keys.session(SESSION), "transcript") == 0


async def test_patience_with_a_model_counts_from_its_first_absence(client: RedisClient) -> None:
    """The time is stored, not a count."""
    await say(Inbox(client))
    queue, before = LeaseQueue(client, "turns", owner=nonce(), lease_s=30.0), await ms(client)
    found = []
    for _ in range(2):
        [claim] = await queue.acquire(1)
        await queue.release(claim, count="away")
        found.append(int(await client.command("HGET", keys.session(SESSION), "away")))
    assert found[0] == found[1]
    assert before <= found[0] <= await ms(client)
