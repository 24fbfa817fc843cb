"""A model keeps to what the whole fleet may ask of its provider; on a real Valkey."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shared.errors import ModelClosed, ModelError, TurnStopped
from shared.metrics import REGISTRY
from shared.settings import ModelSettings, Secret
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import CallAllowed, LimitRules, ProviderLimits, read_routes
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.scripted_model import Broken, Replies, ScriptedModel
from tests.helpers.wait import eventually
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta
from worker.llm.policies.throttle import LONGEST_WAIT_S, ThrottledModel, limit_rules, provider_route
from worker.llm.registry import Models
from worker.llm.routes import choose

ASK = [{"role": "user", "content": "hi"}]
WAY = "openai:0123"
RULES = LimitRules()
NOWHERE = "redis://127.0.0.1:1"


def fault(kind: str, *, retry_after_s: float | None = None) -> ModelError:
    retryable = kind not in ("auth", "bad_request", "context_length")
    return ModelError(kind, "scripted", retryable=retryable, retry_after_s=retry_after_s)


def throttled(kind: str) -> float:
    return REGISTRY.get_sample_value("shoal_model_throttled_total", {"model": "scripted", "reason": kind}) or 0.0


class Silent(ScriptedModel):
    """Says nothing until it is cancelled."""

    def __init__(self) -> None:
        super().__init__([])
        self.begun = asyncio.Event()

    async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody ends the wait")


class Trial:
    """A throttled model whose waits pass at once, unless `sleep` says what else happens in them."""

    def __init__(
        self,
        client: RedisClient,
        replies: Replies = lambda _: "ok",
        *,
        rules: LimitRules = RULES,
        session: str = "web:a/1",
    ) -> None:
        self.client = client
        self.session = session
        self.limits = ProviderLimits(client)
        self.inner = ScriptedModel(replies)
        self.waits_s: list[float] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.model = ThrottledModel(self.inner, self.limits, route_key=WAY, rules=rules, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        if self.meanwhile is not None:
            await self.meanwhile()

    async def ask(self, on_delta: OnDelta | None = None) -> str | None:
        return (await self.model.chat(ModelRequest(ASK, session=self.session), on_delta)).content

    async def fail(self, on_delta: OnDelta | None = None) -> ModelError:
        with pytest.raises(ModelError) as raised:
            await self.ask(on_delta)
        return raised.value

    async def close_way(self, retry_after_s: float = 30.0) -> None:
        """As another worker would."""
        entered = await self.limits.enter(WAY, RULES)
        assert isinstance(entered, CallAllowed)
        await self.limits.report(WAY, RULES, entered, "rate_limit", retry_after_s=retry_after_s)

    async def end_pause(self) -> None:
        """As if the pause were over."""
        await self.client.command("HSET", keys.limit(WAY), "closed_at", 1, "open_at", 2)

    async def closed(self) -> bool:
        return not isinstance(await self.limits.enter(WAY, RULES), CallAllowed)


async def test_while_the_way_is_closed_nobody_is_asked(client: RedisClient) -> None:
    """The fault says how long, so that the turn waits without a slot; each one a little longer than the other."""
    trial = Trial(client)
    await trial.close_way(20.0)
    before = throttled("rate_limit")
    faults = [await trial.fail() for _ in range(20)]
    assert all(isinstance(error, ModelClosed) for error in faults)
    assert {(error.kind, error.retryable) for error in faults} == {("rate_limit", True)}
    waits_s = [error.retry_after_s or 0.0 for error in faults]
    assert all(19.0 < wait_s <= 26.5 for wait_s in waits_s)
    assert len(set(waits_s)) > 10, "held turns do not come back as one crowd"
    assert (trial.inner.asked, trial.waits_s) == ([], [])
    assert throttled("rate_limit") == before + 20
    assert "'scripted' was not asked: its provider asked for a pause; it may be in" in str(faults[0])


async def test_a_short_pause_is_waited_for(client: RedisClient) -> None:
    """Below two seconds a release of the turn would cost more."""
    trial = Trial(client)
    await trial.close_way(1.0)
    trial.meanwhile = trial.end_pause
    before = throttled("rate_limit")
    assert await trial.ask() == "ok"
    assert len(trial.waits_s) == 1
    assert 0.5 < trial.waits_s[0] <= 1.0
    assert throttled("rate_limit") == before + 1


async def test_who_waits_for_another_ones_try_gives_up_after_two_seconds(client: RedisClient) -> None:
    """Looking again now and then; the turn is released, not held for as long as that call may take."""
    trial = Trial(client)
    await trial.close_way()
    await trial.end_pause()
    assert isinstance(await trial.limits.enter(WAY, RULES), CallAllowed), "somebody tries"
    error = await trial.fail()
    assert isinstance(error, ModelClosed)
    assert 3 <= len(trial.waits_s) <= 8
    assert LONGEST_WAIT_S - 0.5 < sum(trial.waits_s) <= LONGEST_WAIT_S


async def test_a_429_closes_the_way_for_all_and_goes_up(client: RedisClient) -> None:
    """With what the provider asked for."""
    trial, other = Trial(client, [fault("rate_limit", retry_after_s=9.0)]), Trial(client)
    error = await trial.fail()
    assert (error.kind, error.retry_after_s) == ("rate_limit", 9.0)
    closed = await other.fail()
    assert isinstance(closed, ModelClosed)
    assert 8.0 < (closed.retry_after_s or 0.0) < 13.0


@pytest.mark.parametrize("kind", ["overloaded", "timeout", "connection"])
async def test_five_faults_in_a_row_close_the_way(client: RedisClient, kind: str) -> None:
    """Of more than one session."""
    for n in range(5):
        await Trial(client, [fault(kind)], session=f"web:{n % 2}/1").fail()
    assert (await Trial(client).fail()).kind == "overloaded"


async def test_a_fault_says_whether_its_session_met_it_alone(client: RedisClient) -> None:
    """While others are served, or nobody else asks; an answer that cannot be read is one of a living provider."""
    alone = Trial(client, [fault("overloaded"), fault("connection"), fault("bad_reply"), fault("connection")])
    assert (await alone.fail()).alone
    assert not (await alone.fail()).alone, "it may be the way"
    assert (await alone.fail()).alone
    assert await Trial(client, session="web:b/1").ask() == "ok"
    assert (await alone.fail()).alone
    assert not (await Trial(client, [fault("bad_request")]).fail()).alone, "nothing to wait for"


async def test_a_refused_key_is_known_to_the_fleet_until_it_is_accepted(client: RedisClient) -> None:
    """By its own way only, which a changed key leaves."""
    await Trial(client, [fault("auth")]).fail()
    [reading] = await read_routes(client, [WAY])
    assert reading.refused
    await Trial(client).ask()
    [reading] = await read_routes(client, [WAY])
    assert not reading.refused


@pytest.mark.parametrize("kind", ["auth", "bad_request", "context_length", "bad_reply"])
async def test_a_fault_of_ours_never_closes_the_way(client: RedisClient, kind: str) -> None:
    """It would be the same anywhere."""
    trial = Trial(client, lambda _: fault(kind))
    for _ in range(10):
        assert (await trial.fail()).kind == kind
    [reading] = await read_routes(client, [WAY])
    assert (reading.state, reading.faults) == ("open", 0)


async def test_a_success_ends_a_row_of_faults(client: RedisClient) -> None:
    """Four bad minutes in a day are no outage."""
    for _ in range(3):
        trial = Trial(client, [*[fault("overloaded")] * 4, "ok"])
        for _ in range(4):
            await trial.fail()
        assert await trial.ask() == "ok"


async def test_the_first_word_of_a_try_lets_the_others_in(client: RedisClient) -> None:
    """A long answer does not make everybody wait for its end."""
    trial = Trial(client, ["one two three"])
    await trial.close_way()
    await trial.end_pause()
    seen: list[bool] = []

    async def look(delta: str) -> None:
        seen.append(await trial.closed())

    assert await trial.ask(look) == "one two three"
    assert seen == [False, False, True], "two more, and no more than two"


async def test_a_stopped_try_is_given_to_somebody_else(client: RedisClient) -> None:
    """A person who says stop, or a drain, must not close the way for five minutes."""
    trial = Trial(client)
    await trial.close_way()
    await trial.end_pause()
    silent = Silent()
    task = asyncio.create_task(ThrottledModel(silent, trial.limits, route_key=WAY, rules=RULES).chat(ModelRequest(ASK)))
    await silent.begun.wait()
    assert await trial.closed()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await trial.closed()
    assert await trial.closed(), "and to one only"


async def test_a_try_that_is_stopped_again_and_again_is_given_to_somebody_else(
    client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends a turn cancels it until it has ended, also while a slow connection carries the report."""
    trial = Trial(client)
    report = trial.limits.report

    async def slow(*given: Any, **more: Any) -> Any:
        for _ in range(5):
            await asyncio.sleep(0)
        return await report(*given, **more)

    await trial.close_way()
    await trial.end_pause()
    monkeypatch.setattr(trial.limits, "report", slow)
    silent = Silent()
    task = asyncio.create_task(ThrottledModel(silent, trial.limits, route_key=WAY, rules=RULES).chat(ModelRequest(ASK)))
    await silent.begun.wait()
    for _ in range(20):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await trial.closed()


async def test_what_the_listener_raises_goes_up_and_counts_as_an_answer(client: RedisClient) -> None:
    """The provider spoke; that nobody wanted to hear it is not its fault."""

    async def stop(_delta: str) -> None:
        raise TurnStopped

    trial = Trial(client, ["some text"])
    await trial.close_way()
    await trial.end_pause()
    with pytest.raises(TurnStopped):
        await trial.ask(stop)
    assert [await trial.closed() for _ in range(3)] == [False, False, True]


async def test_a_stream_that_breaks_in_a_try_closes_the_way_again(client: RedisClient) -> None:
    """Also after its first word let others in."""

    async def note(_delta: str) -> None:
        pass

    trial = Trial(client, [Broken(fault("connection"), ("half",))])
    await trial.close_way()
    await trial.end_pause()
    await trial.fail(note)
    assert await trial.closed()


async def test_a_place_in_the_minute_is_waited_for_and_used_once(client: RedisClient) -> None:
    """One call every 0.1 s: who waits short goes then, who would wait long goes up."""
    trial = Trial(client, rules=LimitRules(per_minute=600))
    before = throttled("requests_per_minute")
    replies = [await trial.ask() for _ in range(20)]
    assert replies == ["ok"] * 20
    assert throttled("requests_per_minute") - before == len(trial.waits_s)
    assert 6 <= len(trial.waits_s) <= 10, "ten come at once, the others wait; few find that time did it for them"
    assert trial.waits_s == sorted(trial.waits_s), "time stands still here, so each waits for the next place"
    for _ in range(20):
        await trial.limits.enter(WAY, LimitRules(per_minute=600), patience_s=9.0)
    error = await trial.fail()
    assert (type(error), error.kind) == (ModelClosed, "rate_limit")
    assert (error.retry_after_s or 0.0) > LONGEST_WAIT_S
    assert "model.requests_per_minute is reached" in str(error)


async def test_while_redis_is_away_calls_go_through(capfd: pytest.CaptureFixture[str]) -> None:
    """Said once; a limiter ends no turn by itself, and hides no fault."""
    nobody = RedisClient(NOWHERE)
    trial = Trial(nobody, ["one", fault("rate_limit"), "two"])
    assert await trial.ask() == "one"
    assert (await trial.fail()).kind == "rate_limit"
    assert await trial.ask() == "two"
    output = capfd.readouterr()
    assert (output.out + output.err).count("redis away") == 1
    await nobody.close()


async def test_redis_may_go_away_during_a_call(redis_url: str, client: RedisClient) -> None:
    """What was learned is lost, the reply is not."""
    leaving = RedisClient(redis_url)
    trial = Trial(leaving, ["ok"])
    await trial.close_way()
    await trial.end_pause()
    gone = RedisClient(NOWHERE)
    trial.limits._client = gone
    entered: list[str] = []

    async def note(delta: str) -> None:
        entered.append(delta)

    assert await trial.ask(note) == "ok"
    assert entered == ["ok"]
    await leaving.close()
    await gone.close()


def test_a_way_is_a_provider_an_address_and_a_key_and_shows_none_of_them_whole() -> None:
    """Two models with one key share their limits; the store never sees the key."""
    key = "sk-canary-of-the-key"

    def way(name: str = "openai/a", key: str | None = key, api_base: str | None = None) -> str:
        settings = ModelSettings(name=name, api_key=Secret(key) if key else None, api_base=api_base, total_s=99.0)
        return provider_route(settings, choose(settings))

    assert way() == way("openai/b")
    ways = {way(), way(key="sk-other"), way(key=None), way("groq/a"), way(api_base="http://h/v1")}
    assert len(ways) == 5
    assert not any("canary" in one or key in one for one in ways)
    settings = ModelSettings(total_s=99.0, breaker_after=3, breaker_s=7.0, requests_per_minute=5)
    assert limit_rules(settings) == LimitRules(breaker_after=3, breaker_s=7.0, hang_s=99.0, per_minute=5)


async def test_a_closed_model_is_passed_over_at_once(client: RedisClient, server: ScriptedOpenAI) -> None:
    """Its fallback answers without a wait, and nobody asks the closed one."""
    settings = ModelSettings(name="openai/busy", api_base=server.base_url, api_key=Secret("sk-a"), fallbacks=("demo",))
    limits = ProviderLimits(client)
    way, rules = provider_route(settings, choose(settings)), limit_rules(settings)
    entered = await limits.enter(way, rules)
    assert isinstance(entered, CallAllowed)
    await limits.report(way, rules, entered, "rate_limit", retry_after_s=60.0)
    model = Models(settings, limits).get()
    took_s: list[float] = []
    for _ in range(3):  # the quickest counts: a machine may stall
        began = time.monotonic()
        assert (await model.chat(ModelRequest(ASK))).content
        took_s.append(time.monotonic() - began)
    assert min(took_s) < 3, "no retries of what is closed: they would take 7 s"
    assert server.stats()["requests"] == 0
    await model.close()


@pytest.mark.parametrize("one_first", [True, False])
async def test_a_crowd_on_two_workers_meets_a_busy_provider_with_few_requests(
    client: RedisClient, redis_url: str, server: ScriptedOpenAI, one_first: bool
) -> None:
    """60 calls and one on two chains, each coming back whenever it may, against 1.5 s of 429s that ask for 0.3 s.

    When one closes the way before the others come, a try is made at most every 0.3 s: 1 + 1.5 / 0.3 + 1 = 7 requests.
    When all come at once, each can be under way before the first 429 is known, once: 60 more. Afterwards each of the
    61 is answered by one request.
    """
    busy_s, pause_s, crowd = 1.5, 0.3, 60
    settings = ModelSettings(
        name="openai/x", api_base=server.base_url, api_key=Secret("sk-a"), client="direct", retry_waits_s=(0.05,)
    )
    elsewhere = RedisClient(redis_url)
    models = [Models(settings, ProviderLimits(one)).get() for one in (client, elsewhere)]
    server.script(Answer(status=429, retry_after=str(pause_s), times=0))

    async def answered(model: int) -> str | None:
        """As a turn does it that is released and comes back, but at once."""
        while True:
            with contextlib.suppress(ModelError):
                return (await models[model % 2].chat(ModelRequest(ASK))).content

    first = asyncio.create_task(answered(0))
    if one_first:
        await eventually(lambda: client.command("KEYS", "shoal:{0ax}:limit:*"))
    tasks = [first, *(asyncio.create_task(answered(n)) for n in range(crowd))]
    await eventually(lambda: _lasted(server) >= busy_s, within_s=60, every_s=0.05)
    refused = server.requests()
    server.reset()
    under_way = 1 if one_first else crowd + 1
    assert len(refused) <= under_way + (refused[-1].at - refused[0].at) / pause_s + 1
    replies = await asyncio.gather(*tasks)
    assert replies == ["echo: hi"] * (crowd + 1)
    assert server.stats()["requests"] == crowd + 1
    for model in models:
        await model.close()
    await elsewhere.close()


def _lasted(server: ScriptedOpenAI) -> float:
    asked = server.requests()
    return asked[-1].at - asked[0].at if asked else 0.0
