"""A call's effects: carried out once over all attempts, on record before its result."""

from __future__ import annotations

import pytest

from shared.errors import LeaseLost
from shared.messages.effects import SayEffect
from shared.messages.outbound import OutboundMessage
from shared.messages.transcript import AssistantEntry, EffectEntry, IntentEntry, LedgerEntry, ToolCall, UserEntry
from tests.helpers.scripted_model import Replies, ScriptedModel, call, calls
from tests.helpers.turn_borders import AnyArguments, MemoryJournal, RecordingTool
from worker.agent.loop import run_agent
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec

STORED = AssistantEntry(content=None, turn=7, tool_calls=(ToolCall("c1", "tell", "{}"),))
BEGUN = IntentEntry(call_id="c1", turn=7)


def say_effect(text: str) -> SayEffect:
    return SayEffect(session="s", line=OutboundMessage(content=text, turn=7))


async def tell_twice(_arguments: AnyArguments, context: ToolContext) -> str:
    done = [await context.effects.carry_out(say_effect(text)) for text in ("one", "two")]
    return " ".join("now" if one else "before" for one in done)


async def run(journal: MemoryJournal, *ledger: LedgerEntry, replies: Replies = ("answer",)) -> AgentResult:
    tool = RecordingTool("tell", "idempotent", tell_twice)
    spec = AgentRunSpec(session="s", entry=UserEntry(content="question", turn=7), resume=ledger)
    return await run_agent(spec, ScriptedModel(replies), Toolbox([tool]), journal)


async def test_effects_stand_between_the_intent_and_the_result_and_not_in_history() -> None:
    """Each with its record."""
    journal = MemoryJournal()
    done = await run(journal, replies=[calls(call("tell", id="c1")), "answer"])
    assert [event for event in journal.events if event.endswith(":c1")] == [
        "intent:c1",
        "effect:c1",
        "effect:c1",
        "result:c1",
    ]
    assert journal.effects == [say_effect("one"), say_effect("two")]
    assert [type(entry).__name__ for entry in done.entries] == [
        "UserEntry",
        "AssistantEntry",
        "ToolEntry",
        "AssistantEntry",
    ]


@pytest.mark.parametrize(("before", "expected"), [(0, "now now"), (1, "before now"), (2, "before before")])
async def test_a_successor_carries_out_what_is_left(before: int, expected: str) -> None:
    """The call runs again and finds what an earlier attempt has done."""
    journal = MemoryJournal()
    effects = [EffectEntry(call_id="c1", turn=7, kind="say", to="s") for _ in range(before)]
    done = await run(journal, STORED, BEGUN, *effects)
    assert journal.effects == [say_effect("one"), say_effect("two")][before:]
    assert done.entries[2].content == expected


async def test_an_effect_whose_lease_is_lost_ends_the_turn() -> None:
    """It is the successor's."""
    journal = MemoryJournal()
    journal.on("effect:c1", LeaseLost("gone"))
    with pytest.raises(LeaseLost):
        await run(journal, STORED, BEGUN)
    assert journal.effects == []
