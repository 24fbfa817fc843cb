"""Who comes next when slots are short: people before ticks, nobody with more than a share, none for ever behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise

import msgspec
import pytest

from console.top.problems import serves
from shared.errors import Refused
from shared.ids import nonce
from shared.messages.outbound import OutboundMessage
from shared.metrics import REGISTRY
from shared.process.fleet_gauges import FleetGauges
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import Presence, read_queue
from shared.store.sessions import erase
from shared.store.sessions.session import Sessions
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.known_messages import Withdrawals
from shared.store.turns.queue import Claim, LeaseQueue
from tests.helpers.build import message
from tests.helpers.sharing import Slots, person, tick, where

SESSION = "web:owner/a"
MEMBER = keys.turn(SESSION)


@pytest.fixture
def inbox(client: RedisClient) -> Inbox:
    return Inbox(client, InboxLimits(cap=2000))


def queue_of(client: RedisClient, owner: str = "w", **more: object) -> LeaseQueue:
    return LeaseQueue(client, "turns", owner=owner, lease_s=60, **more)  # type: ignore[arg-type]


async def take(client: RedisClient, count: int = 1) -> list[Claim]:
    return await queue_of(client).acquire(count)


# People and ticks


async def test_one_slot_in_five_is_for_the_background_while_people_wait(client: RedisClient, inbox: Inbox) -> None:
    """5 slots and both queues full: 20 of 100 turns, each in its order."""
    for i in range(120):
        await person(inbox, f"p{i:03}")
        await tick(inbox, f"tick/{i:03}")
    slots = Slots(client, 5)
    await slots.fill()
    await slots.turn(100)
    begun = slots.begun[:100]
    ticks = [i for i, chat in enumerate(begun) if chat.startswith("tick/")]
    assert len(ticks) == 20
    assert max(b - a for a, b in pairwise(ticks)) <= 6
    assert [begun[i] for i in ticks] == [f"tick/{i:03}" for i in range(20)]
    assert [chat for chat in begun if chat.startswith("p")] == [f"p{i:03}/a" for i in range(80)]


async def test_ticks_that_last_hold_one_slot_in_five_and_no_more(client: RedisClient, inbox: Inbox) -> None:
    """Were it counted by beginnings alone, long ones would come to fill every slot."""
    for i in range(60):
        await person(inbox, f"p{i:03}")
        await tick(inbox, f"tick/{i:03}")
    slots = Slots(client, 5)
    await slots.fill()
    for _ in range(40):
        await slots.end(next(claim for claim in slots.running if "tick" not in claim.session))
        assert sum("tick" in claim.session for claim in slots.running) <= 1
    assert sum("tick" in claim.session for claim in slots.running) == 1


async def test_ticks_take_every_slot_that_nobody_else_wants(client: RedisClient, inbox: Inbox) -> None:
    """No slot is kept free for people who are not there."""
    for i in range(10):
        await tick(inbox, f"tick/{i:03}")
    slots = Slots(client, 5)
    await slots.fill()
    assert len(slots.running) == 5
    await person(inbox, "p")
    assert await slots.until("p/a") == 0


async def test_one_slot_serves_both(client: RedisClient, inbox: Inbox) -> None:
    """A fifth of one slot is one turn in five."""
    for i in range(30):
        await person(inbox, f"p{i:03}")
        await tick(inbox, f"tick/{i:03}")
    slots = Slots(client, 1)
    await slots.fill()
    await slots.turn(25)
    assert [i for i, chat in enumerate(slots.begun[:25]) if "tick" in chat] == [4, 9, 14, 19, 24]


async def test_a_person_brings_their_chat_out_of_the_background(client: RedisClient, inbox: Inbox) -> None:
    """What waits there waits for a person from then on; a worker is woken; the tick is answered first, as it came."""
    for i in range(5):
        await tick(inbox, f"tick/{i:03}")
    await tick(inbox)
    assert await where(client) == ["background"]
    await client.command("DEL", keys.wake("turns"))
    await person(inbox, "owner")
    assert await where(client) == ["turns"]
    assert await client.command("LLEN", keys.wake("turns")) == 1
    [claim] = await take(client)
    assert (claim.session, claim.turn and claim.turn.n, claim.turn and claim.turn.background) == (SESSION, 1, True)


async def test_a_person_who_waits_behind_two_ticks_waits_for_both(client: RedisClient, inbox: Inbox) -> None:
    """After the first of them its chat stays among those that a person waits for, and then it goes back."""
    slots = Slots(client, 1)
    await tick(inbox)
    await slots.fill()
    await tick(inbox)
    await person(inbox, "owner")
    await tick(inbox)
    for expected in ("turns", "turns", "background"):
        await slots.commit(slots.running[0])
        assert await where(client) == [expected]
        await slots.fill()
    await slots.turn()
    assert await where(client) == []
    assert not await client.command("HEXISTS", keys.session(SESSION), "person")


async def test_what_runs_is_among_the_turns_until_it_ends(client: RedisClient, inbox: Inbox) -> None:
    """One lease, one fence; afterwards it goes where its next message wants it."""
    slots = Slots(client, 1)
    await tick(inbox)
    await slots.fill()
    assert (await where(client), await client.command("HLEN", keys.leases("turns"))) == (["turns"], 1)
    await tick(inbox)
    assert await where(client) == ["turns"]
    [claim] = slots.running
    await slots.queue.release(claim)
    assert await where(client) == ["background"]


# Their own place


GivenBack = Callable[[RedisClient, Claim], Awaitable[None]]


async def _drained(client: RedisClient, claim: Claim) -> None:
    await queue_of(client).release(claim)


async def _crashed(client: RedisClient, claim: Claim) -> None:
    await queue_of(client).release(claim, count="crashes")


async def _reclaimed(client: RedisClient, claim: Claim) -> None:
    assert await queue_of(client).release_unknown([]) == 2


async def test_who_is_left_alone_in_grace_hides_nobody(client: RedisClient, inbox: Inbox) -> None:
    """After an outage hundreds of leases have lapsed, and their owners come back; new messages do not wait for that."""
    for number in range(300):
        await person(inbox, f"p{number}")
    gone = LeaseQueue(client, "turns", owner=nonce(), lease_s=60)
    left = [claim.member for claim in await gone.acquire(300)]
    assert len(left) == 300
    await person(inbox, "new")
    seconds, _ = await client.command("TIME")
    lapsed = [part for number, member in enumerate(left) for part in (int(seconds) * 1000 - 5000 + number, member)]
    await client.command("ZADD", keys.queue("turns"), *lapsed)
    await client.command("ZADD", keys.queue("turns"), "XX", int(seconds) * 1000 - 10, keys.turn("web:new/a"))
    [claim] = await LeaseQueue(client, "turns", owner=nonce(), lease_s=60).acquire(1, grace=True)
    assert claim.session == "web:new/a"


async def test_a_turn_that_is_given_back_at_once_is_due_when_it_was_due(client: RedisClient, inbox: Inbox) -> None:
    """What it waited is not waited again, however often it is given back."""
    await inbox.ingest(message())
    member = keys.turn("web:owner/a")
    await client.command("ZADD", keys.queue("turns"), 1000, member)
    for _ in range(2):
        worker = LeaseQueue(client, "turns", owner=nonce(), lease_s=60)
        [claim] = await worker.acquire(1)
        await worker.release(claim)
        assert float(await client.command("ZSCORE", keys.queue("turns"), member)) == 1000
    await LeaseQueue(client, "turns", owner=nonce(), lease_s=60).acquire(1)


@pytest.mark.parametrize("given_back", [_drained, _crashed, _reclaimed])
async def test_a_turn_that_was_begun_keeps_its_place(client: RedisClient, inbox: Inbox, given_back: GivenBack) -> None:
    """Before all who came after it, though its person has had a turn since; its wait is counted from there."""
    for i in range(3):
        await person(inbox, "p", f"c{i:03}")
    for i in range(20):
        await person(inbox, f"q{i:03}")
    [first], [second] = await take(client), await take(client)
    assert (first.session, second.session) == ("web:p/c000", "web:q000/a")
    await client.command("HSET", keys.session("web:p/c000"), "place", 1000)
    await given_back(client, first)
    [again] = await take(client)
    assert (again.session, again.turn and again.turn.attempt) == ("web:p/c000", 2)
    assert again.waited_ms < 60_000


async def test_a_lapsed_lease_is_claimed_though_its_person_has_a_share(client: RedisClient, inbox: Inbox) -> None:
    """It is a turn that was begun; share and order are for those that were not."""
    for i in range(4):
        await person(inbox, "p", f"c{i:03}")
    await person(inbox, "q")
    queue = queue_of(client, person_share=0.5)
    for _ in range(3):
        await queue.acquire(1)
    await client.command("ZADD", keys.queue("turns"), 1000, keys.turn("web:p/c000"))
    [claim] = await queue_of(client, "other", person_share=0.5).acquire(1)
    assert (claim.session, claim.owner_lost) == ("web:p/c000", True)


# Nobody more than a share


async def test_a_person_with_200_chats_lets_others_in_after_one_turn(client: RedisClient, inbox: Inbox) -> None:
    """Whoever comes while all slots and the whole queue are one person's begins with the next slot but one."""
    for i in range(200):
        await person(inbox, "busy", f"c{i:03}")
    slots = Slots(client, 5)
    await slots.fill()
    await slots.turn(7)
    assert {chat.split("/")[0] for chat in slots.begun} == {"busy"}, "alone it has every slot"
    assert len(slots.running) == 5
    for i in range(20):
        await person(inbox, f"quiet{i:03}")
        assert await slots.until(f"quiet{i:03}/a") <= 1
    assert Counter(chat.split("/")[0] for chat in slots.begun)["busy"] >= 12


@pytest.mark.parametrize("slots", [1, 2, 5, 10])
async def test_two_who_always_wait_have_equal_shares(client: RedisClient, inbox: Inbox, slots: int) -> None:
    """Though all messages of one of them came first."""
    for who in ("first", "second"):
        for i in range(100):
            await person(inbox, who, f"c{i:03}")
    some = Slots(client, slots)
    await some.fill()
    await some.turn(100)
    counts = Counter(chat.split("/")[0] for chat in some.begun[:100])
    assert abs(counts["first"] - 50) <= max(1, slots // 2)


async def test_turns_that_last_leave_half_of_the_slots_to_others(client: RedisClient, inbox: Inbox) -> None:
    """A share is of what runs, not of what begins: long turns would fill every slot."""
    for i in range(50):
        await person(inbox, "long", f"c{i:03}")
    for i in range(100):
        await person(inbox, f"p{i % 25}", f"c{i:03}")
    slots = Slots(client, 10)
    await slots.fill()
    for _ in range(60):
        await slots.end(next(claim for claim in slots.running if not claim.session.startswith("web:long")))
        assert sum(claim.session.startswith("web:long") for claim in slots.running) <= 5


async def test_who_is_over_the_share_comes_before_an_empty_slot(client: RedisClient, inbox: Inbox) -> None:
    """And after everybody else, ticks but for their fifth included among those who come later."""
    for i in range(10):
        await person(inbox, "busy", f"c{i:03}")
    slots = Slots(client, 8)
    await slots.fill()
    assert len(slots.running) == 8


async def test_the_chats_of_a_group_are_no_one_persons(client: RedisClient, inbox: Inbox) -> None:
    """Where several people talk, the chat has the share, whoever spoke there last."""
    for i in range(6):
        texts = msgspec.structs.replace(message(chat=f"g/{i:03}"), sender_id="p", metadata={"group": "1"})
        await inbox.ingest(texts)
    assert await client.command("EXISTS", keys.FAIR_KEYS) == 0
    slots = Slots(client, 1)
    await slots.fill()
    await person(inbox, "q")
    await slots.turn(6)
    assert slots.begun == [*(f"g/{i:03}" for i in range(6)), "q/a"], "each is as old as it is"


async def test_a_chat_with_1000_messages_lets_others_in_after_one_turn(client: RedisClient, inbox: Inbox) -> None:
    """After each of its turns it stands at the tail."""
    for _ in range(1000):
        await person(inbox, "busy")
    slots = Slots(client, 1)
    await slots.fill()
    for i in range(20):
        await person(inbox, f"quiet{i:03}")
        assert await slots.until(f"quiet{i:03}/a") <= 1


async def test_more_chats_than_can_be_looked_at_make_room(client: RedisClient, inbox: Inbox) -> None:
    """256 of one person are looked at; one stays, the others go to the tail, and none is lost."""
    for i in range(1400):
        await person(inbox, "busy", f"c{i:03}")
    slots = Slots(client, 2)
    await slots.fill()
    await person(inbox, "quiet")
    assert await slots.until("quiet/a") <= 8
    await slots.turn(1400 - len(slots.begun) + 3)
    assert len(set(slots.begun)) == 1401
    assert await client.command("ZCARD", keys.queue("turns")) == 0


async def test_of_many_turns_that_run_a_sample_says_whose_they_are(client: RedisClient, inbox: Inbox) -> None:
    """The work of one acquire does not grow with the fleet; 400 slots of one person are seen as more than half."""
    for i in range(401):
        await person(inbox, "busy", f"c{i:03}")
    slots = Slots(client, 400)
    await slots.fill()
    await person(inbox, "quiet")
    await person(inbox, "quiet", "b")
    await slots.turn(2)
    assert slots.begun[-2:] == ["quiet/a", "quiet/b"]


async def test_turns_that_begin_at_once_are_shared_as_those_that_begin_one_by_one(
    client: RedisClient, inbox: Inbox
) -> None:
    """What one acquire has given to a person counts in that very acquire."""
    for who in ("first", "second"):
        for i in range(6):
            await person(inbox, who, f"c{i}")
    claims = await queue_of(client, person_share=0.5).acquire(6)
    begun = Counter(claim.session.split("/")[0] for claim in claims)
    assert begun == {"web:first": 3, "web:second": 3}


async def test_a_look_further_passes_over_nobody(client: RedisClient, inbox: Inbox) -> None:
    """What the same acquire has taken from the row is no longer in the queue, so the rest has moved up."""
    for i in range(3):
        await person(inbox, "busy", f"begun{i}")
    queue = queue_of(client, person_share=0.5)
    assert len(await queue.acquire(3)) == 3
    chats = ["quiet/a", *(f"busy/c{i:02}" for i in range(15)), "next/a", "last/a"]
    for due, chat in enumerate(chats, start=1):
        await person(inbox, *chat.split("/"))
        await client.command("ZADD", keys.queue("turns"), due, keys.turn(f"web:{chat}"))
    assert [claim.session for claim in await queue.acquire(2)] == ["web:quiet/a", "web:next/a"]


async def test_while_all_can_be_looked_at_nobody_goes_to_the_tail(client: RedisClient, inbox: Inbox) -> None:
    """Since when a chat waits is what operators and autoscaling see."""
    for i in range(4):
        await person(inbox, "busy", f"c{i}")
    waits = await client.command("ZRANGE", keys.queue("turns"), 1, -1, "WITHSCORES")
    assert len(await take(client)) == 1
    assert await client.command("ZRANGE", keys.queue("turns"), 0, 2, "WITHSCORES") == waits


# Nothing is forgotten there


async def test_a_tick_wakes_an_idle_worker_and_what_is_left_behind_the_next(client: RedisClient, inbox: Inbox) -> None:
    """One token at most, as for every other message."""
    await tick(inbox, "tick/000")
    await tick(inbox, "tick/001")
    assert await client.command("LLEN", keys.wake("turns")) == 1
    await client.command("DEL", keys.wake("turns"))
    [claim] = await take(client)
    assert await client.command("LLEN", keys.wake("turns")) == 1, "one is left"
    await client.command("DEL", keys.wake("turns"))
    await take(client)
    assert await client.command("LLEN", keys.wake("turns")) == 0
    await queue_of(client).release(claim)
    assert await client.command("LLEN", keys.wake("turns")) == 1


async def test_stop_ends_a_tick_that_waits_before_all_others(client: RedisClient, inbox: Inbox) -> None:
    """Somebody waits for its end."""
    await tick(inbox)
    await client.command("DEL", keys.wake("turns"))
    assert await inbox.stop(SESSION) == 1
    assert (await where(client), await client.command("LLEN", keys.wake("turns"))) == (["turns"], 1)
    [claim] = await take(client)
    assert claim.turn is not None
    assert claim.turn.stop == 1


@pytest.mark.parametrize("change", ["new", "forget", "erase", "withdraw"])
async def test_what_is_removed_from_a_chat_leaves_the_background(
    client: RedisClient, inbox: Inbox, change: str
) -> None:
    """Nothing stays of it, in no queue and in nobody's share."""
    texts = await tick(inbox)
    assert texts.turn == 1
    sessions = Sessions(client)
    if change == "erase":
        await erase.erase(client, SESSION)
    elif change == "withdraw":
        [(_, fields)] = await client.command("XRANGE", keys.inbox(SESSION), "-", "+")
        id = (await sessions.state(SESSION)).waiting[0]
        assert fields
        assert await Withdrawals(client).withdraw("web", "owner/a", id) == "withdrawn"
    else:
        line = OutboundMessage(content="New.", turn=1, kind="command")
        state = await sessions.state(SESSION)
        await sessions.answer_command(message("/new"), line, state, change=change)  # type: ignore[arg-type]
    assert await where(client) == []
    assert not await client.command("EXISTS", keys.FAIR_KEYS, keys.inbox(SESSION))
    assert await take(client) == []


async def test_the_cap_of_waiting_chats_counts_both_queues(client: RedisClient) -> None:
    """A flood of ticks is no way around it."""
    inbox = Inbox(client, InboxLimits(sessions_cap=2))
    await tick(inbox, "tick/000")
    await person(inbox, "p")
    with pytest.raises(Refused, match="too many chats"):
        await person(inbox, "q")


async def test_gauges_and_status_distinguish_them(client: RedisClient, inbox: Inbox) -> None:
    """What runs of the background has its lease among the turns, and is counted once."""
    for i in range(3):
        await tick(inbox, f"tick/{i:03}")
    await take(client)
    await person(inbox, "p")
    await take(client)
    await person(inbox, "q")
    turns, background = [await read_queue(client, name) for name in ("turns", keys.BACKGROUND)]
    assert (turns.due, turns.running, turns.delayed) == (1, 1, 0)
    assert (background.due, background.running, background.delayed) == (2, 1, 0)
    await FleetGauges(client).refresh()
    assert REGISTRY.get_sample_value("shoal_queue_due", {"queue": "background"}) == 2
    assert REGISTRY.get_sample_value("shoal_queue_running", {"queue": "background"}) == 1
    worker = Presence(kind="worker", name="w", host="h", pid=1, started_at=0, version="0", details={"queues": "turns"})
    assert serves(worker, keys.BACKGROUND)


async def test_a_record_of_a_newer_release_waits_where_it_is(client: RedisClient, inbox: Inbox) -> None:
    """It is put off for a second, in the background as among the turns, and in nobody's way."""
    await tick(inbox, "tick/000")
    await tick(inbox, "tick/001")
    await client.command("DEL", keys.inbox("web:tick/000"))
    await client.command("XADD", keys.inbox("web:tick/000"), "1-0", "v", "99", "m", "x", "p", "background")
    [claim] = await take(client)
    assert claim.session == "web:tick/001"
    assert await where(client, "web:tick/000") == ["background"]
