"""Functions of a program: offered to the model, waited for, and gone on with."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.errors import TurnLimited, TurnParked, TurnStopped
from shared.messages.inbound import ClientTool, TurnOptions
from shared.messages.transcript import AssistantEntry, CallsEntry, ToolCall, ToolEntry
from tests.helpers.scripted_model import Replies, call, calls
from tests.helpers.turn_borders import RecordingTool
from tests.worker.agent.turns import SPEC
from tests.worker.agent.turns import Turn as AnyTurn

TOOLS = (ClientTool("theirs", "Theirs.", '{"type":"object"}'), ClientTool("other"))


class Turn(AnyTurn):
    """A turn whose program offers two functions, and whose agent has a tool."""

    def __init__(self, replies: Replies, choice: str = "") -> None:
        options = TurnOptions(tools=TOOLS, tool_choice=choice)
        super().__init__(replies, RecordingTool("own"), spec=replace(SPEC, options=options))

    async def park(self) -> CallsEntry:
        with pytest.raises(TurnParked):
            await self.run(resume=tuple(self.journal.entries))
        asked = self.journal.entries[-1]
        assert isinstance(asked, CallsEntry)
        return asked

    def answer(self, asked: CallsEntry, text: str = "rain") -> None:
        """As submit.lua writes it."""
        self.journal.entries += [
            ToolEntry(call_id=one.id, name=one.name, content=text, turn=7, sources=("tools of the client",))
            for one in asked.calls
        ]


async def test_the_turn_waits_for_its_program_after_its_own_tools() -> None:
    """Both calls are answered when the model is asked again; a successor asks nobody twice."""
    turn = Turn([calls(call("theirs", id="a"), call("own", id="b")), "done"])
    asked = await turn.park()
    assert [one.name for one in asked.calls] == ["theirs"]
    assert turn.events.index("result:b") < turn.events.index("park_calls")
    assert await turn.park() == asked
    assert turn.events.count("run:b") == 1
    turn.answer(asked)
    result = await turn.run(resume=tuple(turn.journal.entries))
    assert (result.content, len(turn.model.asked)) == ("done", 2)
    assert next(entry.content for entry in result.entries if isinstance(entry, ToolEntry)) == "rain"


async def test_ids_are_the_only_ones_of_the_session() -> None:
    """Whatever the provider calls them: a late result never passes for that of another call."""
    one, two = Turn([calls(call("theirs", id="a"))]), Turn([calls(call("theirs", id="a"))])
    two.spec = replace(two.spec, entry=replace(two.spec.entry, turn=8))
    first, second = await one.park(), await two.park()
    assert first.calls[0].id != second.calls[0].id
    assert first.calls[0].id.startswith("call_")


@pytest.mark.parametrize("named", [True, False])
async def test_nobody_answers_in_time(named: bool) -> None:
    """Where somebody may read the answer the model is told; else the turn ends."""
    turn = Turn([calls(call("theirs", id="a"), call("other", id="b")), "done"])
    asked = await turn.park()
    turn.journal.unanswered.update(one.id for one in asked.calls)
    resume = tuple(turn.journal.entries)
    if not named:
        with pytest.raises(TurnStopped):
            await turn.run(resume=resume)
        return
    result = await turn.run(resume=resume, goes_on_unanswered=True, calls_wait_s=5.0)
    assert result.content == "done"
    notes = [entry for entry in result.entries if isinstance(entry, ToolEntry)]
    assert [entry.ok for entry in notes] == [False, False]
    assert "within 5 s" in notes[0].content


async def test_a_successor_finishes_what_was_not_answered() -> None:
    """Its predecessor died between two of the notes."""
    turn = Turn([calls(call("theirs", id="a"), call("other", id="b")), "done"])
    asked = await turn.park()
    late = ToolEntry(call_id=asked.calls[0].id, name="theirs", content="late", turn=7, ok=False)
    turn.journal.entries.append(late)
    result = await turn.run(resume=tuple(turn.journal.entries), goes_on_unanswered=True)
    assert result.content == "done"
    assert turn.events.count("park_calls") == 1


@pytest.mark.parametrize(("choice", "names"), [("required", ["theirs", "other"]), ("other", ["other"])])
async def test_a_call_can_be_demanded_in_the_first_round(choice: str, names: list[str]) -> None:
    """No other tool is offered with them; afterwards all are."""
    turn = Turn([calls(call(names[0], id="a")), "done"], choice)
    turn.answer(await turn.park())
    await turn.run(resume=tuple(turn.journal.entries))
    assert turn.model.offered == [names, ["own", "theirs", "other"]]
    assert turn.model.choices == ["required", "auto"]


async def test_a_name_of_a_tool_is_refused() -> None:
    turn = Turn(["done"])
    turn.spec = replace(turn.spec, options=TurnOptions(tools=(ClientTool("own"),)))
    with pytest.raises(TurnLimited, match="'own' has the name of a tool") as refused:
        await turn.run()
    assert refused.value.limit == "function_name"


async def test_calls_that_came_with_the_message_are_steps_of_the_turn() -> None:
    """The model sees them after the message, and history keeps them; they count as no round."""
    steps = (
        AssistantEntry(content="I look.", turn=0, tool_calls=(ToolCall("c1", "theirs", "{}"),)),
        ToolEntry(call_id="c1", name="theirs", content="rain", turn=0, sources=("tools of the client",)),
    )
    turn = Turn(["done"])
    result = await turn.run(steps=steps)
    assert turn.seen(0) == [("assistant", "I look."), ("tool", "rain")]
    assert result.rounds == 1
    assert [entry.content for entry in result.entries] == ["question", "I look.", "rain", "done"]
