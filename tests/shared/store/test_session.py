"""Sessions and the script behind chat commands: once, in one step, and never at the cost of another message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shared.errors import BadInput, BadRecord, LeaseLost, TooBig
from shared.ids import nonce
from shared.messages.codec import encode
from shared.messages.inbound import InboundMessage
from shared.messages.live import TurnEvent, decode_live
from shared.messages.outbound import OutboundMessage, UserLine, decode_line
from shared.messages.transcript import AssistantEntry, UserEntry, decode_transcript
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.fanout import Fanout
from shared.store.delivery.outbox import Outbox, read_line
from shared.store.sessions.memory import MemoryChanged, MemoryStore
from shared.store.sessions.session import Change, CommandAnswered, InboxChanged, Sessions, SessionState
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, reply, say
from tests.helpers.wait import eventually

SESSION = "web:owner/a"
ENDS: tuple[Change, ...] = ("new", "forget")


def queue(client: RedisClient) -> LeaseQueue:
    return LeaseQueue(client, "turns", owner=nonce(), lease_s=30)


async def one(client: RedisClient) -> Claim:
    [claim] = await queue(client).acquire(1)
    return claim


async def commit(client: RedisClient, claim: Claim) -> bool:
    assert claim.turn is not None
    n = claim.turn.n
    committed = await Turns(client).commit(
        claim,
        history=[UserEntry(content="q", turn=n), AssistantEntry(content="a", turn=n)],
        lines=[reply("yes", n)],
        event=TurnEvent(n, "done"),
    )
    return committed.first


async def answer(
    client: RedisClient,
    change: Change = "",
    *,
    texts: InboundMessage | None = None,
    state: SessionState | None = None,
    preset: str = "",
) -> CommandAnswered:
    """Answer a command as a gateway does."""
    texts = texts or message(f"/{change or 'status'}", id=nonce())
    sessions = Sessions(client)
    state = state or await sessions.state(texts.session)
    line = OutboundMessage(content="done", turn=0, in_reply_to=(texts.id,), kind="command")
    shown = UserLine(id=texts.id, text=texts.content)
    return await sessions.answer_command(
        texts, line, state, change=change, preset=preset, log_line=shown, principal="owner"
    )


async def contents(client: RedisClient) -> dict[bytes, bytes]:
    """All there is in Redis but what was seen and shown."""
    names = [
        name
        for name in await client.command("KEYS", "*")
        if not name.startswith((b"shoal:{0ax}:seen", b"shoal:{0ax}:chats"))
    ]
    return dict(zip(names, await client.pipeline([("DUMP", name) for name in names]), strict=True)) if names else {}


async def test_a_session_of_which_nothing_is_known_is_empty(client: RedisClient) -> None:
    """Also `/status` as the first word of a chat has an answer."""
    assert await Sessions(client).state(SESSION) == SessionState(scope=f"chat:{SESSION}")


async def test_the_state_tells_who_waits_and_what_runs(client: RedisClient) -> None:
    """Ids in order, the turn at the head, and whether somebody holds it."""
    inbox, sessions = Inbox(client), Sessions(client)
    await say(inbox, id="m1")
    await commit(client, await one(client))
    await say(inbox, id="m2")
    await say(inbox, id="m3")
    before = await sessions.state(SESSION)
    assert (before.counter, before.waiting, before.turn, before.running) == (3, ("m2", "m3"), 2, False)
    assert before.entries == 2
    await one(client)
    after = await sessions.state(SESSION, scope="user:web:owner")
    assert (after.running, after.attempt, after.scope) == (True, 1, "user:web:owner")


async def test_a_message_that_cannot_be_read_still_counts_as_waiting(client: RedisClient) -> None:
    """It can be dropped like any other."""
    await say(Inbox(client), id="m1")
    await client.command("XADD", keys.inbox(SESSION), "2-0", "v", 1, "m", b"\xff")
    await client.command("HSET", keys.session(SESSION), "n", 2)
    assert (await Sessions(client).state(SESSION)).waiting == ("m1", "")
    await answer(client, "new")
    assert await client.command("EXISTS", keys.inbox(SESSION)) == 0


async def test_an_answer_is_the_line_behind_its_command_and_no_turn(client: RedisClient) -> None:
    """Nothing is due, nobody wakes, the chat is listed."""
    answered = await answer(client, texts=message("/status", id="c1"))
    assert answered == CommandAnswered(1, duplicate=False)
    first, second = await Outbox(client).read_after(SESSION, after=0)
    assert (first.seq, second.seq) == (1, 2)
    assert isinstance(first.line, UserLine)
    assert isinstance(second.line, OutboundMessage)
    assert (second.line.kind, second.line.in_reply_to) == ("command", ("c1",))
    left = await client.command("EXISTS", keys.queue("turns"), keys.wake("turns"), keys.inbox(SESSION))
    assert left == 0
    assert await client.command("ZRANGE", keys.chats("web", "owner"), 0, -1) == [b"owner/a"]
    assert await client.command("HGET", keys.session(SESSION), "title") is None, "a chat is not called after a command"
    assert await client.command("TTL", keys.session(SESSION)) > 0


async def test_a_command_during_a_turn_leaves_the_turn_alone(client: RedisClient) -> None:
    """`/status` while the agent works: the lease, the inbox and the queue stay as they are."""
    await say(Inbox(client), id="m1")
    claim = await one(client)
    await answer(client)
    assert await commit(client, claim)


@pytest.mark.parametrize("change", ["", "new", "forget", "stop", "preset"])
async def test_the_same_command_again_changes_nothing(client: RedisClient, change: Change) -> None:
    """A second delivery, also much later, gets the first answer; what came in between is left alone."""
    sessions, again = Sessions(client), message("/x", id="c1")
    await say(Inbox(client), id="m1")
    first = await answer(client, change, texts=again, preset="fast")
    if change not in ENDS:
        await commit(client, await one(client))
    await say(Inbox(client), id="m2")
    claim = await one(client)
    await answer(client, "preset", preset="slow")
    before = await contents(client)
    state = await sessions.state(SESSION)
    second = await answer(client, change, texts=again, state=state, preset="fast")
    assert (second.seq, second.duplicate, first.duplicate) == (first.seq, True, False)
    assert await contents(client) == before
    assert await commit(client, claim)


async def test_a_command_delivered_everywhere_at_once_has_one_effect(client: RedisClient) -> None:
    """Several gateways get the same message: one generation, one answer."""
    await say(Inbox(client))
    texts = message("/new", id="c1")
    answers = await asyncio.gather(*(_patient(client, texts) for _ in range(30)))
    assert sum(not one.duplicate for one in answers) == 1
    assert (await Sessions(client).state(SESSION)).generation == 1
    assert len(await Outbox(client).read_after(SESSION, after=0)) == 3


async def _patient(client: RedisClient, texts: InboundMessage) -> CommandAnswered:
    while True:
        try:
            return await answer(client, "new", texts=texts)
        except InboxChanged:
            continue


async def test_an_id_that_was_a_command_is_no_message_afterwards(client: RedisClient) -> None:
    """A release that does not know the word gets it delivered again: known, no turn, also while others wait."""
    await say(Inbox(client), id="m1")
    answered = await answer(client, texts=message("/status", id="c1"))
    accepted = await say(Inbox(client), "/status", id="c1")
    assert (accepted.turn, accepted.ahead, accepted.seq, accepted.duplicate) == (0, 0, answered.seq, True)


async def test_an_id_that_was_a_message_is_no_command_afterwards(client: RedisClient) -> None:
    """The other way round."""
    accepted = await say(Inbox(client), "/new", id="m1")
    assert await answer(client, "new", texts=message("/new", id="m1")) == CommandAnswered(accepted.seq, duplicate=True)
    assert (await Sessions(client).state(SESSION)).waiting == ("m1",)


# New and forget


@pytest.mark.parametrize("change", ENDS)
async def test_a_new_generation_ends_the_turn_drops_what_waits_and_begins_at_once(
    client: RedisClient, change: Change
) -> None:
    """The old turn's late writes are refused; the next message is a first attempt of its own."""
    inbox = Inbox(client)
    for id in ("m1", "m2", "m3"):
        await say(inbox, id=id)
    old = await one(client)
    turns = Turns(client)
    await turns.append_step(old, 1, AssistantEntry(content="thinking", turn=1))
    await answer(client, change)
    state = await Sessions(client).state(SESSION)
    assert (state.generation, state.waiting, state.running, state.counter) == (1, (), False, 3)
    gone = [keys.inbox(SESSION), keys.ledger(SESSION), keys.queue("turns"), keys.leases("turns"), keys.history(SESSION)]
    assert await client.command("EXISTS", *gone) == 0
    await say(inbox, "after", id="m4")
    new = await one(client)
    assert new.turn is not None
    assert (new.turn.n, new.turn.attempt, new.turn.crashes, new.turn.ledger, new.turn.history) == (4, 1, 0, (), ())
    for write in _writes(client, old):
        with pytest.raises(LeaseLost):
            await write()
    assert await commit(client, new)
    assert await client.command("EXISTS", keys.DEAD) == 0


def _writes(client: RedisClient, claim: Claim) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: commit(client, claim),
        lambda: Turns(client).append_step(claim, 2, AssistantEntry(content="more", turn=1)),
        lambda: queue(client).release(claim, count="errors"),
        lambda: MemoryStore(client).write_memory(f"chat:{SESSION}", "late", version="0", claim=claim),
    ]


@pytest.mark.parametrize("change", ENDS)
async def test_the_worker_and_the_page_learn_that_the_turn_is_over(client: RedisClient, change: Change) -> None:
    """On the control channel and on the chat's own, before the lines."""
    events: list[bytes] = []
    news = Fanout(client, on_gap=_nothing)
    await news.subscribe(keys.CONTROL, events.append)
    await news.subscribe(keys.live(SESSION), events.append)
    listening = asyncio.create_task(news.run())
    await eventually(lambda: _listened(client))
    await say(Inbox(client), id="m1")
    await one(client)
    await answer(client, change)
    await eventually(lambda: len(events) == 6)
    listening.cancel()
    _, began, control, event, command, published = events
    assert decode_live(began) == TurnEvent(1, "started")
    assert control == f"{keys.turn(SESSION)} 1".encode()
    assert decode_live(event) == TurnEvent(1, "stopped")
    assert (command.split(b" ")[0], published.split(b" ")[0]) == (b"2", b"3")


async def _nothing() -> None:
    pass


async def _listened(client: RedisClient) -> bool:
    return len(await client.command("PUBSUB", "CHANNELS", "shoal:{0ax}:*")) == 2


@pytest.mark.parametrize("change", ENDS)
async def test_an_answer_that_does_not_fit_any_more_is_refused_and_nothing_happens(
    client: RedisClient, change: Change
) -> None:
    """A message that came, or a reply that was given, since the state was read is not dropped unseen."""
    inbox, sessions = Inbox(client), Sessions(client)
    empty = await sessions.state(SESSION)
    await say(inbox, id="m1")
    waiting = await sessions.state(SESSION)
    before = await contents(client)
    with pytest.raises(InboxChanged):
        await answer(client, change, state=empty)
    assert await contents(client) == before
    await commit(client, await one(client))
    before = await contents(client)
    with pytest.raises(InboxChanged):
        await answer(client, change, state=waiting)
    assert await contents(client) == before


@pytest.mark.parametrize("change", ENDS)
async def test_another_message_in_the_place_of_the_one_that_was_seen_is_not_dropped(
    client: RedisClient, change: Change
) -> None:
    """As many wait as before, but not the same ones."""
    inbox = Inbox(client)
    await say(inbox, id="m1")
    seen = await Sessions(client).state(SESSION)
    await commit(client, await one(client))
    await say(inbox, id="m2")
    with pytest.raises(InboxChanged):
        await answer(client, change, state=seen)
    assert (await Sessions(client).state(SESSION)).waiting == ("m2",)


@pytest.mark.parametrize("change", ENDS)
async def test_a_stop_before_leaves_nothing_behind(client: RedisClient, change: Change) -> None:
    """The flag goes with the turn that it named."""
    await say(Inbox(client))
    await answer(client, "stop")
    await answer(client, change)
    assert await client.command("HGET", keys.session(SESSION), "stop") is None


async def test_a_new_conversation_keeps_the_old_one_for_memory_in_order(client: RedisClient) -> None:
    """Two conversations ended one after the other lie in the archive as they were said; the sweep knows of them."""
    inbox = Inbox(client)
    for n in (1, 2):
        await say(inbox)
        await commit(client, await one(client))
        await answer(client, "new")
        assert await client.command("LLEN", keys.archive(SESSION)) == 2 * n
    found = await MemoryStore(client).read_unconsolidated(SESSION, "archive")
    assert [read_turn(entry) for entry in found.entries] == [1, 1, 2, 2]
    assert await client.command("ZSCORE", keys.IDLE, SESSION) is not None
    await say(inbox)
    claim = await one(client)
    assert claim.turn is not None
    assert claim.turn.history == ()


def read_turn(entry: bytes) -> int:
    return decode_transcript(entry).turn


async def test_an_empty_conversation_archives_nothing(client: RedisClient) -> None:
    """`/new` in an empty chat leaves no debris."""
    await answer(client, "new")
    assert await client.command("EXISTS", keys.archive(SESSION), keys.IDLE) == 0


async def test_forget_deletes_what_is_remembered_and_keeps_what_is_shown(client: RedisClient) -> None:
    """MEMORY.md, HISTORY.md, the conversation and the archive go; the log of the chat stays."""
    inbox, memory = Inbox(client), MemoryStore(client)
    scope = f"chat:{SESSION}"
    await say(inbox, "I like tea", id="m1")
    await commit(client, await one(client))
    await answer(client, "new")
    await memory.consolidate(
        SESSION,
        await memory.read_unconsolidated(SESSION, "archive"),
        take=1,
        entry="[2026-01-01 10:00] tea",
        rework_ms=1,
    )
    version = await memory.write_memory(scope, "likes tea", version=(await memory.read_memory(scope)).version)
    await say(inbox, "and coffee", id="m2")
    await commit(client, await one(client))
    sessions = Sessions(client)
    had = await sessions.memory_size(scope)
    assert (had.memory_bytes, had.log_entries) == (9, 1)
    await answer(client, "forget")
    assert (await memory.read_memory(scope)).text == ""
    assert await memory.read_log(scope) == []
    has = await sessions.memory_size(scope)
    assert (has.memory_bytes, has.log_entries) == (0, 0)
    assert (await memory.read_unconsolidated(SESSION)).entries == ()
    assert (await memory.read_unconsolidated(SESSION, "archive")).entries == ()
    assert await client.command("EXISTS", keys.REWORK, keys.IDLE) == 0
    assert len(await Outbox(client).read_after(SESSION, after=0)) == 8
    with pytest.raises(MemoryChanged):
        await memory.write_memory(scope, "likes tea and coffee", version=version)


@pytest.mark.parametrize("change", ENDS)
@pytest.mark.parametrize("source", ["history", "archive"])
async def test_a_consolidation_that_began_before_does_not_bring_back_what_is_over(
    client: RedisClient, change: Change, source: str
) -> None:
    """It read the old conversation; what it would write is refused, once the conversation is gone from where it was."""
    inbox, memory = Inbox(client), MemoryStore(client)
    await say(inbox)
    await commit(client, await one(client))
    if source == "archive":
        await answer(client, "new")
    read = await memory.read_unconsolidated(SESSION, "archive" if source == "archive" else "history")
    old = await memory.read_memory(read.scope)
    await answer(client, change)
    new = type(old)("secret", old.version)
    done = await memory.consolidate(SESSION, read, take=2, entry="[2026-01-01 10:00] secret", memory=new)
    kept = source == "archive" and change == "new"
    assert done is kept
    assert bool(await memory.read_log(read.scope)) is kept
    assert ((await memory.read_memory(read.scope)).text == "secret") is kept


# Stop


async def test_stop_names_the_turn_at_the_head_and_no_other(client: RedisClient) -> None:
    """The flag is for turn 1: the worker finds it, and the turn behind it runs as if nothing had been."""
    inbox, sessions = Inbox(client), Sessions(client)
    await say(inbox)
    await say(inbox)
    worker = queue(client)
    [claim] = await worker.acquire(1)
    await answer(client, "stop")
    assert await worker.renew([claim]) == [1]
    await commit(client, claim)
    [second] = await worker.acquire(1)
    assert second.turn is not None
    assert (second.turn.n, second.turn.stop) == (2, 0)
    assert await worker.renew([second]) == [0]
    assert (await sessions.state(SESSION)).generation == 0


async def test_a_stop_for_an_earlier_turn_is_refused(client: RedisClient) -> None:
    """Between reading and writing the turn ended: its answer would be a lie, and the next turn is not to be hit."""
    inbox, sessions = Inbox(client), Sessions(client)
    await say(inbox)
    await say(inbox)
    named = await sessions.state(SESSION)
    await commit(client, await one(client))
    with pytest.raises(InboxChanged):
        await answer(client, "stop", state=named)
    nothing = SessionState(scope=f"chat:{SESSION}")
    with pytest.raises(InboxChanged):
        await answer(client, "stop", state=nothing)
    assert await client.command("HGET", keys.session(SESSION), "stop") is None


async def test_a_stop_of_nothing_leaves_no_flag_for_what_comes(client: RedisClient) -> None:
    """The next message is answered."""
    await answer(client, "stop")
    await say(Inbox(client))
    claim = await one(client)
    assert claim.turn is not None
    assert claim.turn.stop == 0


async def test_a_stop_wakes_somebody_for_a_turn_that_waits_for_its_model(client: RedisClient) -> None:
    """It was put back for a minute: whoever takes it now ends it."""
    await say(Inbox(client))
    worker = queue(client)
    [claim] = await worker.acquire(1)
    await worker.release(claim, delay_s=60, count="away")
    await client.command("DEL", keys.wake("turns"))
    assert (await Sessions(client).state(SESSION)).model_unavailable_since > 0
    await answer(client, "stop")
    assert await client.command("LLEN", keys.wake("turns")) == 1
    [again] = await worker.acquire(1)
    assert again.turn is not None
    assert again.turn.stop == 1


# Presets, and who may


async def test_a_chosen_model_is_kept_over_new_and_handed_to_the_next_turn(client: RedisClient) -> None:
    """Until another is chosen, or the usual one again."""
    inbox = Inbox(client)
    await answer(client, "preset", preset="fast")
    await answer(client, "new")
    await say(inbox)
    claim = await one(client)
    assert claim.turn is not None
    assert claim.turn.preset == "fast"
    await commit(client, claim)
    await answer(client, "preset")
    await say(inbox)
    claim = await one(client)
    assert claim.turn is not None
    assert claim.turn.preset == ""


async def test_commands_of_reserved_channels_and_too_long_ones_are_refused(client: RedisClient) -> None:
    """As messages are."""
    with pytest.raises(BadInput) as refused:
        await answer(client, texts=message("/new", channel="system"))
    assert refused.value.code == "reserved_channel"
    with pytest.raises(TooBig):
        await answer(client, texts=message("/memory " + "x" * 70_000))
    assert await client.command("DBSIZE") == 0


async def test_a_release_before_reads_the_answer_as_a_line_it_cannot_show(client: RedisClient) -> None:
    """Kinds are added; an unknown one never breaks a chat."""
    line = encode(OutboundMessage(content="x", turn=0, kind="from the future"))  # type: ignore[arg-type]
    shown = read_line(line)
    assert isinstance(shown, OutboundMessage)
    assert shown.kind == "notice"
    with pytest.raises(BadRecord):
        decode_line(line)


async def test_an_archive_over_its_cap_drops_its_oldest_entries_and_counts_them(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is away for long does not let one chat fill the store; the mark moves with what goes."""
    monkeypatch.setattr("shared.store.sessions.session.ARCHIVE_CAP_BYTES", 150)
    for number in range(4):
        await say(Inbox(client), id=f"m{number}")
        await commit(client, await one(client))
        await answer(client, "new")
    session = keys.session(SESSION)
    kept = await client.command("LRANGE", keys.archive(SESSION), 0, -1)
    assert 0 < sum(map(len, kept)) <= 150
    assert int(await client.command("HGET", session, "archive")) == sum(map(len, kept))
    assert int(await client.command("HGET", session, "archive_mark")) == 8 - len(kept)
    assert decode_transcript(kept[-1]).turn == 4, "the newest stay"
    store = MemoryStore(client)
    read = await store.read_unconsolidated(SESSION, "archive")
    assert await store.consolidate(SESSION, read, take=len(kept), entry="all of it")
    assert await client.command("HGET", session, "archive") is None
