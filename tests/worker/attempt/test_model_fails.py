"""A message that its provider fails alone, and what the provider said: who learns it, and how the chat goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from shared.clock import Clock
from shared.errors import ModelClosed, ModelError
from shared.messages.inbound import ADMIN
from shared.messages.live import ProgressEvent
from shared.settings import AgentSettings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import count_model_waits
from shared.store.turns.dead_letters import DeadLetters
from shared.store.turns.inbox import Inbox
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from tests.helpers.build import message, say
from tests.helpers.fleet import watching
from tests.helpers.wait import eventually
from tests.worker.attempt.test_run_turn import SESSION, NoWaits, echo, lines, make_loop, run_until_idle, saved
from worker.agent.turn import AgentResult
from worker.attempt.run_turn import WITHHELD, RunTurn
from worker.lease.lease_loop import LeaseLoop
from worker.turn.conversation import Conversation
from worker.turn.journal import TurnJournal
from worker.turn.live_updates import LiveUpdates

WORDS = "The model `gpt-4p` does not exist"
Agent = Callable[[Conversation, TurnJournal, LiveUpdates], Awaitable[AgentResult]]


def failing(kind: str = "overloaded", *, alone: bool = True, retryable: bool = True) -> Agent:
    async def fail(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
        if conversation.message.content == "fine":
            return await echo(conversation, journal, show)
        error = ModelError(kind, "scripted", retryable=retryable, reason=WORDS)
        error.alone = alone
        raise error

    return fail


async def closed(*_: object) -> AgentResult:
    raise ModelClosed("overloaded", "not asked", retry_after_s=12.0)


async def once(client: RedisClient, agent: Agent) -> LeaseLoop:
    """One attempt at what is due."""
    loop = make_loop(client, agent)
    await loop.claim_once()
    await eventually(lambda: loop.running == 0)
    return loop


async def failed_since(client: RedisClient, seconds: float, *, alone: float = 0.0) -> None:
    """As if the first message had waited so long for its model, and failed alone for so long."""
    now = Clock().now_ms()
    fields = {"tries": 1, "away": now - int(seconds * 1000)} | ({"alone": now - int(alone * 1000)} if alone else {})
    await client.command("HSET", keys.session(SESSION), *[word for item in fields.items() for word in item])


async def field(client: RedisClient, name: str) -> bytes | None:
    value: bytes | None = await client.command("HGET", keys.session(SESSION), name)
    return value


async def due_now(client: RedisClient) -> None:
    """As if the wait of the chat were over."""
    await client.command("ZADD", keys.queue("turns"), 1, keys.turn(SESSION))


async def test_a_message_that_fails_alone_is_given_up_after_its_own_time_and_its_chat_goes_on(
    client: RedisClient,
) -> None:
    """With its own reason; what made the model fail is in no later prompt."""
    await say(Inbox(client), "poison", id="x1")
    await say(Inbox(client), "fine", id="x2")
    await failed_since(client, 121, alone=121)
    await run_until_idle(client, make_loop(client, failing()))
    apology, answer = await lines(client)
    assert (apology.kind, apology.failed) == ("apology", "model_fails")
    assert "failed at this message again and again" in apology.content
    assert answer.content == "you said fine"
    assert await saved(client) == [WITHHELD, "[no answer was given: model_fails]", "fine", "you said fine"]


async def test_until_then_it_waits_alone(client: RedisClient) -> None:
    """Since when it fails alone is noted once, like since when its model does not answer."""
    await say(Inbox(client), "poison")
    await once(client, failing())
    first = await field(client, "alone")
    assert first is not None
    assert await field(client, "away") is not None
    await due_now(client)
    await once(client, failing())
    assert await field(client, "alone") == first
    assert await lines(client) == []


async def test_a_fault_that_others_share_begins_the_time_anew(client: RedisClient) -> None:
    """After an outage of ten minutes one fault of its own must not end a turn."""
    await say(Inbox(client), "poison")
    await failed_since(client, 600, alone=300)
    await once(client, closed)
    assert await field(client, "alone") is None
    await due_now(client)
    await once(client, failing())
    assert await lines(client) == []
    assert await field(client, "alone") is not None


async def test_a_model_that_fails_everybody_is_waited_for_as_long_as_ever(client: RedisClient) -> None:
    """The short time is for what a message meets alone."""
    await say(Inbox(client), "poison")
    await failed_since(client, 899)
    await once(client, failing(alone=False))
    assert await lines(client) == []
    await failed_since(client, 901)
    await due_now(client)
    await once(client, failing(alone=False))
    [apology] = await lines(client)
    assert apology.failed == "model_away"


async def test_a_message_that_is_left_alone_for_both_times_ends_by_the_shorter(client: RedisClient) -> None:
    """A longer time for the single message than for the model is none."""
    await say(Inbox(client), "poison")
    await failed_since(client, 901, alone=1)
    await once(client, failing())
    [apology] = await lines(client)
    assert apology.failed == "model_away"


async def test_what_waits_for_a_model_is_counted_until_it_is_answered(client: RedisClient) -> None:
    """So that nobody says that all is well meanwhile."""
    await say(Inbox(client), "poison")
    assert await count_model_waits(client) == 0
    await once(client, closed)
    assert await count_model_waits(client) == 1
    await due_now(client)
    await run_until_idle(client, make_loop(client, echo))
    assert await count_model_waits(client) == 0


@pytest.mark.parametrize(
    ("agent", "waited_s", "text"),
    [
        (closed, 0.0, "the model is overloaded; trying again in 12 s"),
        (failing(), 0.0, ""),
        (failing(), 60.0, "the model failed at this message; trying again in 1 s"),
        (failing("connection", alone=False), 60.0, "the model cannot be reached; trying again in 1 s"),
        (failing("timeout", alone=False), 60.0, "the model does not answer; trying again in 1 s"),
    ],
    ids=["the fleet asks nobody", "its first fault", "it fails alone", "no connection", "silence"],
)
async def test_a_person_reads_why_the_answer_waits_and_until_when(
    client: RedisClient, agent: Agent, waited_s: float, text: str
) -> None:
    """At once while the fleet asks nobody; a fault of one's own may be over in a moment."""
    await say(Inbox(client), "poison")
    if waited_s:
        await failed_since(client, waited_s)
    async with watching(client, SESSION) as seen:
        await once(client, agent)
        if text:
            await eventually(lambda: any(isinstance(news, ProgressEvent) for _, news in seen.news))
        notes = [news for _, news in seen.news if isinstance(news, ProgressEvent)]
        assert notes == ([ProgressEvent(1, text, note=True)] if text else [])


@pytest.mark.parametrize(("kind", "retryable"), [("bad_request", False), ("auth", False), ("overloaded", True)])
async def test_what_the_provider_says_is_in_the_dead_letter_and_the_log(
    client: RedisClient, capfd: pytest.CaptureFixture[str], kind: str, retryable: bool
) -> None:
    """The owner reads it there; the text of the chat has no word of it, for others are there, too."""
    await say(Inbox(client), "poison")
    await failed_since(client, 901, alone=121)
    await once(client, failing(kind, retryable=retryable))
    [apology] = await lines(client)
    assert (apology.refusal, WORDS in apology.content) == (WORDS, False)
    [letter] = await DeadLetters(client, Inbox(client)).newest()
    assert (letter.why, letter.undelivered) == (WORDS, False)
    output = capfd.readouterr()
    assert (output.out + output.err).count(WORDS) >= 2


async def test_an_admin_reads_what_the_provider_says_in_a_chat_of_two(client: RedisClient) -> None:
    """The inlet marks such a message; nobody else can."""
    sent = msgspec.structs.replace(message("poison"), metadata={ADMIN: "1"})
    await Inbox(client).ingest(sent)
    await once(client, failing("bad_request", retryable=False))
    [apology] = await lines(client)
    assert apology.content.endswith(f"The provider said: {WORDS}")


async def test_a_shorter_time_can_be_set(client: RedisClient) -> None:
    """`agent.give_up_alone_s`; the last wait ends when it is over."""
    settings = AgentSettings(give_up_alone_s=5.0)
    runner = RunTurn(client, Turns(client), failing(), settings=settings, rng=NoWaits())
    loop = LeaseLoop(LeaseQueue(client, "turns", owner="o" * 22, lease_s=30), slots=10, run=runner)
    await say(Inbox(client), "poison")
    await failed_since(client, 6, alone=6)
    await loop.claim_once()
    await eventually(lambda: loop.running == 0)
    [apology] = await lines(client)
    assert apology.failed == "model_fails"
