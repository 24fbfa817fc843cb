"""What a round used is in the metrics, under labels of few values."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from shared.errors import ToolFailed
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry
from shared.metrics import REGISTRY
from tests.helpers.clock import HandClock
from tests.helpers.scripted_model import ScriptedModel, call, calls
from tests.helpers.turn_borders import MemoryJournal, RecordingTool
from tests.worker.agent.turns import SPEC
from worker.agent.loop import run_agent
from worker.agent.model.model import LLMResponse, TokenUsage
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentRunSpec
from worker.hooks.reporting import MetricsHook


def values() -> dict[tuple[str, ...], float]:
    """Every sample of the metrics that the hook fills, by name and labels."""
    return {
        (sample.name.removeprefix("shoal_"), *sample.labels.values()): sample.value
        for family in REGISTRY.collect()
        if family.name.startswith(("shoal_model_", "shoal_tool_"))
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


async def grown(replies: list[Any], *tools: RecordingTool, spec: AgentRunSpec = SPEC, **more: Any) -> dict[Any, float]:
    """What a turn adds."""
    before = values()
    spec = replace(spec, hook=MetricsHook(), **more)
    await run_agent(spec, ScriptedModel(replies), Toolbox(tools), MemoryJournal())
    return {key: value - before.get(key, 0.0) for key, value in values().items() if value != before.get(key, 0.0)}


async def test_calls_tokens_and_cost_of_a_turn_are_counted() -> None:
    """Input and output apart; two calls of one round are one request of the round and the tokens of both."""
    cut = LLMResponse(content="one ", finish_reason="length", usage=TokenUsage(100, 10, 50, 0.25))
    got = await grown([cut, LLMResponse(content="two", usage=TokenUsage(110, 1, 0, 0.5))])
    assert got.pop(("model_seconds_sum", "scripted"), 0.0) >= 0
    assert got == {
        ("model_requests_total", "scripted", "ok"): 1,
        ("model_seconds_count", "scripted"): 1,
        ("model_tokens_total", "scripted", "input"): 210,
        ("model_tokens_total", "scripted", "output"): 11,
        ("model_cost_usd_total", "scripted"): 0.75,
    }


async def test_a_model_without_a_price_has_no_cost() -> None:
    """A zero would say that it is free."""
    got = await grown([LLMResponse(content="x", usage=TokenUsage(100, 10))])
    assert ("model_cost_usd_total", "scripted") not in got


async def test_tools_are_counted_and_timed_by_name_and_outcome() -> None:
    """Each run has its time; a name that a model made up is no label."""
    clock = HandClock()

    async def slow(*_: Any) -> str:
        clock.at += 3.5
        return "ok"

    async def fail(*_: Any) -> str:
        raise ToolFailed("no")

    tools = RecordingTool("look", behaviour=slow), RecordingTool("send", "unsafe", behaviour=fail)
    wanted = calls(call("look"), call("look", {"number": "many"}, "2"), call("send"), call("made_up_by_a_model"))
    got = await grown([wanted, "x"], *tools, clock=clock)
    tool_values = {key: value for key, value in got.items() if key[0].startswith("tool_")}
    assert tool_values == {
        ("tool_calls_total", "look", "ok"): 1,
        ("tool_calls_total", "look", "bad_arguments"): 1,
        ("tool_calls_total", "send", "failed"): 1,
        ("tool_calls_total", "unknown", "unknown_tool"): 1,
        ("tool_seconds_count", "look"): 2,
        ("tool_seconds_sum", "look"): 3.5,
        ("tool_seconds_count", "send"): 1,
        ("tool_seconds_count", "unknown"): 1,
    }


async def test_what_an_earlier_worker_asked_and_ran_is_not_counted_again() -> None:
    """Only the rest of its round, and the next one."""
    stored = AssistantEntry(content=None, turn=7, tool_calls=(ToolCall("1", "look", "{}"), ToolCall("2", "look", "{}")))
    done = ToolEntry(call_id="1", name="look", content="seen", turn=7)
    got = await grown(["x"], RecordingTool("look"), spec=replace(SPEC, resume=(stored, done)))
    assert got["model_requests_total", "scripted", "ok"] == 1
    assert got["model_seconds_count", "scripted"] == 1
    assert got["tool_calls_total", "look", "ok"] == 1
    assert got["tool_seconds_count", "look"] == 1
