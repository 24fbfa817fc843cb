"""Another model answers when one cannot."""

from __future__ import annotations

import pytest

from shared.errors import ModelClosed, ModelError, TurnStopped
from tests.helpers.scripted_model import Broken, Reply, ScriptedModel
from worker.agent.model.model import ModelRequest
from worker.llm.policies.retry import FallbackModel

ASK = [{"role": "user", "content": "hi"}]


def fault(kind: str = "overloaded", *, retryable: bool = True) -> ModelError:
    return ModelError(kind, kind, retryable=retryable)


class Trial:
    """Models that answer once each, and what was shown of it."""

    def __init__(self, *replies: Reply) -> None:
        self.models = [ScriptedModel([reply]) for reply in replies]
        self.model = FallbackModel(self.models)
        self.shown: list[str] = []

    async def note(self, delta: str) -> None:
        self.shown.append(delta)

    async def ask(self) -> str | None:
        return (await self.model.chat(ModelRequest(ASK), self.note)).content

    @property
    def asked(self) -> list[int]:
        return [len(model.asked) for model in self.models]


async def test_the_first_that_can_answers() -> None:
    """In the order of the settings; the others are left alone."""
    trial = Trial("one", "two")
    assert (await trial.ask(), trial.asked) == ("one", [1, 0])
    trial = Trial(fault(), fault("rate_limit"), "three", "four")
    assert (await trial.ask(), trial.asked, trial.shown) == ("three", [1, 1, 1, 0], ["three"])


@pytest.mark.parametrize("kind", ["auth", "bad_request", "bad_reply", "connection", "timeout"])
async def test_every_fault_of_a_provider_counts(kind: str) -> None:
    """Also a key that was taken back and a model that is no longer served: another provider does not care."""
    trial = Trial(fault(kind, retryable=kind not in ("auth", "bad_request")), "two")
    assert await trial.ask() == "two"


async def test_a_prompt_that_is_too_long_goes_up() -> None:
    """It is shortened, not shown to everybody."""
    trial = Trial(fault("context_length", retryable=False), "two")
    with pytest.raises(ModelError, match="context_length"):
        await trial.ask()
    assert trial.asked == [1, 0]


async def test_after_a_delta_nobody_else_is_asked() -> None:
    """The text of two models would stand in one answer."""
    trial = Trial(Broken(fault(), ("half",)), "two")
    with pytest.raises(ModelError):
        await trial.ask()
    assert (trial.shown, trial.asked) == (["half"], [1, 0])


async def test_a_stop_is_no_fault() -> None:
    """It ends the call at once."""
    trial = Trial(TurnStopped(), "two")
    with pytest.raises(TurnStopped):
        await trial.ask()
    assert trial.asked == [1, 0]


async def test_when_none_can_answer_the_fault_that_may_pass_goes_up() -> None:
    """One that may pass lets the caller come back later; else the first one says what is wrong with the settings."""
    trial = Trial(fault("auth", retryable=False), fault("overloaded"), fault("connection"))
    with pytest.raises(ModelError, match="overloaded"):
        await trial.ask()
    trial = Trial(fault("auth", retryable=False), fault("bad_request", retryable=False))
    with pytest.raises(ModelError, match="auth"):
        await trial.ask()


async def test_when_none_can_answer_now_the_soonest_goes_up() -> None:
    """So that the turn comes back when one of them can be asked again, not when the first one can."""
    later, soon = (ModelClosed("rate_limit", f"in {wait_s} s", retry_after_s=wait_s) for wait_s in (60.0, 3.0))
    with pytest.raises(ModelClosed, match="in 3") as raised:
        await Trial(later, fault("auth", retryable=False), soon).ask()
    assert raised.value.retry_after_s == 3.0


class Counted(ScriptedModel):
    """Counts how often it is prepared and let go."""

    def __init__(self) -> None:
        super().__init__([])
        self.warmed = self.closed = 0

    async def preload(self) -> None:
        self.warmed += 1

    async def close(self) -> None:
        self.closed += 1


async def test_only_the_first_is_prepared_and_all_are_let_go() -> None:
    """A fallback that is never asked never costs its import."""
    first, second = Counted(), Counted()
    model = FallbackModel([first, second])
    await model.preload()
    await model.close()
    assert (first.warmed, second.warmed, first.closed, second.closed) == (1, 0, 1, 1)
    assert model.name == first.name
