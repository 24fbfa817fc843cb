"""The spawn tool: what it queues, what it answers, and how it waits."""

from __future__ import annotations

import pytest

from shared.errors import BadInput, ToolFailed, TurnReleased
from shared.messages.effects import Effect, SpawnEffect
from shared.messages.subagent import LABEL_LIMIT, TASK_LABEL_CHARS
from shared.store.subagents.subagents import AwaitedSubagent
from tests.helpers.clock import HandClock
from worker.agent.tools.tool import ToolContext
from worker.tools.spawn import SpawnArguments, SpawnTool, child_id


class Effects:
    """Keeps what was carried out; `border` counts, and ends the turn when it shall."""

    def __init__(self, *, refusal: BadInput | None = None, drain_at: int = 0, clock: HandClock | None = None) -> None:
        self.done: list[SpawnEffect] = []
        self.borders = 0
        self._refusal, self._drain_at, self._clock = refusal, drain_at, clock

    async def carry_out(self, effect: Effect) -> bool:
        if self._refusal is not None:
            raise self._refusal
        assert isinstance(effect, SpawnEffect)
        self.done.append(effect)
        return True

    async def border(self) -> None:
        self.borders += 1
        if self.borders == self._drain_at:
            raise TurnReleased("drain")
        if self._clock is not None:
            self._clock.at += 100


class Waits:
    """What a store tells of a subagent, one answer after the other; the last one stays."""

    def __init__(self, *states: AwaitedSubagent | None, detached: bool = True) -> None:
        self._states = list(states)
        self._detached = detached

    async def read_awaited(self, id: str) -> AwaitedSubagent | None:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    async def detach(self, id: str) -> bool:
        return self._detached


RUNS = AwaitedSubagent("running", True, "")


def context(effects: Effects, clock: HandClock | None = None) -> ToolContext:
    return ToolContext(session="web:owner/a", turn=7, call_id="c1", effects=effects, clock=clock or HandClock())


async def test_it_answers_at_once_and_its_id_is_made_of_the_call() -> None:
    """The same call on another worker names the same subagent."""
    effects = Effects()
    result = await SpawnTool(Waits(None)).run(SpawnArguments(task="dig for gold"), context(effects))
    id = child_id("web:owner/a", 7, "c1")
    assert len(id) == 8
    assert result == f"Subagent [dig for gold] started (id: {id}). I'll notify you when it completes."
    [effect] = effects.done
    assert (effect.to, effect.task.session, effect.task.turn, effect.task.wait) == (id, "web:owner/a", 7, False)
    assert child_id("web:owner/a", 7, "c2") != id != child_id("web:owner/a", 8, "c1")


async def test_a_task_without_a_label_is_called_by_its_beginning() -> None:
    """30 characters and an ellipsis."""
    effects = Effects()
    await SpawnTool(Waits(None)).run(SpawnArguments(task="x" * 31), context(effects))
    await SpawnTool(Waits(None)).run(SpawnArguments(task="x" * TASK_LABEL_CHARS), context(effects))
    assert [effect.task.label for effect in effects.done] == ["x" * 30 + "...", "x" * 30]


async def test_a_given_label_stays_whole() -> None:
    """Up to 100 characters, in one line."""
    effects = Effects()
    label = "a label that is clearly longer than the beginning of a task " + "x" * 40
    for given in (label, "two\n lines"):
        await SpawnTool(Waits(None)).run(SpawnArguments(task="dig", label=given), context(effects))
    assert len(label) == LABEL_LIMIT
    assert [effect.task.label for effect in effects.done] == [label, "two lines"]


async def test_too_many_are_refused_with_the_number() -> None:
    """The model reads how many there may be, and that this one did not start."""
    effects = Effects(refusal=BadInput("turn_spawned_enough", "one turn starts at most 5 subagents"))
    with pytest.raises(ToolFailed, match=r"at most 5 subagents, so \[dig\] was not started"):
        await SpawnTool(Waits(None)).run(SpawnArguments(task="dig"), context(effects))
    with pytest.raises(ToolFailed, match="empty"):
        await SpawnTool(Waits(None)).run(SpawnArguments(task="  "), context(Effects()))


async def test_waiting_it_answers_with_the_result() -> None:
    """As soon as it is there."""
    tool = SpawnTool(Waits(RUNS, RUNS, AwaitedSubagent("ok", True, "gold")))
    result = await tool.run(SpawnArguments(task="dig", wait=True), context(Effects()))
    assert result == "Subagent [dig] completed successfully. Result:\ngold"


@pytest.mark.parametrize("state", ["failed", "timeout", "poison"])
async def test_waiting_it_tells_of_a_failure(state: str) -> None:
    """As of any tool that failed."""
    tool = SpawnTool(Waits(AwaitedSubagent(state, True, "no shovel")))  # type: ignore[arg-type]
    with pytest.raises(ToolFailed, match="no shovel"):
        await tool.run(SpawnArguments(task="dig", wait=True), context(Effects()))


async def test_waiting_has_an_end_and_the_chat_gets_the_result_later() -> None:
    """Also when no worker takes jobs at all: then it says so."""
    for state, text in (("running", "is still running"), ("queued", "no worker had room")):
        clock = HandClock()
        effects = Effects(clock=clock)
        tool = SpawnTool(Waits(AwaitedSubagent(state, True, "")), wait_s=150)  # type: ignore[arg-type]
        result = await tool.run(SpawnArguments(task="dig", wait=True), context(effects, clock))
        assert text in result
        assert "I'll notify you" in result


async def test_a_successor_does_not_wait_for_one_that_reports_already() -> None:
    """Else its result would come twice, also when it has ended by then."""
    for reporting in (
        AwaitedSubagent("running", False, ""),
        AwaitedSubagent("ok", False, "gold"),
        AwaitedSubagent("failed", False, "none"),
    ):
        tool = SpawnTool(Waits(reporting))
        result = await tool.run(SpawnArguments(task="dig", wait=True), context(Effects()))
        assert "I'll notify you" in result
        assert "gold" not in result
    cancelled = SpawnTool(Waits(AwaitedSubagent("cancelled", False, "")))
    assert "was cancelled" in await cancelled.run(SpawnArguments(task="dig", wait=True), context(Effects()))


async def test_a_drain_ends_the_waiting() -> None:
    """A turn that only waits stands at a border."""
    with pytest.raises(TurnReleased):
        await SpawnTool(Waits(RUNS)).run(SpawnArguments(task="dig", wait=True), context(Effects(drain_at=2)))
