"""Subagents in the store: spawned with their step, ended once, capped without standing in anybody's way."""

from __future__ import annotations

import pytest

from shared.errors import BadInput, LeaseLost, ToolFailed, TurnStopped
from shared.messages.effects import SpawnEffect
from shared.messages.transcript import EffectEntry
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import erase, forget
from shared.store.subagents.subagents import Subagents
from shared.store.turns.inbox import Inbox, InboxLimits
from shared.store.turns.queue import SubagentCaps
from shared.store.turns.turn_writes import CHILDREN_CAP
from tests.helpers.build import say
from tests.helpers.children import CHAT, SESSION, Parent, end, jobs, reports, take, task


async def left(client: RedisClient) -> list[str]:
    """Everything that has to do with subagents."""
    names = [name.decode() for name in await client.command("KEYS", "*")]
    members = [member.decode() for member in await client.command("ZRANGE", keys.queue("jobs"), 0, -1)]
    kinds = ("child", "children", "subagents")
    return sorted([n for n in names if n.split(":")[2] in kinds] + [m for m in members if m.startswith("sub:")])


async def test_a_subagent_is_there_with_its_step_and_once(client: RedisClient) -> None:
    """Also when the answer was lost and the same step is sent again."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    parent.steps -= 1
    await parent.spawn("aaaaaaaa")
    [claim] = await take(client)
    assert claim.member == "sub:aaaaaaaa"
    assert await client.command("XLEN", keys.ledger(SESSION)) == 1
    assert await take(client) == []


async def test_a_worker_that_lost_its_turn_spawns_nothing(client: RedisClient) -> None:
    """The fence stands before the effect."""
    parent = await Parent.begin(client)
    await client.command("HDEL", keys.leases("turns"), parent.claim.member)
    with pytest.raises(LeaseLost):
        await parent.spawn("aaaaaaaa")
    assert await left(client) == []


@pytest.mark.parametrize("by", ["stop", "interrupt"])
async def test_a_stopped_turn_spawns_nothing_more(client: RedisClient, by: str) -> None:
    """Its worker hears of it a moment later: what it started by then would outlive the stop, for it was not there to
    be cancelled."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    if by == "stop":
        await Inbox(client).stop(SESSION)
    else:
        await say(Inbox(client, InboxLimits(busy="interrupt")))
    with pytest.raises(TurnStopped):
        await parent.spawn("bbbbbbbb")
    assert await client.command("XLEN", keys.ledger(SESSION)) == 1
    assert await Subagents(client).read_info("bbbbbbbb") is None


async def test_one_turn_spawns_so_many_and_the_next_one_again(client: RedisClient) -> None:
    """The sixth is refused, with nothing written; the count belongs to the turn."""
    parent = await Parent.begin(client)
    await parent.spawn("a", "b", per_turn=2)
    with pytest.raises(BadInput, match="at most 2"):
        await parent.spawn("c", per_turn=2)
    assert await client.command("XLEN", keys.ledger(SESSION)) == 2
    await parent.commit()
    following = await Parent.begin(client)
    await following.spawn("d", "e", per_turn=2)
    assert len(await take(client)) == 4


async def test_a_session_cannot_pile_up_subagents_without_end(client: RedisClient) -> None:
    """Each brings a report into the inbox: their number is its bound."""
    parent = await Parent.begin(client)
    await parent.spawn(*(f"child{n}" for n in range(CHILDREN_CAP)), per_turn=1000)
    with pytest.raises(BadInput, match="have not ended"):
        await parent.spawn("more", per_turn=1000)


async def test_the_end_and_its_report_are_one_step_done_once(client: RedisClient) -> None:
    """Sent again after a lost answer it changes nothing; a successor cannot end it a second time either."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    await parent.commit()
    [claim] = await take(client)
    assert await end(client, claim) == "reported"
    assert await end(client, claim) == "known"
    [report] = await reports(client)
    assert report.id == "child:aaaaaaaa"
    assert report.origin == ("web", CHAT)
    assert report.content.startswith(
        "[Subagent 'search' completed successfully]\n\nTask: look it up\n\nResult:\nfound\n"
    )
    assert await client.command("ZSCORE", keys.queue("turns"), keys.turn(SESSION)) is not None
    child = await Subagents(client).read_info("aaaaaaaa")
    assert child is not None
    assert (child.state, child.result) == ("ok", "found")
    assert 0 < await client.command("PTTL", keys.child("aaaaaaaa")) <= 3_600_000
    assert 0 < await client.command("PTTL", keys.children(SESSION)) <= 3_600_000


async def test_a_full_inbox_takes_a_report_all_the_same(client: RedisClient) -> None:
    """A result is never lost; people's messages have their own cap."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    for _ in range(49):
        await say(Inbox(client))
    [claim] = await take(client)
    assert await end(client, claim) == "reported"
    assert await client.command("XLEN", keys.inbox(SESSION)) == 51


async def test_a_worker_that_lost_a_subagent_cannot_end_it(client: RedisClient) -> None:
    """Owner and token, as for turns."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    [claim] = await take(client)
    await client.command("HSET", keys.leases("jobs"), claim.member, "other:1")
    with pytest.raises(LeaseLost):
        await end(client, claim)
    with pytest.raises(LeaseLost):
        await Subagents(client).save_progress(claim, rounds=1, tokens=5)
    assert await reports(client) == []


async def test_a_subagent_has_no_effects(client: RedisClient) -> None:
    """No message, no subagent of its own: whatever tool it is given."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    [claim] = await take(client)
    entry = EffectEntry(call_id="c", turn=1, kind="spawn")
    with pytest.raises(ToolFailed):
        await Subagents(client).append_step(claim, 1, entry, SpawnEffect(task=task("bbbbbbbb")))
    assert await client.command("EXISTS", keys.child("bbbbbbbb")) == 0


async def test_over_the_cap_of_a_session_they_wait_and_others_do_not(client: RedisClient) -> None:
    """A session with far more than its share stands in no other's way; whoever ends lets the next one in."""
    caps = SubagentCaps(2, 0)
    greedy, modest = await Parent.begin(client), await Parent.begin(client, chat="owner/b")
    await greedy.spawn(*(f"g{n:02}" for n in range(60)))
    await modest.spawn("m1")
    claims = await take(client, 10, caps=caps)
    assert sorted(claim.member for claim in claims) == ["sub:g00", "sub:g01", "sub:m1"]
    assert await take(client, 10, caps=caps) == []
    states = [child.state for child in await Subagents(client).of_session(SESSION)]
    assert states == ["running"] * 2 + ["queued"] * 58
    await end(client, claims[0])
    assert [claim.member for claim in await take(client, 10, caps=caps)] == ["sub:g02"], "the oldest of those that wait"


async def test_over_the_cap_of_the_fleet_they_wait(client: RedisClient) -> None:
    """Across sessions; a subagent that was given back keeps its place."""
    caps = SubagentCaps(10, 1)
    one, two = await Parent.begin(client), await Parent.begin(client, chat="owner/b")
    await one.spawn("aaaaaaaa")
    await two.spawn("bbbbbbbb")
    [first] = await take(client, caps=caps)
    await jobs(client).release(first)
    [again] = await take(client, caps=caps)
    assert again.member == first.member
    await end(client, again)
    [other] = await take(client, caps=caps)
    assert other.member == "sub:bbbbbbbb"


async def test_a_turn_that_waits_gets_the_result_and_no_report(client: RedisClient) -> None:
    """Unless it is over by then, or has stopped waiting: then the chat is told after all."""
    parent = await Parent.begin(client)
    await parent.spawn("kept", "late", "left", wait=True)
    claims = {claim.member: claim for claim in await take(client)}
    assert await end(client, claims["sub:kept"], "r1") == "kept"
    found = await Subagents(client).read_awaited("kept")
    assert found is not None
    assert (found.ended, found.result) == (True, "r1")
    assert not await Subagents(client).detach("kept")
    assert await Subagents(client).detach("left")
    assert await end(client, claims["sub:left"], "r2") == "reported"
    await parent.commit()
    assert await end(client, claims["sub:late"], "r3") == "reported"
    assert [report.id for report in await reports(client)] == ["child:left", "child:late"]


async def test_a_stop_ends_the_subagents_of_its_turn_without_a_word(client: RedisClient) -> None:
    """Running or queued; whoever runs one can write nothing more. Those of an earlier turn go on."""
    parent = await Parent.begin(client)
    await parent.spawn("older")
    await parent.commit()
    parent = await Parent.begin(client)
    await parent.spawn("runs", "waits")
    claims = {claim.member: claim for claim in await take(client, 2)}
    await Inbox(client).stop(SESSION)
    states = {child.task.id: child.state for child in await Subagents(client).of_session(SESSION)}
    assert states == {"older": "running", "runs": "cancelled", "waits": "cancelled"}
    assert await end(client, claims["sub:runs"]) == "known"
    with pytest.raises(LeaseLost):
        await Subagents(client).save_progress(claims["sub:runs"], rounds=1, tokens=1)
    assert await reports(client) == []
    assert await end(client, claims["sub:older"]) == "reported"


async def test_an_operator_ends_one_and_its_chat_gets_the_report(client: RedisClient) -> None:
    """In nobody's lease; whoever runs it is refused from then on."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    [claim] = await take(client)
    children = Subagents(client)
    assert await children.finish(task("aaaaaaaa"), "cancelled", "by an operator", claim=None, now_ms=1) == "reported"
    with pytest.raises(LeaseLost):
        await children.save_progress(claim, rounds=1, tokens=1)
    [report] = await reports(client)
    assert "was cancelled]" in report.content


async def test_a_new_conversation_ends_subagents_and_their_results_are_dropped(client: RedisClient) -> None:
    """Nothing of an ended conversation comes into the next one, and nothing of it stays."""
    parent = await Parent.begin(client)
    await parent.spawn("runs", "waits")
    [claim, _] = await take(client, 2)
    await forget(client, SESSION)
    assert await left(client) == []
    with pytest.raises(LeaseLost):
        await Subagents(client).finish(task("runs"), "ok", "too late", claim=claim, now_ms=1)
    assert await reports(client) == []


async def test_a_result_of_an_older_generation_is_dropped(client: RedisClient) -> None:
    """The second fence: the subagent remembers in which generation it was spawned."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    [claim] = await take(client)
    await client.command("HINCRBY", keys.session(SESSION), "gen", 1)
    assert await end(client, claim) == "dropped"
    assert await reports(client) == []


async def test_an_erased_session_leaves_nothing_of_its_subagents(client: RedisClient) -> None:
    """Neither of those that run nor of those that ended."""
    parent = await Parent.begin(client)
    await parent.spawn("ends", "runs")
    await end(client, (await take(client, 1))[0])
    await erase(client, SESSION)
    assert await left(client) == []


async def test_only_so_many_that_ended_are_remembered(client: RedisClient) -> None:
    """A chat that spawns all day keeps the newest hundred, for an hour."""
    parent = await Parent.begin(client)
    for number in range(110):
        await parent.spawn(f"child{number}", per_turn=1000)
        [claim] = await take(client, 1)
        await end(client, claim)
    assert await client.command("ZCARD", keys.children(SESSION)) <= 101
    assert len([key for key in await left(client) if key.startswith("shoal:{0ax}:child:")]) <= 101


async def test_the_ledger_of_a_subagent_is_its_own(client: RedisClient) -> None:
    """A successor gets it, and it goes with its end."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    [claim] = await take(client)
    await Subagents(client).append_step(claim, 1, EffectEntry(call_id="c", turn=1, kind="x"))
    await client.command("ZADD", keys.queue("jobs"), 1, claim.member)
    [again] = await take(client)
    assert again.owner_lost
    assert again.subagent is not None
    assert (len(again.subagent.ledger), again.subagent.crashes, again.subagent.attempt) == (1, 1, 2)
    await end(client, again)
    assert await client.command("EXISTS", keys.ledger("aaaaaaaa")) == 0


async def test_one_that_fell_out_of_the_queue_is_put_back(client: RedisClient) -> None:
    """A worker of an older release takes it for a job that it does not know, and ends that; the sweep finds it."""
    parent = await Parent.begin(client)
    await parent.spawn("lost", "there")
    await client.command("ZREM", keys.queue("jobs"), "sub:lost")
    await client.command("DEL", keys.wake(keys.SUBAGENT_WAKE))
    assert await Subagents(client).requeue_lost() == 1
    assert await client.command("LLEN", keys.wake(keys.SUBAGENT_WAKE)) == 1, "an idle worker takes it at once"
    assert await Subagents(client).requeue_lost() == 0
    await client.command("SET", keys.child("broken"), "x")
    await client.command("ZADD", keys.SUBAGENTS, 0, "broken")
    assert await Subagents(client).requeue_lost() == 0, "whatever lies under a key, the sweep goes on"
    assert sorted(claim.member for claim in await take(client)) == ["sub:lost", "sub:there"]


async def test_an_entry_of_one_that_has_ended_is_removed_and_not_run(client: RedisClient) -> None:
    """A server that lost its tail may have kept the entry and not the end of it, or the other way round."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa")
    [claim] = await take(client)
    await end(client, claim)
    await client.command("ZADD", keys.queue("jobs"), 1, "sub:aaaaaaaa")
    assert await take(client) == []
    assert await client.command("ZSCORE", keys.queue("jobs"), "sub:aaaaaaaa") is None


async def test_a_subagent_of_a_newer_release_is_left_for_its_workers(client: RedisClient) -> None:
    """Moved on by a second, so that it hides nobody; nothing is counted against it."""
    parent = await Parent.begin(client)
    await parent.spawn("aaaaaaaa", "bbbbbbbb")
    await client.command("HSET", keys.child("aaaaaaaa"), "v", 99)
    before = float(await client.command("ZSCORE", keys.queue("jobs"), "sub:aaaaaaaa"))
    assert [claim.member for claim in await take(client)] == ["sub:bbbbbbbb"]
    assert float(await client.command("ZSCORE", keys.queue("jobs"), "sub:aaaaaaaa")) > before
    assert await client.command("HGET", keys.child("aaaaaaaa"), "tries") is None
