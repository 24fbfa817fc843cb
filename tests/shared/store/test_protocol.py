"""Every transition of a session's queue entry, on the real scripts and a real server (see ARCHITECTURE.md, States)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from shared.errors import BadInput, LeaseLost, Refused, TooBig, TurnLimited
from shared.ids import nonce, session_id
from shared.messages.codec import SCHEMA_VERSION, encode
from shared.messages.inbound import decode_inbound
from shared.messages.live import TurnEvent
from shared.messages.transcript import AssistantEntry, UserEntry, decode_ledger
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.chats import Chats
from shared.store.turns.inbox import Inbox, InboxLimits, MemoryScope
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import LEDGER_CAP_BYTES, DeadLetter, Turns
from tests.helpers.build import message, reply, say
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
SHORT_LEASE_S = 0.5


def queue(client: RedisClient, *, owner: str | None = None, lease_s: float = 30.0) -> LeaseQueue:
    return LeaseQueue(client, "turns", owner=owner or nonce(), lease_s=lease_s)


async def commit(client: RedisClient, claim: Claim, text: str = "yes", dead: DeadLetter | None = None) -> bool:
    assert claim.turn is not None
    n = claim.turn.n
    done = await Turns(client).commit(
        claim,
        history=[UserEntry(content="q", turn=n), AssistantEntry(content=text, turn=n)],
        lines=[reply(text, n)],
        event=TurnEvent(n, "done"),
        dead=dead,
    )
    return done.first


async def one(queue: LeaseQueue) -> Claim:
    [claim] = await queue.acquire(1)
    return claim


async def test_a_message_is_acquired_with_all_that_its_turn_needs(client: RedisClient) -> None:
    """Acquire hands over the inbox head, the ledger and the history, in one step."""
    await say(Inbox(client), "first")
    await commit(client, await one(queue(client)))
    accepted = await say(Inbox(client), "second")
    claim = await one(queue(client))
    await Turns(client).append_step(claim, 1, AssistantEntry(content="thinking", turn=2))
    await queue(client, owner=claim.owner).release(claim)
    again = await one(queue(client))
    assert accepted.turn == 2
    assert again.turn is not None
    assert decode_inbound(again.turn.record).content == "second"
    assert (again.turn.n, again.turn.attempt, again.turn.errors, again.turn.crashes) == (2, 2, 0, 0)
    assert len(again.turn.ledger) == 1
    assert len(again.turn.history) == 2


async def test_the_same_id_again_gets_the_first_answer_and_no_second_turn(client: RedisClient) -> None:
    """Dedupe: a redelivery is answered alike, also after its turn is over."""
    inbox = Inbox(client)
    first = await say(inbox, id="x")
    second = await say(inbox, id="x")
    await commit(client, await one(queue(client)))
    third = await say(inbox, id="x")
    assert (first.duplicate, second.duplicate, third.duplicate) == (False, True, True)
    assert first.turn == second.turn == third.turn == 1
    assert first.seq == second.seq == third.seq == 1
    assert await queue(client).acquire(10) == []


async def test_a_hundred_simultaneous_deliveries_make_one_turn(client: RedisClient) -> None:
    """Dedupe holds when the same id arrives everywhere at once."""
    inbox = Inbox(client)
    answers = await asyncio.gather(*(say(inbox, id="same") for _ in range(100)))
    assert sum(not answer.duplicate for answer in answers) == 1
    assert {answer.turn for answer in answers} == {1}


async def test_the_same_id_in_another_chat_is_another_message(client: RedisClient) -> None:
    """Ids are the platform's, and count within their chat."""
    inbox = Inbox(client)
    assert not (await say(inbox, id="x", chat="owner/a")).duplicate
    assert not (await say(inbox, id="x", chat="owner/b")).duplicate


async def test_one_session_is_never_held_twice(client: RedisClient) -> None:
    """A leased member is not due, whatever else arrives in its inbox."""
    inbox = Inbox(client)
    await say(inbox)
    await one(queue(client))
    await say(inbox)
    assert await queue(client).acquire(10) == []


async def test_messages_of_a_session_are_handed_out_in_order(client: RedisClient) -> None:
    """FIFO: the next message is due only when the one before is committed."""
    inbox, worker = Inbox(client), queue(client)
    for i in range(5):
        accepted = await say(inbox, f"m{i}")
        assert accepted.ahead == i
    seen = []
    for _ in range(5):
        claim = await one(worker)
        assert claim.turn is not None
        seen.append(decode_inbound(claim.turn.record).content)
        await commit(client, claim)
    assert seen == ["m0", "m1", "m2", "m3", "m4"]
    assert await client.command("EXISTS", keys.inbox(SESSION), keys.ledger(SESSION), keys.queue("turns")) == 0


async def test_a_chat_with_more_waiting_goes_to_the_tail(client: RedisClient) -> None:
    """One busy chat does not keep a slot while others wait."""
    inbox, worker = Inbox(client), queue(client)
    for _ in range(2):
        await say(inbox, chat="owner/busy")
    first = await one(worker)
    await say(inbox, chat="owner/other")
    await eventually(_clock_moved(client))
    await commit(client, first)
    assert (await one(worker)).session == "web:owner/other"


def _clock_moved(client: RedisClient) -> Callable[[], Awaitable[bool]]:
    start: list[int] = []

    async def moved() -> bool:
        seconds, micros = await client.command("TIME")
        now = int(seconds) * 1000 + int(micros) // 1000
        start.append(now)
        return now > start[0]

    return moved


async def test_a_lapsed_lease_changes_owner_and_counts_a_crash(client: RedisClient) -> None:
    """A dead worker's entry becomes due again; an owner found there means that it crashed."""
    await say(Inbox(client))
    dead = await one(queue(client, lease_s=SHORT_LEASE_S))
    claims = await eventually(lambda: queue(client).acquire(1), within_s=3)
    assert claims[0].owner_lost
    assert claims[0].turn is not None
    assert claims[0].turn.crashes == 1
    with pytest.raises(LeaseLost):
        await commit(client, dead)


async def test_grace_leaves_a_lapsed_lease_to_its_owner_for_half_a_lease(client: RedisClient) -> None:
    """After a Redis outage owners reconnect too; they get the chance to renew first."""
    await say(Inbox(client), chat="owner/late")
    owner = queue(client, lease_s=30)
    held = await one(owner)
    await _lapse(client, held, ago_s=10)
    await say(Inbox(client), chat="owner/new")
    fresh = queue(client, lease_s=30)
    assert [claim.session for claim in await fresh.acquire(5, grace=True)] == ["web:owner/new"]
    assert await owner.renew([held]) == [0]
    await _lapse(client, held, ago_s=16)
    [claims] = await fresh.acquire(5, grace=True)
    assert claims.owner_lost, "grace has an end, however many workers are in it"


async def _lapse(client: RedisClient, claim: Claim, *, ago_s: float) -> None:
    """Let the time pass until this lease has been over for so long."""
    seconds, _ = await client.command("TIME")
    await client.command("ZADD", keys.queue("turns"), int((int(seconds) - ago_s) * 1000), claim.member)


async def test_tokens_grow_also_when_the_counter_is_lost(client: RedisClient) -> None:
    """A token is above the one before and above the server's time, so a lost tail cannot repeat one."""
    await say(Inbox(client))
    worker = queue(client)
    first = await one(worker)
    await worker.release(first)
    await client.command("HDEL", keys.session(SESSION), "token")
    second = await one(worker)
    assert int(second.token) > int(first.token)


WRITES: dict[str, Callable[[RedisClient, Claim], Awaitable[object]]] = {
    "ledger": lambda client, claim: Turns(client).append_step(claim, 1, AssistantEntry(content="x", turn=1)),
    "commit": commit,
    "release": lambda client, claim: queue(client, owner=claim.owner).release(claim),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("wrong", ["owner", "token"])
async def test_every_write_of_a_turn_needs_owner_and_token(client: RedisClient, write: str, wrong: str) -> None:
    """Fencing: neither the same owner with an older token nor another owner with the same token may write."""
    await say(Inbox(client))
    claim = await one(queue(client))
    forged = Claim(
        claim.member,
        nonce() if wrong == "owner" else claim.owner,
        claim.token if wrong == "owner" else str(int(claim.token) - 1),
        0,
        False,
        claim.turn,
    )
    before = await _dump(client)
    with pytest.raises(LeaseLost):
        await WRITES[write](client, forged)
    assert await _dump(client) == before
    assert await queue(client, owner=forged.owner).renew([forged]) == [None]


async def _dump(client: RedisClient) -> dict[bytes, object]:
    names = await client.command("KEYS", "*")
    return {name: await client.command("DUMP", name) for name in sorted(names)}


async def test_a_commit_whose_answer_was_lost_can_be_sent_again(client: RedisClient) -> None:
    """The same turn number again changes nothing."""
    await say(Inbox(client))
    claim = await one(queue(client))
    assert await commit(client, claim) is True
    before = await _dump(client)
    assert await commit(client, claim) is False
    assert await _dump(client) == before


async def test_a_ledger_step_whose_answer_was_lost_can_be_sent_again(client: RedisClient) -> None:
    """Steps are numbered; one that is there already is not written twice."""
    await say(Inbox(client))
    claim = await one(queue(client))
    for _ in range(2):
        await Turns(client).append_step(claim, 1, AssistantEntry(content="x", turn=1))
    assert await client.command("XLEN", keys.ledger(SESSION)) == 1


async def test_a_ledger_step_clears_the_crash_count(client: RedisClient) -> None:
    """Progress acquits the message."""
    await say(Inbox(client))
    worker = queue(client)
    await worker.release(await one(worker), count="crashes")
    claim = await one(worker)
    assert claim.turn is not None
    assert claim.turn.crashes == 1
    await Turns(client).append_step(claim, 1, AssistantEntry(content="x", turn=1))
    await worker.release(claim)
    again = await one(worker)
    assert again.turn is not None
    assert again.turn.crashes == 0


async def test_a_ledger_has_a_cap(client: RedisClient) -> None:
    """Two megabytes of steps end a turn with a typed error; what was written stays."""
    await say(Inbox(client))
    claim = await one(queue(client))
    big = AssistantEntry(content="x" * (LEDGER_CAP_BYTES // 2), turn=1)
    await Turns(client).append_step(claim, 1, big)
    with pytest.raises(TurnLimited):
        await Turns(client).append_step(claim, 2, big)
    assert await client.command("XLEN", keys.ledger(SESSION)) == 1


async def test_a_dead_letter_lets_the_next_message_go_on(client: RedisClient) -> None:
    """Dead letter, apology and the end of the turn are one step."""
    inbox, worker = Inbox(client), queue(client)
    await say(inbox, "poison")
    await say(inbox, "innocent")
    claim = await one(worker)
    assert claim.turn is not None
    await commit(client, claim, "sorry", DeadLetter("error 1234", claim.turn.record))
    [[_, fields]] = await client.command("XRANGE", keys.DEAD, "-", "+")
    assert b"error 1234" in fields
    following = await one(worker)
    assert following.turn is not None
    assert decode_inbound(following.turn.record).content == "innocent"


async def test_stop_names_the_turn_at_the_head_and_no_other(client: RedisClient) -> None:
    """A stop that comes late never hits the next message."""
    inbox, worker = Inbox(client), queue(client)
    assert await inbox.stop(SESSION) is None
    await say(inbox)
    claim = await one(worker)
    await say(inbox)
    assert await inbox.stop(SESSION) == 1
    assert await worker.renew([claim]) == [1]
    await commit(client, claim)
    following = await one(worker)
    assert following.turn is not None
    assert (following.turn.n, following.turn.stop) == (2, 0)


async def test_a_stop_that_comes_late_leaves_the_next_turn_alone(client: RedisClient) -> None:
    """A page names the turn that it shows; when that is over, nothing is stopped."""
    inbox, worker = Inbox(client), queue(client)
    await say(inbox)
    await say(inbox)
    await commit(client, await one(worker))
    assert await inbox.stop(SESSION, 1) is None
    following = await one(worker)
    assert following.turn is not None
    assert (following.turn.n, following.turn.stop) == (2, 0)
    assert await inbox.stop(SESSION, 2) == 2


async def test_a_stop_reaches_a_turn_that_waits_for_its_model(client: RedisClient) -> None:
    """Back-off does not keep a person waiting: the entry is due at once and carries the flag."""
    inbox, worker = Inbox(client), queue(client)
    await say(inbox)
    await worker.release(await one(worker), delay_s=600, count="away")
    assert await worker.acquire(1) == []
    assert await inbox.stop(SESSION) == 1
    claim = await one(worker)
    assert claim.turn is not None
    assert claim.turn.stop == 1


async def test_a_full_inbox_refuses_with_its_number(client: RedisClient) -> None:
    """Back-pressure is a typed answer; nothing is half stored."""
    inbox = Inbox(client, InboxLimits(cap=2))
    for _ in range(2):
        await say(inbox)
    with pytest.raises(Refused, match="2 messages") as refused:
        await say(inbox, id="late")
    assert refused.value.code == "inbox_full"
    await commit(client, await one(queue(client)))
    assert not (await say(inbox, id="late")).duplicate


async def test_too_many_waiting_sessions_are_refused(client: RedisClient) -> None:
    """The global cap does not refuse a chat that waits already."""
    inbox = Inbox(client, InboxLimits(sessions_cap=1))
    await say(inbox, chat="owner/a")
    with pytest.raises(Refused) as refused:
        await say(inbox, chat="owner/b")
    assert refused.value.code == "overloaded"
    await say(inbox, chat="owner/a")


async def test_reserved_channels_and_long_texts_are_refused_at_the_border(client: RedisClient) -> None:
    """Only Shoal writes channel `system`; 64 KB is the limit of a text, and the answer says the number."""
    with pytest.raises(BadInput, match="system"):
        await Inbox(client).ingest(message(channel="system"))
    with pytest.raises(TooBig, match="65,536"):
        await Inbox(client).ingest(message("é" * 40_000))
    assert await client.command("DBSIZE") == 0


async def test_a_record_of_a_newer_release_is_left_for_a_newer_worker(client: RedisClient) -> None:
    """Version check: nothing counted, and those behind it are not held up."""
    inbox = Inbox(client)
    for chat in range(40):
        await say(inbox, chat=f"owner/new{chat}")
        await client.command("DEL", keys.inbox(f"web:owner/new{chat}"))
        record = encode(message(chat=f"owner/new{chat}"))
        await client.command("XADD", keys.inbox(f"web:owner/new{chat}"), "1-0", "v", SCHEMA_VERSION + 1, "m", record)
    await say(inbox, chat="owner/old")
    worker = queue(client)
    found = await eventually(lambda: worker.acquire(1))
    assert found[0].session == "web:owner/old"
    assert await client.command("HLEN", keys.leases("turns")) == 1
    assert await client.command("HGET", keys.session("web:owner/new0"), "crashes") is None


async def test_a_session_with_a_broken_key_is_passed_over_and_harms_nobody(client: RedisClient) -> None:
    """Whatever lies under a session's keys: the others are answered; it is looked at again after a minute."""
    inbox, worker = Inbox(client), queue(client)
    await say(inbox, chat="owner/broken")
    await client.command("DEL", keys.session("web:owner/broken"))
    await client.command("SET", keys.session("web:owner/broken"), "not a hash")
    await say(inbox, chat="owner/fine")
    assert [claim.session for claim in await worker.acquire(10)] == ["web:owner/fine"]
    assert await worker.acquire(10) == []
    assert await client.command("HLEN", keys.leases("turns")) == 1


async def test_a_session_whose_ledger_is_broken_keeps_no_lease(client: RedisClient) -> None:
    """A claim that could not be handed over is nobody's."""
    await say(Inbox(client))
    await client.command("SET", keys.ledger(SESSION), "not a stream")
    await client.command("HSET", keys.session(SESSION), "ledger", 12, "tries", 1)
    assert await queue(client).acquire(1) == []
    assert await client.command("HLEN", keys.leases("turns")) == 0
    seconds, _ = await client.command("TIME")
    due = float(await client.command("ZSCORE", keys.queue("turns"), keys.turn(SESSION)))
    assert due / 1000 - int(seconds) > 50, "it stands in nobody's way for a minute"


async def test_work_that_is_left_behind_wakes_the_next_worker(client: RedisClient) -> None:
    """At most one wake token exists; acquire passes it on while work is due."""
    inbox, worker = Inbox(client), queue(client)
    for chat in range(3):
        await say(inbox, chat=f"owner/{chat}")
    assert await client.command("LLEN", keys.wake("turns")) == 1
    await client.command("LPOP", keys.wake("turns"))
    await worker.acquire(1)
    assert await client.command("LLEN", keys.wake("turns")) == 1
    await client.command("LPOP", keys.wake("turns"))
    await worker.acquire(2)
    assert await client.command("LLEN", keys.wake("turns")) == 0
    await worker.close()


async def test_an_acquire_whose_answer_was_lost_is_reclaimed_without_a_crash(client: RedisClient) -> None:
    """A worker gives back leases of its own that it does not run; others' stay."""
    inbox, worker, other = Inbox(client), queue(client), queue(client)
    await say(inbox, chat="owner/lost")
    await worker.acquire(1)
    await say(inbox, chat="owner/kept")
    kept = await worker.acquire(1)
    await say(inbox, chat="owner/others")
    await other.acquire(1)
    assert await worker.release_unknown(kept) == 1
    [again] = await worker.acquire(5)
    assert again.session == "web:owner/lost"
    assert again.turn is not None
    assert again.turn.crashes == 0


async def test_the_log_of_a_chat_numbers_its_lines_and_names_itself_when_it_is_long(client: RedisClient) -> None:
    """No line leaves a log before a worker has moved it to a page; numbers never repeat."""
    outbox = Outbox(client)
    await say(Inbox(client))
    claim = await one(queue(client))
    assert claim.turn is not None
    await Turns(client).commit(
        claim, history=[], lines=[reply(f"line {i}", 1) for i in range(600)], event=TurnEvent(1, "done")
    )
    assert await client.command("ZRANGE", keys.PAGING, 0, -1) == [SESSION.encode()]
    await outbox.ack(SESSION, 10_000)
    await outbox.ack(SESSION, 5)
    await say(Inbox(client))
    lines = await outbox.read_after(SESSION, after=0, limit=1000)
    assert [line.seq for line in lines] == list(range(1, 603))
    assert (await outbox.position(SESSION)).last_seq == 602


async def test_history_is_capped_in_bytes(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest entries go first, and the counter of bytes follows."""
    monkeypatch.setattr("shared.store.turns.turn_writes.HISTORY_CAP_BYTES", 2000)
    inbox, worker = Inbox(client), queue(client)
    for i in range(8):
        await say(inbox, id=f"h{i}")
        claim = await one(worker)
        await commit(client, claim, "x" * 400)
    entries = await client.command("LRANGE", keys.history(SESSION), 0, -1)
    size = sum(map(len, entries))
    assert 1000 < size <= 2000
    assert int(await client.command("HGET", keys.session(SESSION), "history")) == size


async def test_an_idle_session_leaves_only_what_the_design_allows(client: RedisClient) -> None:
    """After a quiet period: session hash, history, log, the dedupe bucket and the person's list of chats."""
    await say(Inbox(client))
    worker = queue(client)
    [claim] = await worker.acquire_next(1)
    await commit(client, claim)
    await worker.close()
    names = {name.decode() for name in await client.command("KEYS", "*")} - {keys.CLOCKS}
    assert {name.split(":")[2] for name in names} == {"session", "history", "outbox", "seen", "chats"}
    assert all([await client.command("PTTL", name) > 0 for name in names])
    fields = await client.command("HGETALL", keys.session(SESSION))
    assert sum(map(len, fields)) <= 300


def test_lua_and_python_make_the_same_keys() -> None:
    """`lib.lua` builds the per-session keys again, from the member it acquired."""
    name = session_id("web", "owner/ä b")
    assert keys.turn(name) == "turn:" + name
    for kind, made in [
        ("session", keys.session(name)),
        ("inbox", keys.inbox(name)),
        ("ledger", keys.ledger(name)),
        ("history", keys.history(name)),
    ]:
        assert made == f"shoal:{{0ax}}:{kind}:{name}"


async def test_a_step_that_does_not_follow_the_last_one_is_refused_and_the_turn_begins_again(
    client: RedisClient,
) -> None:
    """The server lost steps that it had confirmed: no ledger with a hole, and a successor at once, nothing counted."""
    await say(Inbox(client))
    claim = await one(queue(client))
    turns = Turns(client)
    for step in (1, 2):
        await turns.append_step(claim, step, AssistantEntry(content=f"step {step}", turn=1))
    await client.command("XDEL", keys.ledger(SESSION), "2-0")
    with pytest.raises(LeaseLost):
        await turns.append_step(claim, 3, AssistantEntry(content="step 3", turn=1))
    again = await one(queue(client))
    assert again.turn is not None
    assert [decode_ledger(entry) for entry in again.turn.ledger] == [AssistantEntry(content="step 1", turn=1)]
    assert (again.turn.crashes, again.turn.errors, again.owner_lost) == (0, 0, False)
    assert await client.command("LLEN", keys.wake("turns")) == 1


async def test_a_member_without_messages_is_removed_from_the_queue(client: RedisClient) -> None:
    """Whatever left it there, it is no work, and it is not looked at again."""
    await client.command("ZADD", keys.queue("turns"), 1, keys.turn(SESSION))
    await client.command("HSET", keys.leases("turns"), keys.turn(SESSION), "gone:1")
    assert await queue(client).acquire(1) == []
    assert await client.command("EXISTS", keys.queue("turns"), keys.leases("turns")) == 0


async def test_a_conversation_over_its_cap_moves_its_oldest_entries_to_the_archive_and_drops_what_is_over_that(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marks move with them, so that nobody takes others for those that were read before."""
    monkeypatch.setattr("shared.store.turns.turn_writes.HISTORY_CAP_BYTES", 100)
    moved, dropped = 0, 0
    for n in range(1, 6):
        await say(Inbox(client), f"message {n}")
        claim = await one(queue(client))
        done = await Turns(client).commit(
            claim,
            history=[UserEntry(content="x" * 40, turn=n), AssistantEntry(content="y" * 40, turn=n)],
            lines=[],
            event=TurnEvent(n, "done"),
        )
        assert done.entries == await client.command("LLEN", keys.history(SESSION)) == 1
        moved, dropped = 2 * n - 1, dropped + done.dropped
        marks = [
            int(mark or 0) for mark in await client.command("HMGET", keys.session(SESSION), "mark", "archive_mark")
        ]
        assert marks == [moved, dropped]
        assert await client.command("LLEN", keys.archive(SESSION)) == moved - dropped
    assert 0 < dropped < moved, "four full conversations fit"
    assert int(await client.command("HGET", keys.session(SESSION), "archive")) <= 400


@pytest.mark.parametrize(("idle_ms", "noted"), [(0, 0), (1000, 1)])
async def test_a_commit_notes_when_the_conversation_is_idle(client: RedisClient, idle_ms: int, noted: int) -> None:
    """For the consolidation after some time without a message; 0 = never."""
    await say(Inbox(client))
    claim = await one(queue(client))
    await Turns(client, InboxLimits(idle_ms=idle_ms)).commit(claim, history=[], lines=[], event=TurnEvent(1, "done"))
    assert await client.command("ZCARD", keys.IDLE) == noted


@pytest.mark.parametrize(
    ("policy", "group", "scope"),
    [
        ("chat", "", "chat:web:owner/a"),
        ("user", "", "user:web:owner"),
        ("user", "1", "chat:web:owner/a"),
        ("shared", "1", "shared"),
    ],
)
async def test_a_chat_has_the_memory_that_the_policy_gives_it(
    client: RedisClient, policy: MemoryScope, group: str, scope: str
) -> None:
    """Its own, its person's (never among several people), or one for all; a change of the policy holds from the next
    message on."""
    await say(Inbox(client, InboxLimits(memory_scope="shared")), id="before")
    texts = msgspec.structs.replace(message("hello"), metadata={"group": group})
    await Inbox(client, InboxLimits(memory_scope=policy)).ingest(texts)
    claim = await one(queue(client))
    assert claim.turn is not None
    assert claim.turn.scope == scope


async def test_a_wake_list_never_holds_two_tokens(client: RedisClient) -> None:
    """One token wakes one idle worker; more would wake a herd."""
    for chat in ("owner/a", "owner/b"):
        await say(Inbox(client), chat=chat)
    assert await client.command("LLEN", keys.wake("turns")) == 1


async def test_a_chat_has_the_title_of_its_first_message(client: RedisClient) -> None:
    """Later ones change nothing."""
    for text in ("How are otters?", "And seals?"):
        await say(Inbox(client), text)
    [chat] = await Chats(client).latest("web", "owner")
    assert chat.title == "How are otters?"
