"""The breaker of a provider counts sessions, not calls; on the real scripts and a real server."""

from __future__ import annotations

import pytest

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import (
    PROBE_S,
    CallAllowed,
    CallHeld,
    Ending,
    LimitRules,
    ProviderLimits,
    RouteNews,
    read_routes,
)

WAY = "openai:0123"
RULES = LimitRules()
TIMES = ("closed_at", "open_at", "hang", "probe_at", "other_at", "clean_at", "ok_at")


class Route:
    """One route, and sessions named by letters."""

    def __init__(self, client: RedisClient, rules: LimitRules = RULES) -> None:
        self.client = client
        self.rules = rules
        self._limits = ProviderLimits(client)

    async def enter(self, who: str) -> CallAllowed | CallHeld:
        return await self._limits.enter(WAY, self.rules, session=f"web:{who}/chat")

    async def allowed(self, who: str) -> CallAllowed:
        answer = await self.enter(who)
        assert isinstance(answer, CallAllowed), answer
        return answer

    async def held(self, who: str) -> CallHeld:
        answer = await self.enter(who)
        assert isinstance(answer, CallHeld), answer
        return answer

    async def report(
        self, who: str, entered: CallAllowed, ending: Ending, retry_after_s: float | None = None
    ) -> RouteNews | None:
        session = f"web:{who}/chat"
        return await self._limits.report(WAY, self.rules, entered, ending, session=session, retry_after_s=retry_after_s)

    async def fail(self, who: str, ending: Ending = "overloaded") -> RouteNews | None:
        """One call of each, in turn, that fails; the news of the last."""
        news = None
        for one in who:
            news = await self.report(one, await self.allowed(one), ending)
        return news

    async def succeed(self, who: str) -> RouteNews | None:
        return await self.report(who, await self.allowed(who), "ok")

    async def later(self, seconds: float) -> None:
        """As if so much time had passed for the route."""
        for field in TIMES:
            value = await self.client.command("HGET", keys.limit(WAY), field)
            if value is not None and int(value) > 0:
                await self.client.command("HINCRBY", keys.limit(WAY), field, -int(seconds * 1000))

    async def state(self) -> str:
        [reading] = await read_routes(self.client, [WAY])
        return reading.state


@pytest.fixture
def route(client: RedisClient) -> Route:
    return Route(client)


async def test_one_session_alone_never_closes_the_route(route: Route) -> None:
    """However often it fails, and also where nobody else asks."""
    for _ in range(30):
        assert await route.fail("p") == "alone"
    await route.allowed("p")
    await route.allowed("h")


async def test_one_session_counts_for_at_most_half_of_the_faults(route: Route) -> None:
    """Thirty of one and one of another are one prompt that fails and a slip; two of another are news."""
    await route.fail("p" * 30)
    assert await route.fail("a") is None
    assert await route.fail("a") == "closed"


@pytest.mark.parametrize("breaker_after", [1, 2])
async def test_it_takes_two_sessions_whatever_the_number_of_faults(client: RedisClient, breaker_after: int) -> None:
    """The strictest settings, too."""
    route = Route(client, LimitRules(breaker_after=breaker_after))
    assert await route.fail("ppp") == "alone"
    assert await route.fail("a") == "closed"


async def test_many_sessions_close_the_route_at_once(route: Route) -> None:
    """The fifth fault, each of another."""
    assert await route.fail("abcd") is None
    assert await route.fail("e") == "closed"


async def test_a_success_of_anyone_ends_the_count(route: Route) -> None:
    """One prompt that fails among others that are answered is heard of for hours and changes nothing."""
    for _ in range(20):
        assert await route.fail("pp") == "alone"
        assert await route.succeed("h") is None
    await route.fail("ab")
    await route.succeed("h")
    assert await route.fail("ab") == "alone", "others are served"
    assert await route.state() == "open"


@pytest.mark.parametrize("ending", ["timeout", "connection", "rate_limit"])
async def test_what_may_be_the_way_is_alone_only_while_others_are_served(route: Route, ending: Ending) -> None:
    """Nobody answers a single session: its provider may be away, and it waits for long. A refused connection or a
    silence that others do not meet is its own."""
    assert await route.fail("p", ending) is None
    assert await route.succeed("h") is None
    assert await route.fail("p", ending) == "alone"
    await route.later(61)
    assert await route.fail("p", ending) is None


async def test_a_429_of_one_session_that_names_no_time_is_its_own(route: Route) -> None:
    """A prompt over the tokens of a minute gets one each time; a second session that gets one closes the route."""
    await route.fail("p" * 10, "rate_limit")
    assert await route.fail("a", "rate_limit") == "closed"


async def test_a_closed_route_is_tried_once_every_five_seconds(route: Route) -> None:
    """Counted from try to try, whatever becomes of one, and everybody knows until when."""
    await route.fail("abcde")
    first = await route.held("f")
    assert PROBE_S - 0.5 < first.wait_s <= PROBE_S
    await route.later(PROBE_S)
    tries = [one for one in [await route.enter(who) for who in "fghijk"] if isinstance(one, CallAllowed)]
    assert len(tries) == 1
    await route.later(3)
    earlier = CallAllowed(tries[0].at - 3000, watched=True)
    assert await route.report("f", earlier, "timeout") == "closed"
    assert 1.5 < (await route.held("g")).next_s <= 2.0, "the time of the try counts"
    await route.later(2)
    await route.allowed("g")


async def test_a_try_without_an_end_keeps_nobody_from_the_next_one(route: Route) -> None:
    """Its worker died, or the provider takes connections and says nothing."""
    await route.fail("abcde")
    for who in "fghi":
        await route.later(PROBE_S)
        await route.allowed(who)


async def test_a_fresh_try_is_waited_for_and_an_old_one_is_not(route: Route) -> None:
    """Its answer may come in a moment: who can wait looks again soon, and knows when the next try is."""
    await route.fail("abcde")
    await route.later(PROBE_S)
    await route.allowed("f")
    held = await route.held("g")
    assert held.wait_s <= 0.5
    assert PROBE_S - 0.5 < held.next_s <= PROBE_S
    await route.later(2.1)
    assert 2.0 < (await route.held("g")).wait_s <= 3.0


async def test_a_success_of_anyone_opens_the_route_for_all(route: Route) -> None:
    """Of the try, and also of a call that was under way when the route was closed: the provider answers."""
    before = await route.allowed("z")
    await route.fail("abcde")
    await route.later(PROBE_S)
    assert await route.succeed("f") == "opened"
    for who in "abcdefgh" * 5:
        await route.allowed(who)
    await route.fail("abcde")
    assert await route.report("z", before, "ok") == "opened"
    await route.allowed("a")


async def test_the_session_that_failed_last_tries_only_if_no_other_comes(route: Route) -> None:
    """While another waits; after a while it may, because that one may be gone."""
    await route.fail("aabbp")
    await route.held("a")
    await route.later(PROBE_S)
    assert (await route.held("p")).wait_s > PROBE_S - 0.5
    tried = await route.allowed("a")
    assert await route.report("a", tried, "overloaded") == "closed"
    await route.later(PROBE_S)
    await route.held("a")
    await route.later(PROBE_S)
    await route.allowed("a")


async def test_a_session_without_a_fault_tries_before_those_that_failed(route: Route) -> None:
    """Two prompts that fail each time would close the route for everybody else by turns."""
    await route.fail("ppqqp")
    await route.held("h")
    await route.later(PROBE_S)
    await route.held("p")
    await route.held("q")
    assert await route.succeed("h") == "opened"


async def test_a_single_waiting_session_tries_itself(route: Route) -> None:
    """The other one that failed is gone: nobody waits for it."""
    await route.fail("aabbb")
    await route.later(PROBE_S)
    await route.allowed("b")


async def test_a_try_that_learned_nothing_makes_room_for_another_at_once(route: Route) -> None:
    """A stopped turn, or a refused prompt."""
    await route.fail("abcde")
    await route.later(PROBE_S)
    tried = await route.allowed("f")
    await route.report("f", tried, "void")
    await route.allowed("g")


async def test_a_503_that_names_a_time_is_heeded(route: Route) -> None:
    """Where several sessions fail, for as long as it says, never shorter than between two tries."""
    await route.fail("abcd")
    assert await route.report("e", await route.allowed("e"), "overloaded", 20.0) == "closed"
    assert 19.0 < (await route.held("f")).wait_s <= 20.0


async def test_old_faults_do_not_count(route: Route) -> None:
    """What failed longer ago than a call may take says nothing of now."""
    await route.fail("aabb")
    failed = (await route.client.command("HGET", keys.limit(WAY), "failed")).decode()
    earlier = [f"{one.rpartition(':')[0]}:{int(one.rpartition(':')[2]) - 301_000}" for one in failed.split()]
    await route.client.command("HSET", keys.limit(WAY), "failed", " ".join(earlier))
    assert await route.fail("c") == "alone"


async def test_a_crowd_comes_back_spread_out(route: Route) -> None:
    """The more wait, the further apart: thousands must not do nothing but ask again."""
    await route.fail("abcde")
    crowd = [(await route.held("f")).crowd for _ in range(100)]
    assert crowd == list(range(1, 101))


async def test_a_refused_key_is_known_until_it_is_accepted(route: Route) -> None:
    """The route stays open, for a refusal is an answer."""
    await route.report("a", await route.allowed("a"), "refused")
    [reading] = await read_routes(route.client, [WAY])
    assert (reading.state, reading.refused) == ("open", True)
    entered = await route.allowed("b")
    assert entered.watched, "so that its success is told"
    await route.report("b", entered, "ok")
    [reading] = await read_routes(route.client, [WAY])
    assert not reading.refused
