"""What the fleet may ask of a provider, on the real scripts and a real server."""

from __future__ import annotations

import random

import pytest

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import CallAllowed, CallHeld, Ending, LimitRules, ProviderLimits
from tests.helpers.schedules import server_ms
from tests.helpers.wait import eventually

WAY = "openai:0123"
RULES = LimitRules()


class NoJitter(random.Random):
    """Waits at their ceiling."""

    def uniform(self, a: float, b: float) -> float:
        return b


@pytest.fixture
def limits(client: RedisClient) -> ProviderLimits:
    return ProviderLimits(client, rng=NoJitter())


async def enter(limits: ProviderLimits, rules: LimitRules = RULES, session: str = "") -> CallAllowed:
    answer = await limits.enter(WAY, rules, session=session)
    assert isinstance(answer, CallAllowed), answer
    return answer


async def held(limits: ProviderLimits, rules: LimitRules = RULES) -> CallHeld:
    answer = await limits.enter(WAY, rules)
    assert isinstance(answer, CallHeld), answer
    return answer


async def fail(
    limits: ProviderLimits, ending: Ending = "rate_limit", retry_after_s: float | None = None, times: int = 1
) -> None:
    """So many calls of two sessions in turn, one after the other, that end in a fault."""
    for n in range(times):
        session = f"web:a/{n % 2}"
        entered = await enter(limits, session=session)
        await limits.report(WAY, RULES, entered, ending, session=session, retry_after_s=retry_after_s)


async def later(client: RedisClient, seconds: float) -> None:
    """As if so much time had passed for the way: every time in its memory is that much longer ago."""
    for field in ("closed_at", "open_at", "hang"):
        value = await client.command("HGET", keys.limit(WAY), field)
        if value is not None and int(value) > 0:
            await client.command("HINCRBY", keys.limit(WAY), field, -int(seconds * 1000))


async def let_in(limits: ProviderLimits) -> list[CallAllowed]:
    """All calls that may be made at this moment by whoever asks; 100 stand for any number."""
    entered: list[CallAllowed] = []
    while len(entered) < 100 and isinstance(answer := await limits.enter(WAY, RULES), CallAllowed):
        entered.append(answer)
    return entered


async def test_a_way_without_trouble_costs_one_look_and_leaves_nothing(
    client: RedisClient, limits: ProviderLimits
) -> None:
    """Nothing is written, nothing needs telling."""
    assert len(await let_in(limits)) == 100
    assert not (await enter(limits)).watched
    assert await client.command("EXISTS", keys.limit(WAY)) == 0


async def test_a_429_closes_the_way_for_every_worker_for_as_long_as_the_provider_asks(
    client: RedisClient, redis_url: str, limits: ProviderLimits
) -> None:
    """Only that provider with that key; the key of the store dies some time after the pause."""
    elsewhere = RedisClient(redis_url)
    other = ProviderLimits(elsewhere)
    await fail(limits, retry_after_s=7.0)
    seen = await held(other)
    assert (6.5 < seen.wait_s <= 7.0, seen.reason) == (True, "rate_limit")
    assert isinstance(await other.enter("openai:4567", RULES), CallAllowed)
    assert 7_000 < await client.command("PTTL", keys.limit(WAY)) <= 7_000 + 300_000 + 60_000
    await elsewhere.close()


async def test_without_a_wish_of_the_provider_the_pause_doubles_up_to_the_longest(
    client: RedisClient, limits: ProviderLimits
) -> None:
    """1, 2, 4, 8, 16, 30, 30 s while every try fails, each cut by up to a half by chance."""
    await fail(limits)  # of one session: it may be its own
    pauses: list[int] = []
    for _ in range(7):
        session = f"web:b/{len(pauses) % 2}"
        await limits.report(WAY, RULES, await enter(limits, session=session), "rate_limit", session=session)
        pauses.append(round((await held(limits)).wait_s))
        await later(client, 60)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize(("asked_s", "pause_s"), [(0.0, 0.25), (0.1, 0.25), (86_000.0, 3600.0)])
async def test_a_pause_is_never_nothing_and_never_longer_than_an_hour(
    limits: ProviderLimits, asked_s: float, pause_s: float
) -> None:
    """Whatever a provider says: tries do not become a storm, and one wrong header does not cost a day."""
    await fail(limits, retry_after_s=asked_s)
    assert pause_s - 0.2 < (await held(limits)).wait_s <= pause_s


async def test_after_the_pause_the_way_opens_by_itself(limits: ProviderLimits) -> None:
    """By the server's own clock, here the shortest pause there is."""
    await fail(limits, retry_after_s=0.0)
    await held(limits)

    async def opened() -> bool:
        return isinstance(await limits.enter(WAY, RULES), CallAllowed)

    await eventually(opened, within_s=2)


async def test_then_one_call_tries_and_each_success_lets_two_more_in(
    client: RedisClient, limits: ProviderLimits
) -> None:
    """1, 2, 4, 8, 16 at once, and after 31 + 1 successes everybody: a herd comes in over several rounds."""
    await fail(limits, retry_after_s=5.0)
    await later(client, 5)
    rounds = []
    for _ in range(5):
        running = await let_in(limits)
        assert all(one.watched for one in running)
        rounds.append(len(running))
        assert (await held(limits)).wait_s <= 0.5, "somebody is trying: look again soon"
        for one in running:
            assert await limits.report(WAY, RULES, one, "ok") is None
    assert rounds == [1, 2, 4, 8, 16]
    running = await let_in(limits)
    assert len(running) == 32
    assert await limits.report(WAY, RULES, running[0], "ok") == "opened"
    assert not (await enter(limits)).watched
    await fail(limits, times=2)
    assert (await held(limits)).wait_s <= 1.0, "the next trouble begins with a short pause again"


async def test_a_failed_try_closes_the_way_again(client: RedisClient, limits: ProviderLimits) -> None:
    """For whatever fault of the provider, also one that alone would not close an open way."""
    await fail(limits, retry_after_s=1.0)
    await later(client, 2)
    tried = await enter(limits)
    assert await limits.report(WAY, RULES, tried, "timeout") == "closed"
    seen = await held(limits)
    assert (4.0 < seen.wait_s <= 5.0, seen.reason) == (True, "overloaded")


async def test_a_closed_way_has_to_earn_all_its_successes_again(client: RedisClient, limits: ProviderLimits) -> None:
    """Thirty-one before a fault and one after it are no recovery."""
    await fail(limits, retry_after_s=5.0)
    await later(client, 5)
    for _ in range(31):
        await limits.report(WAY, RULES, await enter(limits), "ok")
    await fail(limits, retry_after_s=5.0)
    await later(client, 5)
    assert await limits.report(WAY, RULES, await enter(limits), "ok") is None
    assert len(await let_in(limits)) == 2


async def test_the_right_to_try_is_given_back_by_a_call_that_learned_nothing(
    client: RedisClient, limits: ProviderLimits
) -> None:
    """A stopped turn, a prompt that was too long, a wrong key: the next call tries."""
    await fail(limits, retry_after_s=5.0)
    await later(client, 5)
    tried = await enter(limits)
    await held(limits)
    await limits.report(WAY, RULES, tried, "void")
    await enter(limits)
    await held(limits)


async def test_the_right_to_try_of_a_dead_worker_expires(client: RedisClient, limits: ProviderLimits) -> None:
    """After the longest time a call may take, one other call tries; not all of them."""
    await fail(limits, retry_after_s=5.0)
    await later(client, 5)
    await enter(limits)
    await later(client, RULES.hang_s - 1)
    await held(limits)
    await later(client, 2)
    await enter(limits)
    await held(limits)


async def test_what_was_under_way_when_the_way_was_closed_counts_once(
    client: RedisClient, limits: ProviderLimits
) -> None:
    """Fifty 429s at the same moment are one pause; only a later time that the provider names is news."""
    running = await let_in(limits)
    news = [await limits.report(WAY, RULES, one, "rate_limit", retry_after_s=2.0) for one in running[:50]]
    assert news.count("closed") == 1
    assert (await held(limits)).wait_s <= 2.0
    await limits.report(WAY, RULES, running[50], "rate_limit", retry_after_s=9.0)
    assert 8.0 < (await held(limits)).wait_s <= 9.0
    await limits.report(WAY, RULES, running[51], "ok")
    await limits.report(WAY, RULES, running[52], "void")
    await later(client, 10)
    assert len(await let_in(limits)) == 1, "a success from before the pause lets nobody in"


@pytest.mark.parametrize("ending", ["overloaded", "timeout", "connection"])
async def test_faults_in_a_row_close_the_way(limits: ProviderLimits, ending: Ending) -> None:
    """Of several sessions: the fifth, not the fourth, and not with a success among them."""
    await fail(limits, ending, times=4)
    entered = await enter(limits)
    assert entered.watched, "so that a success is told"
    await limits.report(WAY, RULES, entered, "ok")
    await fail(limits, ending, times=4)
    entered = await enter(limits)
    assert await limits.report(WAY, RULES, entered, ending, session="web:c/0") == "closed"
    assert (await held(limits)).reason == "overloaded"


async def test_what_says_nothing_of_the_provider_never_closes_the_way(limits: ProviderLimits) -> None:
    """Wrong keys and refused requests are answers."""
    await fail(limits, "void", times=20)
    assert len(await let_in(limits)) == 100


@pytest.mark.parametrize("per_minute", [1, 2, 59, 60, 61, 119, 120, 500, 3_000, 100_000])
def test_burst_and_flow_together_keep_to_the_limit(per_minute: int) -> None:
    """In any minute: what may come at once, and what follows at the interval behind it."""
    rules = LimitRules(per_minute=per_minute)
    in_a_minute = rules.burst + (60_000_000 - 1) // rules.interval_us
    assert per_minute * 0.95 - 1 <= in_a_minute <= per_minute


async def test_calls_a_minute_are_counted_for_the_whole_fleet(client: RedisClient, redis_url: str) -> None:
    """600 a minute are ten at once and then one every 0.1 s; who can wait gets a place and takes none twice."""
    rules = LimitRules(per_minute=600)
    elsewhere = RedisClient(redis_url)
    both = [ProviderLimits(client), ProviderLimits(elsewhere)]
    began_ms = await server_ms(client)
    got = [await both[n % 2].enter(WAY, rules) for n in range(40)]
    let_in_by_time = (await server_ms(client) - began_ms) // 100 + 1
    entered = [one for one in got if isinstance(one, CallAllowed)]
    assert 10 <= len(entered) <= 10 + let_in_by_time
    refused = next(one for one in got if isinstance(one, CallHeld))
    assert (refused.reason, refused.placed) == ("requests_per_minute", False)
    held: list[CallHeld] = []
    while len(held) < 2:  # meanwhile time lets more of them in
        began_ms = began_ms if held else await server_ms(client)
        one = await both[0].enter(WAY, rules, patience_s=2.0)
        held = [*held, one] if isinstance(one, CallHeld) else []
    took_s = (await server_ms(client) - began_ms) / 1000
    first, second = held
    assert first.placed
    assert second.placed
    assert 0.05 - took_s < second.wait_s - first.wait_s < 0.15, "each its own place"
    for _ in range(3):
        assert isinstance(await both[1].enter(WAY, rules, placed=True), CallAllowed)
    assert 0 < await client.command("PTTL", keys.limit(WAY)) < 10_000
    await elsewhere.close()


async def test_an_idle_hour_saves_no_places(client: RedisClient, limits: ProviderLimits) -> None:
    """Who did not ask for long has the burst, and no more than that."""
    rules = LimitRules(per_minute=600)
    seconds, micros = await client.command("TIME")
    await client.command("HSET", keys.limit(WAY), "tat", (int(seconds) - 3600) * 1_000_000 + int(micros))
    began_ms = await server_ms(client)
    got = [await limits.enter(WAY, rules) for _ in range(40)]
    let_in_by_time = (await server_ms(client) - began_ms) // 100 + 1
    assert 10 <= sum(isinstance(one, CallAllowed) for one in got) <= 10 + let_in_by_time


async def test_what_is_remembered_is_forgotten_when_it_is_of_no_use(
    client: RedisClient, limits: ProviderLimits
) -> None:
    """Not sooner than the longest call may take to end, and a minute more."""

    async def kept_s() -> float:
        return int(await client.command("PTTL", keys.limit(WAY))) / 1000

    await fail(limits, "overloaded")
    assert 350 < await kept_s() <= 360
    await fail(limits, retry_after_s=50.0)
    assert 400 < await kept_s() <= 410
    await later(client, 50)
    await client.command("PEXPIRE", keys.limit(WAY), 1000)
    await enter(limits)
    assert 350 < await kept_s() <= 360


async def test_a_place_is_of_no_use_while_the_way_is_closed(limits: ProviderLimits) -> None:
    """Who waited for its place learns what happened meanwhile."""
    await fail(limits, retry_after_s=5.0)
    answer = await limits.enter(WAY, LimitRules(per_minute=600), placed=True)
    assert isinstance(answer, CallHeld)
    assert answer.reason == "rate_limit"


async def test_a_full_store_stops_neither_question_nor_answer(client: RedisClient, limits: ProviderLimits) -> None:
    """Turns are ended with the memory that is left; what they ask is needed for that."""
    await client.command("CONFIG", "SET", "maxmemory", "1")
    try:
        await fail(limits, retry_after_s=5.0)
        await held(limits)
    finally:
        await client.command("CONFIG", "SET", "maxmemory", "0")
