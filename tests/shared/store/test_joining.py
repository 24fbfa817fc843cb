"""Messages that join a running turn, and messages that are taken back: exactly one of the two, and never neither."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shared.errors import LeaseLost, TurnStopped
from shared.ids import nonce
from shared.messages.codec import SCHEMA_VERSION, encode
from shared.messages.inbound import decode_inbound
from shared.messages.live import TurnEvent
from shared.messages.outbound import OutboundMessage, UserLine
from shared.messages.transcript import AssistantEntry, JoinEntry, decode_ledger
from shared.settings.sections.chats import Busy
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.sessions.session import Sessions
from shared.store.turns.dead_letters import DeadLetters
from shared.store.turns.inbox import Accepted, Inbox, InboxLimits
from shared.store.turns.known_messages import Withdrawals
from shared.store.turns.queue import Claim, LeaseQueue
from shared.store.turns.turn_writes import DeadLetter, JoinedMessages, Turns
from tests.helpers.build import message, reply

SESSION = "web:owner/a"


class Chat:
    """One chat, its gateways and its workers."""

    def __init__(self, client: RedisClient, busy: Busy = "steer", cap: int = 50) -> None:
        self.client = client
        limits = InboxLimits(busy=busy, merge_ms=0, cap=cap)
        self.inbox, self.turns = Inbox(client, limits), Turns(client, limits)
        self.withdrawals, self.sessions = Withdrawals(client, limits), Sessions(client, limits)

    async def say(self, id: str, text: str = "hello") -> Accepted:
        return await self.inbox.ingest(message(text, id=id), log_line=UserLine(id=id, text=text), principal="owner")

    async def acquire(self) -> Claim:
        [claim] = await LeaseQueue(self.client, "turns", owner=nonce(), lease_s=30).acquire(1)
        return claim

    async def take(self, claim: Claim, step: int, *, at_start: bool = False) -> JoinedMessages | None:
        return await self.turns.join_waiting(claim, step, at_start=at_start)

    async def withdraw(self, id: str) -> str:
        return await self.withdrawals.withdraw("web", "owner/a", id)

    async def commit(self, claim: Claim, dead: DeadLetter | None = None) -> None:
        assert claim.turn is not None
        n = claim.turn.n
        await self.turns.commit(claim, history=[], lines=[reply("x", n)], event=TurnEvent(n, "done"), dead=dead)

    async def waiting(self) -> list[int]:
        return [int(id.split(b"-")[0]) for id, _ in await self.client.command("XRANGE", keys.inbox(SESSION), "-", "+")]


@pytest.fixture
def chat(client: RedisClient) -> Chat:
    return Chat(client)


def ids(records: Sequence[tuple[int, bytes]]) -> list[str]:
    return [decode_inbound(record).id for _, record in records]


async def test_what_joined_is_handed_to_a_successor_at_its_place(chat: Chat) -> None:
    """The ledger says where, the inbox keeps the message; commit ends all of them."""
    await chat.say("a")
    claim = await chat.acquire()
    await chat.turns.append_step(claim, 1, AssistantEntry(content="one", turn=1))
    await chat.say("b")
    await chat.say("c")
    joined_now = await chat.take(claim, 2)
    assert joined_now is not None
    assert (joined_now.entry.turn, joined_now.entry.messages, ids(joined_now.records)) == (1, (2, 3), ["b", "c"])
    await LeaseQueue(chat.client, "turns", owner=claim.owner, lease_s=30).release(claim)

    again = await chat.acquire()
    assert again.turn is not None
    assert [type(decode_ledger(step)) for step in again.turn.ledger] == [AssistantEntry, JoinEntry]
    assert (ids(again.turn.joined), again.turn.steers) == (["b", "c"], True)
    await chat.say("d")
    await chat.commit(again)
    assert await chat.waiting() == [4]
    assert await chat.client.command("HGET", keys.session(SESSION), "taken") is None


async def test_the_same_step_again_takes_nothing_more(chat: Chat) -> None:
    """An answer that was lost: what came meanwhile waits for the next border."""
    await chat.say("a")
    claim = await chat.acquire()
    await chat.say("b")
    first = await chat.take(claim, 1)
    await chat.say("c")
    assert await chat.take(claim, 1) == first
    second = await chat.take(claim, 2)
    assert second is not None
    assert ids(second.records) == ["c"]
    assert await chat.take(claim, 3) is None


async def test_who_lost_the_lease_takes_nothing(chat: Chat) -> None:
    """The fence is that of every write of a turn."""
    await chat.say("a")
    late = await chat.acquire()
    await LeaseQueue(chat.client, "turns", owner=late.owner, lease_s=30).release(late)
    await chat.acquire()
    await chat.say("b")
    with pytest.raises(LeaseLost):
        await chat.take(late, 1)
    assert await chat.client.command("EXISTS", keys.ledger(SESSION)) == 0


async def test_a_stopped_turn_takes_nothing_with_it(chat: Chat) -> None:
    """/stop never eats the next message, also when the worker has not heard of it yet."""
    await chat.say("a")
    claim = await chat.acquire()
    await chat.inbox.stop(SESSION)
    await chat.say("b")
    with pytest.raises(TurnStopped):
        await chat.take(claim, 1)
    await chat.commit(claim)
    assert await chat.waiting() == [2]
    again = await chat.acquire()
    assert again.turn is not None
    assert (again.turn.n, again.turn.stop) == (2, 0)


async def test_stop_for_a_message_that_joined_means_its_turn(chat: Chat) -> None:
    """A page that names the message's own number stops the turn that answers it."""
    await chat.say("a")
    claim = await chat.acquire()
    await chat.say("b")
    await chat.say("c")
    assert await chat.inbox.stop(SESSION, 2) is None
    await chat.take(claim, 1)
    assert await chat.inbox.stop(SESSION, 2) == 1


async def test_what_nobody_marked_stops_the_row(client: RedisClient) -> None:
    """Order is kept: a message behind one that does not join waits, too; so does one of a newer schema."""
    steer, queue = Chat(client, "steer"), Chat(client, "queue")
    await steer.say("a")
    claim = await steer.acquire()
    await steer.say("b")
    await queue.say("c")
    await steer.say("d")
    joined_now = await steer.take(claim, 1)
    assert joined_now is not None
    assert ids(joined_now.records) == ["b"]
    assert await steer.take(claim, 2) is None
    await steer.commit(claim)

    claim = await steer.acquire()
    await steer.commit(claim)
    claim = await steer.acquire()
    record = encode(message("newer"))
    await client.command("HSET", keys.session(SESSION), "n", 5)
    await client.command("XADD", keys.inbox(SESSION), "5-0", "v", SCHEMA_VERSION + 1, "m", record, "b", "steer")
    assert await steer.take(claim, 1) is None


async def test_ahead_counts_turns_and_not_what_joined_them(chat: Chat) -> None:
    """ "Received, 1 ahead of you" is true also when the turn before has taken others along."""
    await chat.say("a")
    claim = await chat.acquire()
    assert [(await chat.say(id)).ahead for id in "bc"] == [1, 2]
    await chat.take(claim, 1)
    assert (await chat.say("d")).ahead == 1
    assert [(await chat.say(id)).ahead for id in "abcd"] == [0, 0, 0, 1], "asked again"
    state = await chat.sessions.state(SESSION)
    assert (len(state.waiting), state.joined) == (4, 2)


async def test_a_dead_letter_holds_every_message_of_its_turn(chat: Chat) -> None:
    """Each can be put back by itself, under a reference of its own."""
    for id in "ab":
        await chat.say(id, f"text of {id}")
    claim = await chat.acquire()
    await chat.take(claim, 1)
    assert claim.turn is not None
    await chat.commit(claim, DeadLetter("error 1234abcd", claim.turn.record))
    letters = DeadLetters(chat.client, chat.inbox)
    found = [letter async for letter in letters.all()]
    assert [(letter.reference, letter.turn) for letter in found] == [("1234abcd", 1), ("1234abcd.1", 2)]
    for letter in found:
        assert await letters.replay(letter) is not None
    records = await chat.client.command("XRANGE", keys.inbox(SESSION), "-", "+")
    assert [decode_inbound(fields[3]).content for _, fields in records] == ["text of a", "text of b"]


async def test_new_drops_what_joined_as_well(chat: Chat) -> None:
    """Nothing of the ended generation is left for the next turn."""
    for id in "ab":
        await chat.say(id)
    claim = await chat.acquire()
    await chat.take(claim, 1)
    state = await chat.sessions.state(SESSION)
    log_lines = message("/new")
    await chat.sessions.answer_command(
        log_lines, OutboundMessage(content="New.", turn=2, kind="command"), state, change="new"
    )
    assert await chat.client.command("HMGET", keys.session(SESSION), "taken", "cut") == [None, None]
    with pytest.raises(LeaseLost):
        await chat.commit(claim)


async def test_a_waiting_message_can_be_withdrawn(chat: Chat) -> None:
    """It gets no turn, every device is told, and the one behind it is as it was."""
    for id in "abc":
        await chat.say(id)
    claim = await chat.acquire()
    assert await chat.withdraw("b") == "withdrawn"
    assert await chat.withdraw("b") == "withdrawn", "said twice"
    assert await chat.waiting() == [1, 3]
    joined_now = await chat.take(claim, 1)
    assert joined_now is not None
    assert ids(joined_now.records) == ["c"]
    lines = [one.line for one in await Outbox(chat.client).read_after(SESSION, after=0)]
    [result] = [line for line in lines if isinstance(line, OutboundMessage)]
    assert (result.kind, result.in_reply_to, result.turn) == ("withdrawn", ("b",), 0)
    again = await chat.say("b")
    assert (again.duplicate, again.turn, again.ahead) == (True, 0, 0), "sent again it is still withdrawn"


async def test_what_a_turn_began_with_cannot_be_withdrawn(chat: Chat) -> None:
    """Running, joined, drained in the middle, answered, unknown: each has its answer, and nothing is changed."""
    for id in "ab":
        await chat.say(id)
    claim = await chat.acquire()
    await chat.take(claim, 1)
    assert [await chat.withdraw(id) for id in "abz"] == ["answering", "answering", "unknown"]
    await LeaseQueue(chat.client, "turns", owner=claim.owner, lease_s=30).release(claim)
    assert [await chat.withdraw(id) for id in "ab"] == ["answering", "answering"]
    await chat.commit(await chat.acquire())
    assert [await chat.withdraw(id) for id in "ab"] == ["over", "over"]
    assert await chat.waiting() == []


async def test_the_last_waiting_message_withdrawn_leaves_nothing(chat: Chat) -> None:
    """No entry in the queue, no counts that the next message would pay for."""
    await chat.say("a")
    claim = await chat.acquire()
    queue = LeaseQueue(chat.client, "turns", owner=claim.owner, lease_s=30)
    await queue.release(claim, delay_s=60, count="errors")
    assert await chat.withdraw("a") == "withdrawn"
    assert await chat.client.command("EXISTS", keys.inbox(SESSION), keys.queue("turns")) == 0
    await chat.say("b")
    again = await chat.acquire()
    assert again.turn is not None
    assert (again.turn.n, again.turn.errors, again.turn.attempt) == (2, 0, 1)


async def test_the_head_withdrawn_lets_the_next_one_go_at_once(chat: Chat) -> None:
    """Its back-off was its own."""
    await chat.say("a")
    claim = await chat.acquire()
    await chat.say("b")
    await LeaseQueue(chat.client, "turns", owner=claim.owner, lease_s=30).release(claim, delay_s=60, count="away")
    await chat.client.command("DEL", keys.wake("turns"))
    assert await chat.withdraw("a") == "withdrawn"
    assert await chat.client.command("LLEN", keys.wake("turns")) == 1
    again = await chat.acquire()
    assert again.turn is not None
    assert (again.turn.n, again.turn.model_unavailable_ms) == (2, 0)


async def test_interrupt_ends_all_before_it_and_nothing_behind_it(client: RedisClient) -> None:
    """The running turn is told at once, what waited is ended when its time comes, the new message is answered."""
    chat, before = Chat(client, "interrupt"), Chat(client, "queue")
    for id in "ab":
        await before.say(id)
    claim = await chat.acquire()
    await chat.say("c")
    [result] = await LeaseQueue(client, "turns", owner=claim.owner, lease_s=30).renew([claim])
    assert result == 1
    assert await chat.turns.superseded(claim)
    await before.say("d")
    stops = []
    while (await chat.waiting()) != []:
        await chat.commit(claim)
        if await chat.waiting():
            claim = await chat.acquire()
            assert claim.turn is not None
            stops.append((claim.turn.n, claim.turn.stop))
    assert stops == [(2, 2), (3, 0), (4, 0)]
    assert await client.command("HGET", keys.session(SESSION), "cut") is None


async def test_an_interrupting_message_that_is_withdrawn_ends_nothing_more(client: RedisClient) -> None:
    """What ran was told at once, and that stands; what waited behind it is answered, as if nothing had been said."""
    chat, before = Chat(client, "interrupt"), Chat(client, "queue")
    for id in "abc":
        await before.say(id)
    claim = await chat.acquire()
    await chat.say("d")
    assert await chat.withdraw("d") == "withdrawn"
    assert await client.command("HGET", keys.session(SESSION), "cut") is None
    assert await rest(chat, claim) == [(2, 0), (3, 0)]


async def test_an_older_message_that_interrupts_still_does_when_a_newer_one_is_withdrawn(client: RedisClient) -> None:
    """Each ends what was there before itself, and no more."""
    chat, before = Chat(client, "interrupt"), Chat(client, "queue")
    for id in "ab":
        await before.say(id)
    claim = await chat.acquire()
    await chat.say("c")
    await before.say("d")
    await chat.say("e")
    assert await chat.withdraw("e") == "withdrawn"
    assert await client.command("HGET", keys.session(SESSION), "cut") == b"3"
    assert await rest(chat, claim) == [(2, 2), (3, 0), (4, 0)]


async def test_an_interrupting_message_that_is_withdrawn_behind_another_changes_nothing(client: RedisClient) -> None:
    """The newest one ends all before it, whatever became of those between."""
    chat, before = Chat(client, "interrupt"), Chat(client, "queue")
    await before.say("a")
    claim = await chat.acquire()
    for id in "bcd":
        await chat.say(id)
    assert await chat.withdraw("c") == "withdrawn"
    assert await rest(chat, claim) == [(2, 2), (4, 0)]


async def test_a_duplicate_learns_what_is_before_it_also_where_one_was_withdrawn(client: RedisClient) -> None:
    """Numbers have a gap there."""
    chat = Chat(client, "queue")
    for id in "abcd":
        await chat.say(id)
    assert [(await chat.say(id)).ahead for id in "abcd"] == [0, 1, 2, 3]
    assert await chat.withdraw("b") == "withdrawn"
    assert [(await chat.say(id)).ahead for id in "acd"] == [0, 1, 2]


async def rest(chat: Chat, claim: Claim) -> list[tuple[int, int]]:
    """Ends the turn that runs, and all that wait: number of each and what it was told to stop."""
    found = []
    await chat.commit(claim)
    while await chat.waiting():
        claim = await chat.acquire()
        assert claim.turn is not None
        found.append((claim.turn.n, claim.turn.stop))
        await chat.commit(claim)
    return found


async def test_a_turn_whose_steps_the_server_lost_takes_nothing(chat: Chat) -> None:
    """As with any step: whoever acquires next begins where the ledger really ends, and at once."""
    await chat.say("a")
    claim = await chat.acquire()
    await chat.turns.append_step(claim, 1, AssistantEntry(content="one", turn=1))
    await chat.client.command("DEL", keys.ledger(SESSION), keys.wake("turns"))
    await chat.say("b")
    with pytest.raises(LeaseLost):
        await chat.take(claim, 2)
    assert await chat.client.command("LLEN", keys.wake("turns")) == 1
    again = await chat.acquire()
    assert again.turn is not None
    assert (again.turn.ledger, again.turn.joined) == ((), ())


async def test_what_does_not_fit_into_the_ledger_makes_a_turn_of_its_own(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's message ends a turn because others wrote too."""
    monkeypatch.setattr("shared.store.turns.turn_writes.LEDGER_CAP_BYTES", 10)
    await chat.say("a")
    claim = await chat.acquire()
    await chat.say("b")
    assert await chat.take(claim, 1) is None
    await chat.commit(claim)
    assert await chat.waiting() == [2]
