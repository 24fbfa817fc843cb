"""Every fault of a provider, through the whole chain of a model and up to the turn: who asks again, and what is seen.

The table of outcomes is in docs/agent.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.errors import ModelClosed, ModelError
from shared.messages.transcript import UserEntry
from shared.settings import ModelSettings, Secret
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.provider_limits import ProviderLimits
from tests.helpers.openai_server import Answer, ScriptedOpenAI
from tests.helpers.turn_borders import MemoryJournal, RecordingProgress
from worker.agent.loop import run_agent
from worker.agent.model.model import Model
from worker.agent.run import NO_ANSWER
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.llm.registry import Models

OK = Answer(text="All is well.", times=0)


class Turns:
    """Turns on one model at the scripted server, with short waits between its tries."""

    def __init__(self, server: ScriptedOpenAI, client: RedisClient) -> None:
        self.server = server
        self.progress = RecordingProgress()
        self._limits = ProviderLimits(client)
        self._models: list[Model] = []

    def model(self, **settings: Any) -> Model:
        chosen: dict[str, Any] = {
            "name": "openai/scripted",
            "api_base": self.server.base_url,
            "api_key": Secret("sk-x"),
            "client": "direct",
            "retry_waits_s": (0.01, 0.02, 0.04),
            "breaker_s": 0.3,
        }
        self._models.append(Models(ModelSettings(**(chosen | settings)), self._limits).get())
        return self._models[-1]

    async def run(self, *answers: Answer, session: str = "s", **settings: Any) -> AgentResult:
        self.server.script(*answers)
        spec = AgentRunSpec(session=session, entry=UserEntry(content="hi", turn=1), progress=self.progress)
        return await run_agent(spec, self.model(**settings), Toolbox([]), MemoryJournal())

    async def fail(self, *answers: Answer, session: str = "s", **settings: Any) -> ModelError:
        with pytest.raises(ModelError) as raised:
            await self.run(*answers, session=session, **settings)
        return raised.value

    @property
    def asked(self) -> int:
        return self.server.stats()["requests"]

    async def close(self) -> None:
        for model in self._models:
            await model.close()


@pytest.fixture
async def turns(server: ScriptedOpenAI, client: RedisClient) -> AsyncIterator[Turns]:
    turns = Turns(server, client)
    yield turns
    await turns.close()


PASSING = {
    "429 without Retry-After": Answer(status=429),
    "429 with Retry-After": Answer(status=429, retry_after="0.3"),
    "500": Answer(status=500),
    "503 with Retry-After": Answer(status=503, retry_after="0.1"),
    "cut before the first word": Answer(text="a b", cut_after=0),
    "cut in the middle": Answer(text="I will now", cut_after=2),
    "garbage in the middle": Answer(text="a b c", fault="garbage"),
}


@pytest.mark.parametrize("name", PASSING)
async def test_a_fault_that_passes_is_not_seen(turns: Turns, name: str) -> None:
    """One request more, and the answer; what was already shown of a broken one is taken back."""
    result = await turns.run(PASSING[name], OK)
    assert (result.content, turns.progress.visible, turns.asked) == ("All is well.", "All is well.", 2)


async def test_a_hang_before_the_first_word_is_asked_again(turns: Turns) -> None:
    """After `first_token_s`."""
    result = await turns.run(Answer(fault="hang"), OK, first_token_s=0.3)
    assert (result.content, turns.asked) == ("All is well.", 2)


async def test_a_stream_that_stops_talking_is_asked_again(turns: Turns) -> None:
    """After `between_tokens_s`; the half of it that was shown is taken back."""
    result = await turns.run(Answer(text="a b c", stall_after=2), OK, between_tokens_s=0.3)
    assert (result.content, turns.progress.visible, turns.asked) == ("All is well.", "All is well.", 2)


@pytest.mark.parametrize(
    ("status", "kind", "asked"), [(500, "overloaded", 4), (401, "auth", 1), (403, "auth", 1), (400, "bad_request", 1)]
)
async def test_a_fault_that_stays_goes_up(turns: Turns, status: int, kind: str, asked: int) -> None:
    """After four tries where another can help, after one where it cannot."""
    error = await turns.fail(Answer(status=status, times=0))
    assert (error.kind, error.retryable, turns.asked) == (kind, asked > 1, asked)


async def test_a_long_retry_after_goes_up_at_once_and_nobody_else_asks(turns: Turns) -> None:
    """The turn is released for that time; every other turn too, without a request."""
    error = await turns.fail(Answer(status=429, retry_after="25", times=0))
    assert (error.kind, error.retry_after_s, turns.asked) == ("rate_limit", 25.0, 1)
    others = await asyncio.gather(*(turns.fail() for _ in range(5)))
    assert all(isinstance(other, ModelClosed) and 24.0 < (other.retry_after_s or 0.0) < 33.0 for other in others)
    assert turns.asked == 1


async def test_a_provider_that_is_down_is_left_alone_after_a_few_faults(turns: Turns) -> None:
    """The tries of one turn are its own; with those of a second one they close the route, and ten turns ask nobody."""
    settings: dict[str, Any] = {"breaker_after": 3, "breaker_s": 30.0, "retry_waits_s": (0.01,)}
    first = await turns.fail(Answer(status=500, times=0), **settings)
    assert (turns.asked, first.alone) == (2, True)
    await turns.fail(session="s2", **settings)
    assert turns.asked == 3
    errors = await asyncio.gather(*(turns.fail(session=f"s{n}", **settings) for n in range(10)))
    assert {(error.kind, error.retryable, error.alone) for error in errors} == {("overloaded", True, False)}
    assert turns.asked == 3


async def test_a_fallback_answers_for_a_model_that_is_down(turns: Turns) -> None:
    """After the tries of the first; the person sees the answer and nothing else."""
    turns.server.script(Answer(status=500, times=3))
    result = await turns.run(OK, fallbacks=("openai/other",), retry_waits_s=(0.01, 0.01))
    assert (result.content, turns.asked) == ("All is well.", 4)
    assert [request.body["model"] for request in turns.server.requests()] == ["scripted"] * 3 + ["other"]


async def test_an_empty_reply_is_asked_for_once_more_and_then_admitted(turns: Turns) -> None:
    """A reply without a word is no fault of the way."""
    assert (await turns.run(Answer(text=""), OK)).content == "All is well."
    turns.server.reset()
    result = await turns.run(Answer(text="", times=0))
    assert (result.content, result.outcome, turns.asked) == (NO_ANSWER, "empty", 2)


async def test_a_reply_cut_by_length_is_continued(turns: Turns) -> None:
    """The parts are one answer."""
    result = await turns.run(Answer(text="one two ", finish_reason="length"), Answer(text="three"))
    assert (result.content, turns.asked) == ("one two three", 2)


async def test_a_prompt_that_is_too_long_is_not_repeated(turns: Turns) -> None:
    """It goes up as what it is, past the fallbacks."""
    too_long = Answer(status=400, error={"code": "context_length_exceeded"})
    error = await turns.fail(too_long, OK, fallbacks=("openai/other",))
    assert (error.kind, error.retryable, turns.asked) == ("context_length", False, 1)
