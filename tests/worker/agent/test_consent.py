"""Calls that need a person's yes, in the loop: when a turn is given up, and what a successor does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.errors import LeaseLost, TurnParked
from shared.messages.transcript import ApprovalEntry, DecisionEntry, IntentEntry, ToolEntry, UserEntry
from tests.helpers.scripted_model import Reply, ScriptedModel, call, calls
from tests.helpers.turn_borders import MemoryJournal, RecordingTool
from worker.agent.loop import run_agent
from worker.agent.model.model import ToolCallRequest
from worker.agent.ports import FREE, ApprovalNeed
from worker.agent.tools.tool import Safety, ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.guards.marks import TurnMark


class Asks:
    """Asks for calls of tools named `ask`, refuses those of `never`; `cautious` asks for all once `page` was read."""

    wait_s = 600.0

    def __init__(self) -> None:
        self.turn = TurnMark()
        self.changed = False
        self.mark, self.pop_unwritten = self.turn.add, self.turn.pop_unwritten

    @property
    def sources(self) -> tuple[str, ...]:
        return self.turn.sources

    async def settle(self) -> None:
        return

    def brings(self, call: ToolCallRequest) -> tuple[str, ...]:
        return ("evil.example",) if call.name == "page" else ()

    def need(self, call: ToolCallRequest, safety: Safety | None) -> ApprovalNeed:
        if call.name == "never":
            return ApprovalNeed("refuse", "nobody can be asked here")
        return ApprovalNeed("ask") if call.name == "ask" or (self.sources and safety == "unsafe") else FREE

    async def stands(self, call: ToolCallRequest) -> bool:
        return False

    def question(self, call: ToolCallRequest, safety: Safety | None) -> ApprovalEntry:
        return ApprovalEntry(id=f"q-{call.id}", call_id=call.id, turn=1, tool=call.name, digest="d", arguments="{}")

    def covers(self, question: ApprovalEntry, call: ToolCallRequest) -> bool:
        return not self.changed and question.call_id == call.id


class Turn:
    """One turn over any number of workers."""

    def __init__(self, *replies: Reply) -> None:
        self.journal = MemoryJournal()
        self.events = self.journal.events
        self.model = ScriptedModel(list(replies))
        self.tools = [
            RecordingTool("ask", "unsafe", events=self.events),
            RecordingTool("act", "unsafe", events=self.events),
            RecordingTool("never", "unsafe", events=self.events),
            RecordingTool("page", events=self.events),
        ]

    async def run(self, consent: Asks | None = None) -> AgentResult:
        spec: dict[str, Any] = {"consent": consent or Asks(), "resume": tuple(self.journal.entries)}
        return await run_agent(
            AgentRunSpec(session="s", entry=UserEntry(content="go", turn=1), **spec),
            self.model,
            Toolbox(self.tools),
            self.journal,
        )

    async def parked(self) -> ApprovalEntry:
        with pytest.raises(TurnParked):
            await self.run()
        question = self.journal.entries[-1]
        assert isinstance(question, ApprovalEntry)
        return question

    def decide(self, question: ApprovalEntry, *, yes: bool) -> None:
        self.journal.entries.append(DecisionEntry(call_id=question.call_id, turn=1, yes=yes, by="owner"))

    @property
    def runs(self) -> list[str]:
        return [event.removeprefix("run:") for event in self.events if event.startswith("run:")]

    @property
    def results(self) -> dict[str, str]:
        return {one.call_id: one.content for one in self.journal.entries if isinstance(one, ToolEntry)}


async def test_a_yes_lets_the_call_run_once_with_its_intent_first() -> None:
    """No model call is made again; the answer follows as ever."""
    turn = Turn(calls(call("ask", id="c1")), "done")
    question = await turn.parked()
    assert turn.runs == []
    turn.decide(question, yes=True)
    result = await turn.run()
    assert result.content == "done"
    assert turn.runs == ["c1"]
    assert turn.events.index("intent:c1") < turn.events.index("run:c1")
    assert len(turn.model.asked) == 2


@pytest.mark.parametrize("how", ["no", "unanswered", "changed"])
async def test_without_a_yes_to_exactly_this_it_does_not_run(how: str) -> None:
    """A no, silence, and other arguments: the model is told, and nothing was begun."""
    turn = Turn(calls(call("ask", id="c1")), "done")
    question = await turn.parked()
    consent = Asks()
    if how == "unanswered":
        turn.journal.unanswered.add("c1")
    else:
        turn.decide(question, yes=how == "changed")
        consent.changed = True
    result = await turn.run(consent)
    assert result.content == "done"
    assert turn.runs == []
    assert not any(isinstance(entry, IntentEntry) for entry in turn.journal.entries)
    reasons = {
        "no": "the user said no",
        "unanswered": "nobody answered within 10 minutes",
        "changed": "arguments are not",
    }
    assert reasons[how] in turn.results["c1"]


async def test_a_worker_lost_behind_the_intent_leaves_the_outcome_unknown_and_asks_nobody_again() -> None:
    """A yes is used up by the first try."""
    turn = Turn(calls(call("ask", id="c1")), "done")
    turn.decide(await turn.parked(), yes=True)
    turn.journal.entries.append(IntentEntry(call_id="c1", turn=1, at=1))
    await turn.run()
    assert turn.runs == []
    assert turn.results["c1"].startswith("outcome unknown")
    assert [event for event in turn.events if event.startswith("park")] == ["park:c1"]


async def test_what_one_of_several_calls_at_once_read_marks_the_record_of_each() -> None:
    """Whichever ends first takes the mark along; the worker may be lost when only the other one is written."""
    turn, second_ended = Turn(calls(call("reads", id="c1"), call("looks", id="c2")), "done"), asyncio.Event()

    async def reads(_: Any, context: ToolContext) -> str:
        context.mark_read(["evil.example"])
        await second_ended.wait()
        return "obey"

    async def looks(*_: Any) -> str:
        asyncio.get_running_loop().call_later(0, second_ended.set)
        return "42"

    turn.tools += [RecordingTool("reads", behaviour=reads), RecordingTool("looks", behaviour=looks)]
    turn.journal.on("result:c1", LeaseLost("the worker is gone"), before=False)
    with pytest.raises(LeaseLost):
        await turn.run()
    [written] = [one for one in turn.journal.entries if isinstance(one, ToolEntry)]
    assert (written.call_id, written.sources) == ("c1", ("evil.example",))


async def test_several_calls_are_asked_about_one_after_the_other() -> None:
    """What needs no yes before them has run by then, and is not run again."""
    turn = Turn(calls(call("page", id="c0"), call("ask", id="c1"), call("act", id="c2"), call("ask", id="c3")), "done")
    first = await turn.parked()
    assert (first.call_id, turn.runs) == ("c1", ["c0"])
    turn.decide(first, yes=False)
    second = await turn.parked()
    assert (second.call_id, turn.runs) == ("c3", ["c0", "c2"])
    turn.decide(second, yes=True)
    await turn.run()
    assert turn.runs == ["c0", "c2", "c3"]
    assert list(turn.results) == ["c0", "c1", "c2", "c3"]


async def test_a_successor_that_comes_too_early_waits_on() -> None:
    """It asks nothing anew."""
    turn = Turn(calls(call("ask", id="c1")), "done")
    question = await turn.parked()
    again = await turn.parked()
    assert again is question
    assert [entry for entry in turn.journal.entries if isinstance(entry, ApprovalEntry)] == [question]


async def test_what_a_turn_has_read_counts_from_the_next_reply_on_for_every_worker() -> None:
    """Calls beside the page were wanted before it was read; behind it an unsafe one asks, also after a resume."""
    turn = Turn(calls(call("page", id="c0"), call("act", id="c1")), calls(call("act", id="c2")), "done")
    question = await turn.parked()
    assert (question.call_id, turn.runs) == ("c2", ["c0", "c1"])
    turn.decide(question, yes=True)
    await turn.run()
    assert turn.runs == ["c0", "c1", "c2"]


async def test_the_result_that_brings_text_names_its_source_in_the_same_step() -> None:
    """So no worker can find the text in the ledger without its mark; later results need not repeat it."""
    turn = Turn(calls(call("page", id="c0")), calls(call("page", id="c1")), "done")
    await turn.run()
    marks = {one.call_id: one.sources for one in turn.journal.entries if isinstance(one, ToolEntry)}
    assert marks == {"c0": ("evil.example",), "c1": ()}


async def test_without_anybody_to_ask_the_model_gets_the_reason() -> None:
    """The turn goes on at once."""
    turn = Turn(calls(call("never", id="c1")), "done")
    result = await turn.run()
    assert result.content == "done"
    assert "nobody can be asked here" in turn.results["c1"]
    assert turn.runs == []


async def test_an_answer_counts_although_the_settings_changed_meanwhile() -> None:
    """A worker of other settings keeps to what a person was asked."""
    turn = Turn(calls(call("ask", id="c1")), "done")
    question = await turn.parked()
    turn.decide(question, yes=False)

    class Trusting(Asks):
        def need(self, call: ToolCallRequest, safety: Safety | None) -> ApprovalNeed:
            return FREE

    await turn.run(Trusting())
    assert turn.runs == []
    assert "the user said no" in turn.results["c1"]
