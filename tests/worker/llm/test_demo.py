"""The built-in model is of use without a key."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import pytest

from shared.messages.inbound import TurnOptions
from shared.messages.subagent import SubagentTask, report
from shared.messages.transcript import TranscriptEntry, UserEntry
from shared.store.subagents.subagents import Subagents
from tests.helpers.turn_borders import MemoryJournal, RecordingProgress
from worker.agent.loop import run_agent
from worker.agent.model.answer_form import system_text
from worker.agent.model.model import ModelRequest
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentRunSpec
from worker.llm.demo.demo_model import PIECE_S, DemoModel
from worker.llm.demo.forms import fill_form
from worker.tools.registry import build_tools
from worker.tools.spawn import SpawnTool


class Chat:
    """A conversation with the demo model through the real loop and the real tools; its waits are only counted."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.history: tuple[TranscriptEntry, ...] = ()
        self.progress = RecordingProgress()

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)

    async def say(self, text: str, begun: str = "", schema: str = "") -> str:
        self.progress = RecordingProgress()
        spec = AgentRunSpec(
            session="s",
            entry=UserEntry(content=text, turn=len(self.history) + 1),
            history=self.history,
            channel="web",
            chat_id="ada/main",
            progress=self.progress,
            begun=begun,
            options=TurnOptions(schema=schema),
        )
        tools = Toolbox(build_tools())
        result = await run_agent(spec, DemoModel(sleep=self.sleep), tools, MemoryJournal())
        self.history += result.entries
        return result.content


@pytest.mark.parametrize(
    ("text", "progress", "says"),
    [
        ("Calculate 37 * 91", 'calculate("37 * 91")', "3367"),
        ("what is (3 + 4) * 5 / 2?", 'calculate("(3 + 4) * 5 / 2")', "17.5"),
        ("What time is it?", "current_time()", "UTC"),
        ("What time is it in Tokyo?", 'current_time("Asia/Tokyo")', "Asia/Tokyo"),
        ("what time is it in Europe/Oslo", 'current_time("Europe/Oslo")', "Europe/Oslo"),
        ("Roll two dice", "roll_dice(2)", "2d6"),
        ("roll 3d20", "roll_dice(3)", "3d20"),
        ("flip a coin", "roll_dice(1)", "1d2"),
        ("calculate 9**9**9", 'calculate("9**9**9")', "1,000 digits"),
    ],
)
async def test_it_uses_tools_for_real(text: str, progress: str, says: str) -> None:
    """The tool runs in the loop, people see that it does, and its result is in the answer."""
    chat = Chat()
    assert says in await chat.say(text)
    assert progress in chat.progress.progresses[0]


async def test_two_questions_in_one_message_are_two_calls() -> None:
    """Both answers come."""
    answer = await Chat().say("What time is it, and what is 2 + 2?")
    assert "2 + 2 = 4" in answer
    assert "It is" in answer


async def test_it_remembers_within_the_conversation() -> None:
    """Names and other facts, the newest one; and it says when it was not told."""
    chat = Chat()
    assert "not told me your name" in await chat.say("What is my name?")
    assert "Ada" in await chat.say("Hi, my name is Ada. My favourite colour is dark blue.")
    await chat.say("Calculate 1 + 1")
    assert await chat.say("What's my name?") == "Your name is **Ada**."
    assert await chat.say("do you remember my favourite colour?") == "Your favourite colour is **dark blue**."
    await chat.say("Call me Bob")
    assert await chat.say("what is my name") == "Your name is **Bob**."
    assert "555" in await chat.say("my phone number is 555-1234")


async def test_it_can_show_markdown_and_a_long_answer() -> None:
    """Something for the chat page to render, and something to stop."""
    code = await Chat().say("Write some code")
    assert "```python" in code
    assert "| word | count |" in code
    story = await Chat().say("tell me a long story")
    assert len(story.split()) > 300
    goes_on = Chat()
    assert await goes_on.say("tell me a long story", begun=story[:1000]) == story
    assert goes_on.progress.log[:2] == [story[:1000], re.findall(r"\s*\S+", story[1000:])[0]]


@pytest.mark.parametrize("text", ["help", "What do you think about Kant?", "", "[Runtime Context]", "???"])
async def test_otherwise_it_says_what_it_is_and_what_to_set(text: str) -> None:
    """Nobody takes it for a real model, and everybody learns how to get one."""
    answer = await Chat().say(text)
    for part in ("demo", "SHOAL_MODEL__NAME", "SHOAL_MODEL__API_KEY", "shoal.toml", "[model]"):
        assert part in answer


async def test_it_quotes_the_message_without_the_runtime_context() -> None:
    """What Shoal adds to a message is not what the person said."""
    answer = await Chat().say("Tell me about whales")
    assert "“Tell me about whales”" in answer
    assert "Current time" not in answer


async def test_it_streams_word_by_word() -> None:
    """About 25 ms a piece, and the pieces are the answer."""
    chat = Chat()
    answer = await chat.say("hello")
    assert chat.progress.visible == answer
    assert len(chat.progress.log) > 20
    assert chat.waits_s == [PIECE_S] * len(chat.progress.log)


async def test_without_its_tools_it_answers_in_words() -> None:
    """It never asks for a tool that it was not offered."""
    reply = await DemoModel().chat(ModelRequest([{"role": "user", "content": "Calculate 1 + 1"}]))
    assert reply.tool_calls == ()
    assert reply.content


async def test_max_tokens_cut_the_reply() -> None:
    """So that continuing can be tried without a provider."""
    reply = await DemoModel().chat(ModelRequest([{"role": "user", "content": "tell me a story"}], max_tokens=5))
    assert (len((reply.content or "").split()), reply.finish_reason) == (5, "length")


async def test_it_starts_a_subagent_and_tells_what_each_report_says() -> None:
    """A newcomer sees it without a key; reports that come together are told together."""
    model, spawn = DemoModel(), SpawnTool(cast(Subagents, None))
    offered = Toolbox([spawn]).specs()
    reply = await model.chat(ModelRequest([{"role": "user", "content": "Ask a subagent to calculate 6 * 7"}], offered))
    [wanted] = reply.tool_calls
    assert (wanted.name, (wanted.arguments or {})["task"]) == ("spawn", "calculate 6 * 7")
    asked = SubagentTask(id="a", session="web:owner/a", turn=1, call_id="c", task="calculate 6 * 7", label="sums")
    reports = [report(asked, "ok", "42", now_ms=1), report(asked, "timeout", "too slow", now_ms=1)]
    report_messages = [{"role": "user", "content": one.content} for one in reports]
    answer = (
        await model.chat(ModelRequest([{"role": "assistant", "content": "started"}, *report_messages], offered))
    ).content or ""
    assert "Done in the background (“sums”): 42" in answer
    assert "did not work out: too slow" in answer


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "kind": {"enum": ["a", "b"]},
        "fixed": {"const": 7},
        "many": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 2},
        "maybe": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "more": {"type": ["boolean", "null"]},
    },
    "required": ["title", "kind", "fixed", "many", "maybe", "more"],
    "additionalProperties": False,
    "$defs": {"part": {"type": "object", "properties": {"x": {"type": "number"}}}},
}


@pytest.mark.parametrize("schema", [SCHEMA, {"type": "object"}, {}, {"$ref": "#/$defs/part", "$defs": SCHEMA["$defs"]}])
async def test_it_answers_in_a_form(schema: dict[str, Any]) -> None:
    """What fits is checked by the loop: programs can be tried without a key."""
    found = json.loads(await Chat().say("hello there", schema=json.dumps(schema)))
    assert found
    if schema is SCHEMA:
        assert (found["title"], found["kind"], found["many"]) == ("hello there", "a", [{"x": 1}] * 2)


async def test_it_uses_tools_before_it_answers_in_a_form() -> None:
    """As any model does; here it only shows that it can."""
    chat = Chat()
    assert json.loads(await chat.say("Calculate 37 * 91", schema='{"type":"object"}'))
    assert any("calculate" in line for line in chat.progress.log)


async def test_a_large_form_is_not_filled_for_long() -> None:
    """Each level could multiply it; a list can be asked for with a billion items."""
    part = {"type": "object", "properties": {f"f{n}": {"$ref": "#/$defs/part"} for n in range(50)}}
    many = {"type": "array", "minItems": 10**9, "items": part}
    filled = fill_form(system_text("", TurnOptions(schema=json.dumps({**many, "$defs": {"part": part}}))), "x")
    assert filled is not None
    assert len(filled) < 500_000
