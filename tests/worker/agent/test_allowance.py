"""What a chat may use is asked before every round and told after every call."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.errors import ModelError, RedisAway
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry
from tests.helpers.scripted_model import call, calls
from tests.helpers.turn_borders import RecordingTool
from tests.worker.agent.turns import SPEC, Turn
from worker.agent.hook import AgentHook
from worker.agent.limits import UNLIMITED
from worker.agent.loop import NO_ANSWER
from worker.agent.model import LLMResponse, Usage

USED_UP = "This chat has used what it may use today."
NEARLY = "This chat has used 80 % of what it may use today."


class Purse:
    """Allows so many rounds; warns with `warnings`, one a call."""

    def __init__(self, rounds: int = 100, *warnings: str | None) -> None:
        self.rounds = rounds
        self.warnings = list(warnings)
        self.log: list[str | Usage] = []

    async def refusal(self) -> str | None:
        self.log.append("asked")
        self.rounds -= 1
        return USED_UP if self.rounds < 0 else None

    async def spent(self, usage: Usage) -> str | None:
        self.log.append(usage)
        return self.warnings.pop(0) if self.warnings else None


async def test_without_allowance_no_model_is_asked() -> None:
    """The turn ends like any other: with a text, in history, and its own outcome."""
    turn, purse = Turn([]), Purse(0)
    result = await turn.run(allowance=purse)
    assert (result.content, result.outcome, result.rounds) == (USED_UP, "budget", 0)
    assert [entry.content for entry in result.entries] == ["question", USED_UP]
    assert purse.log == ["asked"]
    assert turn.model.asked == []


async def test_when_the_allowance_ends_the_best_text_so_far_is_given_with_the_reason() -> None:
    """The tools that were asked for have run, and their results are in history."""
    tool = RecordingTool("look")
    replies = [calls(call("look"), text="half of it"), calls(call("look", id="2"))]
    turn, purse = Turn(replies, tool), Purse(2)
    result = await turn.run(allowance=purse)
    assert (result.content, result.outcome, result.rounds) == (f"half of it\n\n{USED_UP}", "budget", 2)
    assert len(tool.runs) == 2
    assert sum(isinstance(entry, ToolEntry) for entry in result.entries) == 2
    assert result.entries[-1].content == result.content
    assert result.usage == Usage(20, 2)
    assert purse.log == ["asked", Usage(10, 1), "asked", Usage(10, 1), "asked"]


async def test_a_refusal_goes_through_the_last_hook() -> None:
    """What a hook does to every final text it does to this one."""

    class Upper(AgentHook):
        async def finalize_content(self, text: str) -> str:
            return text.upper()

    assert (await Turn([]).run(allowance=Purse(0), hook=Upper())).content == USED_UP.upper()


async def test_a_warning_stands_once_as_its_own_paragraph_at_the_end() -> None:
    """However often it is given, and also in what history keeps."""
    turn = Turn([calls(call("look")), "the answer"], RecordingTool("look"))
    result = await turn.run(allowance=Purse(100, NEARLY, NEARLY))
    assert result.content == f"the answer\n\n{NEARLY}"
    assert (result.outcome, result.entries[-1].content) == ("done", result.content)


async def test_a_warning_is_not_given_beside_a_refusal() -> None:
    """One reason is enough."""
    turn = Turn([calls(call("look"), text="half")], RecordingTool("look"))
    assert (await turn.run(allowance=Purse(1, NEARLY))).content == f"half\n\n{USED_UP}"


async def test_a_turn_that_ends_otherwise_has_its_warning_too() -> None:
    """At the cap, and when the model said nothing."""
    turn = Turn([calls(call("look"), text="half")], RecordingTool("look"), spec=replace(SPEC, max_rounds=1))
    result = await turn.run(allowance=Purse(100, NEARLY))
    assert result.outcome == "round_cap"
    assert result.content.endswith(f"\n\n{NEARLY}")
    result = await Turn(["", ""]).run(allowance=Purse(100, NEARLY))
    assert result.content == f"{NO_ANSWER}\n\n{NEARLY}"


async def test_every_call_of_a_round_is_told() -> None:
    """Continuations and the second try after an empty reply cost as well."""
    cut = LLMResponse(content="one ", finish_reason="length", usage=Usage(1, 1, 1, 0.25))
    purse = Purse()
    result = await Turn([cut, LLMResponse(content="two", usage=Usage(2, 2))]).run(allowance=purse)
    assert purse.log == ["asked", Usage(1, 1, 1, 0.25), Usage(2, 2)]
    assert result.usage == Usage(3, 3, 1, 0.25)
    purse = Purse()
    await Turn([LLMResponse(content="", usage=Usage(5, 0)), LLMResponse(content="x", usage=Usage(6, 1))]).run(
        allowance=purse
    )
    assert purse.log == ["asked", Usage(5, 0), Usage(6, 1)]


async def test_a_turn_that_fails_later_has_told_what_it_used() -> None:
    """The money is spent whether or not an answer came of it."""
    purse = Purse()
    turn = Turn([calls(call("look")), ModelError("auth", "no", retryable=False)], RecordingTool("look"))
    with pytest.raises(ModelError):
        await turn.run(allowance=purse)
    assert purse.log == ["asked", Usage(10, 1), "asked"]


async def test_a_stored_reply_is_carried_out_before_the_allowance_is_asked() -> None:
    """Its call was paid for by the worker that made it."""
    stored = AssistantEntry(content="I look.", turn=7, tool_calls=(ToolCall("1", "look", "{}"),))
    spec = replace(SPEC, resume=(stored,))
    tool = RecordingTool("look")
    result = await Turn([], tool, spec=spec).run(allowance=Purse(0))
    assert len(tool.runs) == 1
    assert result.content == f"I look.\n\n{USED_UP}"


async def test_an_allowance_that_cannot_answer_ends_the_try() -> None:
    """Whether a call may be made is not guessed."""

    class Away(Purse):
        async def refusal(self) -> str | None:
            raise RedisAway("away")

    turn = Turn(["never"])
    with pytest.raises(RedisAway):
        await turn.run(allowance=Away())
    assert turn.model.asked == []


async def test_unlimited_never_refuses_and_never_warns() -> None:
    """The allowance of those who set none."""
    assert await UNLIMITED.refusal() is None
    assert await UNLIMITED.spent(Usage(10**9, 10**9, 0, 10**6)) is None
