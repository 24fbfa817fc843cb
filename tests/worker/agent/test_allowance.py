"""What a chat may use is asked before every round and told after every call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from shared.errors import ModelError, RedisAway, TurnStopped
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry
from tests.helpers.scripted_model import Broken, ScriptedModel, call, calls
from tests.helpers.turn_borders import RecordingTool
from tests.worker.agent.turns import BUSY, SPEC, Turn
from worker.agent.hook import AgentHook
from worker.agent.limits import estimate_tokens
from worker.agent.model.compact import Compacted
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta, TokenUsage
from worker.agent.ports import NULL_PORTS
from worker.agent.run import NO_ANSWER

USED_UP = "This chat has used what it may use today."
NEARLY = "This chat has used 80 % of what it may use today."


class Purse:
    """Allows so many rounds; warns with `warnings`, one a call."""

    def __init__(self, rounds: int = 100, *warnings: str | None) -> None:
        self.rounds = rounds
        self.warnings = list(warnings)
        self.log: list[str | TokenUsage] = []
        self.estimates: list[TokenUsage] = []

    async def refusal(self) -> str | None:
        self.log.append("asked")
        self.rounds -= 1
        return USED_UP if self.rounds < 0 else None

    async def count(self, usage: TokenUsage) -> str | None:
        self.log.append(usage)
        return self.warnings.pop(0) if self.warnings else None

    def count_later(self, usage: TokenUsage) -> None:
        self.estimates.append(usage)


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
    assert result.usage == TokenUsage(20, 2)
    assert purse.log == ["asked", TokenUsage(10, 1), "asked", TokenUsage(10, 1), "asked"]


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


async def test_every_call_of_a_round_is_charged() -> None:
    """Continuations and the second try after an empty reply cost as well."""
    cut = LLMResponse(content="one ", finish_reason="length", usage=TokenUsage(1, 1, 1, 0.25))
    purse = Purse()
    result = await Turn([cut, LLMResponse(content="two", usage=TokenUsage(2, 2))]).run(allowance=purse)
    assert purse.log == ["asked", TokenUsage(1, 1, 1, 0.25), TokenUsage(2, 2)]
    assert result.usage == TokenUsage(3, 3, 1, 0.25)
    purse = Purse()
    await Turn([LLMResponse(content="", usage=TokenUsage(5, 0)), LLMResponse(content="x", usage=TokenUsage(6, 1))]).run(
        allowance=purse
    )
    assert purse.log == ["asked", TokenUsage(5, 0), TokenUsage(6, 1)]


async def test_a_turn_that_fails_later_is_charged_for_what_it_used() -> None:
    """The money is spent whether or not an answer came of it."""
    purse = Purse()
    turn = Turn([calls(call("look")), ModelError("auth", "no", retryable=False)], RecordingTool("look"))
    with pytest.raises(ModelError):
        await turn.run(allowance=purse)
    assert purse.log == ["asked", TokenUsage(10, 1), "asked"]


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
    assert await NULL_PORTS.refusal() is None
    assert await NULL_PORTS.count(TokenUsage(10**9, 10**9, 0, 10**6)) is None
    NULL_PORTS.count_later(TokenUsage(10**9))


async def test_a_reply_that_breaks_off_after_text_is_charged_by_an_estimate() -> None:
    """Its provider takes money for prompt and text and says no number; a number that it says is told as it is."""
    broken = Broken(BUSY, ("x" * 300, "é" * 50))
    turn, purse = Turn([broken, LLMResponse(content="ok", usage=TokenUsage(9, 1))]), Purse()
    result = await turn.run(allowance=purse)
    assert purse.estimates == [TokenUsage(estimate_tokens(turn.model.asked[0], turn.tools.specs()), 100)]
    assert purse.log == ["asked", TokenUsage(9, 1)]
    assert result.usage == TokenUsage(9, 1), "what providers said"


async def test_each_restart_counts_only_its_own_text() -> None:
    """And a continuation not the part before it, which has its own numbers."""
    cut = LLMResponse(content="x" * 400, finish_reason="length", usage=TokenUsage(1, 100))
    broken = Broken(BUSY, ("y" * 40,))
    turn, purse = Turn([cut, broken, broken, "ok"]), Purse()
    await turn.run(allowance=purse)
    assert [usage.completion_tokens for usage in purse.estimates] == [10, 10]


@pytest.mark.parametrize(
    ("fault", "counts"),
    [
        (ModelError("timeout", "silent", retryable=True), True),
        (ModelError("rate_limit", "busy", retryable=True), False),
        (ModelError("auth", "no", retryable=False), False),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
async def test_a_call_without_a_word_counts_when_the_model_was_at_work(fault: ModelError, counts: bool) -> None:
    """One that took too long may have thought all the time; one that was refused did not begin."""
    turn, purse = Turn([fault]), Purse()
    with pytest.raises(ModelError):
        await turn.run(allowance=purse)
    expected = [TokenUsage(estimate_tokens(turn.model.asked[0]), 0)] if counts else []
    assert purse.estimates == expected


async def test_a_show_that_ends_the_turn_in_the_middle_of_a_reply_counts() -> None:
    """The text until then was made."""
    turn, purse = Turn(["word " * 80]), Purse()
    turn.progress.fault_at = ("word", TurnStopped())
    with pytest.raises(TurnStopped):
        await turn.run(allowance=purse)
    assert len(purse.estimates) == 1


@pytest.mark.parametrize("text", ["", "x" * 40])
async def test_a_call_that_is_cancelled_counts_and_stays_cancelled(text: str) -> None:
    """A person who says stop has used what was used; also before the first word."""
    purse, thinking = Purse(), asyncio.Event()

    class Endless(ScriptedModel):
        async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
            if text and on_delta is not None:
                await on_delta(text)
            thinking.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

    turn = Turn([])
    turn.model = Endless([])
    running = asyncio.create_task(turn.run(allowance=purse))
    await thinking.wait()
    assert purse.estimates == []
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    [usage] = purse.estimates
    assert usage.prompt_tokens > 0
    assert usage.completion_tokens == len(text) // 4


async def test_a_compaction_that_is_cancelled_counts() -> None:
    """It is a call, too, and its prompt is a large one."""
    purse, summing = Purse(), asyncio.Event()

    async def compact(messages: Sequence[dict[str, Any]], **options: object) -> Compacted:
        summing.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    turn = Turn([], spec=replace(SPEC, context_tokens=100, system="x" * 4000))
    running = asyncio.create_task(turn.run(allowance=purse, compact=compact))
    await summing.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    [usage] = purse.estimates
    assert usage.prompt_tokens > 1000
