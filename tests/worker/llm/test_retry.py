"""A busy model is asked again, with patience and an end."""

from __future__ import annotations

import pytest

from shared.clock import Clock
from shared.errors import ModelClosed, ModelError, TurnStopped
from tests.helpers.scripted_model import Broken, Replies, ScriptedModel
from worker.agent.model.model import Model, ModelRequest, OnDelta
from worker.llm.policies.retry import RetryingModel

ASK = [{"role": "user", "content": "hi"}]


def fault(kind: str = "overloaded", *, retryable: bool = True, retry_after_s: float | None = None) -> ModelError:
    return ModelError(kind, "scripted", retryable=retryable, retry_after_s=retry_after_s)


class Trial(Clock):
    """A retrying model whose time passes only while it waits."""

    def __init__(self, replies: Replies, *, deadline_s: float = 300.0) -> None:
        self.now_s = 0.0
        self.waits_s: list[float] = []
        self.inner = ScriptedModel(replies)
        self.model: Model = RetryingModel(self.inner, deadline_s=deadline_s, clock=self, sleep=self.sleep)

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self.now_s += seconds

    async def ask(self, on_delta: OnDelta | None = None) -> str | None:
        return (await self.model.chat(ModelRequest(ASK), on_delta)).content


async def test_the_waits_are_1_2_and_4_seconds() -> None:
    """Four tries, then the fault goes up."""
    trial = Trial([fault(), fault("rate_limit"), fault("timeout"), "ok"])
    assert (await trial.ask(), trial.waits_s) == ("ok", [1.0, 2.0, 4.0])
    trial = Trial([fault()] * 4)
    with pytest.raises(ModelError):
        await trial.ask()
    assert trial.waits_s == [1.0, 2.0, 4.0]


async def test_retry_after_wins() -> None:
    """The provider knows best, in both directions; the next wait is the schedule's again."""
    trial = Trial([fault(retry_after_s=7.5), fault(retry_after_s=0.0), fault(), "ok"])
    assert (await trial.ask(), trial.waits_s) == ("ok", [7.5, 0.0, 4.0])


async def test_no_try_begins_after_the_deadline() -> None:
    """Somebody waits for the answer; a provider that wants an hour gets the fault reported instead."""
    trial = Trial([fault(retry_after_s=3600.0)])
    with pytest.raises(ModelError) as raised:
        await trial.ask()
    assert (raised.value.retry_after_s, trial.waits_s) == (3600.0, [])
    trial = Trial([fault()] * 2, deadline_s=2.5)
    with pytest.raises(ModelError):
        await trial.ask()
    assert trial.waits_s == [1.0]


async def test_what_cannot_help_is_not_repeated() -> None:
    """A wrong key stays wrong, and a stop is no fault of the model."""
    trial = Trial([fault("auth", retryable=False)])
    with pytest.raises(ModelError):
        await trial.ask()
    assert trial.waits_s == []
    trial = Trial([TurnStopped()])
    with pytest.raises(TurnStopped):
        await trial.ask()


async def test_after_a_delta_the_fault_goes_up() -> None:
    """Only the caller can take back what it has shown; before the first delta nobody saw anything."""
    shown: list[str] = []

    async def show(delta: str) -> None:
        shown.append(delta)

    trial = Trial([Broken(fault()), Broken(fault(), ("half",))])
    with pytest.raises(ModelError):
        await trial.ask(show)
    assert (shown, trial.waits_s) == (["half"], [1.0])


async def test_what_the_listener_raises_goes_up() -> None:
    """A stop in the middle of a stream is not retried."""

    async def stop(delta: str) -> None:
        raise TurnStopped

    trial = Trial(["some text"])
    with pytest.raises(TurnStopped):
        await trial.ask(stop)


async def test_a_long_wait_goes_up_at_once() -> None:
    """A turn holds a slot while it waits here: over 10 s it is better released, for as long as the provider wants."""
    trial = Trial([fault("rate_limit", retry_after_s=10.0), fault("rate_limit", retry_after_s=10.5)])
    with pytest.raises(ModelError) as raised:
        await trial.ask()
    assert (raised.value.retry_after_s, trial.waits_s) == (10.5, [10.0])


async def test_a_closed_model_is_not_waited_for() -> None:
    """It was not even asked; a fallback may be, now."""
    trial = Trial([ModelClosed("rate_limit", "scripted", retry_after_s=2.5)])
    with pytest.raises(ModelClosed):
        await trial.ask()
    assert trial.waits_s == []
