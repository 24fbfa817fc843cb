"""What a model writes as arguments may be anything; a turn outlives it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.messages.transcript import AssistantEntry
from tests.helpers.scripted_model import calls
from tests.helpers.turn_borders import AnyArguments, RecordingTool
from tests.worker.agent.turns import Turn
from worker.agent.model.model import ToolCallRequest
from worker.llm.clients.arguments import parse_arguments


@pytest.mark.parametrize(
    ("raw", "runs_with"),
    [
        pytest.param('{"text": "hi", "number": 2,}', AnyArguments("hi", 2), id="trailing comma"),
        pytest.param("{'text': 'hi', 'number': 2}", AnyArguments("hi", 2), id="single quotes"),
        pytest.param('{"text": "hi", "number": 2', AnyArguments("hi", 2), id="missing brace"),
        pytest.param('{"text": "hi the', AnyArguments("hi the"), id="cut string"),
        pytest.param('{text: "hi"}', AnyArguments("hi"), id="bare key"),
        pytest.param('```json\n{"text": "hi"}\n```', AnyArguments("hi"), id="fence"),
        pytest.param('"{\\"text\\": \\"hi\\"}"', AnyArguments("hi"), id="encoded twice"),
        pytest.param('{"number": "2"}', AnyArguments("", 2), id="quoted number"),
        pytest.param("", AnyArguments(), id="nothing"),
        pytest.param("null", AnyArguments(), id="null"),
        pytest.param('[{"text": "hi"}]', AnyArguments("hi"), id="in a list"),
    ],
)
async def test_arguments_that_are_nearly_right_are_repaired(raw: str, runs_with: AnyArguments) -> None:
    """The tool runs with what was meant, and what goes back to the model is JSON."""
    tool = RecordingTool("look")
    turn = Turn([calls(ToolCallRequest("1", "look", parse_arguments(raw), raw)), "ok"], tool)
    await turn.run()
    assert tool.runs == [runs_with]
    sent = turn.model.asked[1][2]["tool_calls"][0]["function"]["arguments"]
    assert msgspec.convert(json.loads(sent), AnyArguments, strict=False) == runs_with


@pytest.mark.parametrize("raw", ['["hi"]', "5", "true", '"hi"', "look up", "<text>hi</text>"])
async def test_arguments_that_are_no_object_are_reported_to_the_model(raw: str) -> None:
    """Nothing runs; the model reads what was wrong and can write them again."""
    tool = RecordingTool("look")
    turn = Turn([calls(ToolCallRequest("1", "look", parse_arguments(raw), raw)), "ok"], tool)
    assert (await turn.run()).content == "ok"
    assert tool.runs == []
    result = str(turn.seen(1)[1][1])
    assert result.startswith("Error: ")
    assert "not one complete JSON object" in result
    assert repr(raw) in result


async def test_a_call_cut_by_length_does_not_run_with_repaired_arguments() -> None:
    """Half of a file's text is valid after a repair, and still not what was meant."""
    raw = '{"text": "first half'
    cut_call = ToolCallRequest("1", "write", parse_arguments(raw), raw)
    assert cut_call.arguments == {"text": "first half"}
    tool = RecordingTool("write", "idempotent")
    turn = Turn([calls(cut_call, finish_reason="length"), "ok"], tool)
    await turn.run()
    assert tool.runs == []
    assert "not one complete JSON object" in str(turn.seen(1)[1][1])


async def test_repaired_arguments_are_stored_repaired() -> None:
    """A successor reads the same call from the ledger that this worker ran."""
    raw = "{'text': 'hi',}"
    tool = RecordingTool("look")
    turn = Turn([calls(ToolCallRequest("1", "look", parse_arguments(raw), raw)), "ok"], tool)
    await turn.run()
    stored = turn.journal.entries[0]
    assert isinstance(stored, AssistantEntry)
    assert stored.tool_calls[0].arguments == '{"text":"hi"}'
    assert turn.model.asked[1][2]["tool_calls"][0]["function"]["arguments"] == '{"text":"hi"}'


ARGUMENT_TEXT = st.one_of(
    st.text(st.characters(), max_size=60),
    st.text(st.sampled_from("{}[]\",:\\'`truefalsn0123456789.- \n\ud800é"), max_size=60),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=8)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    ).map(repr),
)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@settings(max_examples=1000, deadline=None)
@given(raw=ARGUMENT_TEXT)
def test_no_argument_string_ever_crashes_a_turn(runner: asyncio.Runner, raw: str) -> None:
    """Whatever a model writes as arguments, the turn ends with an answer, and the ledger can be written."""
    arguments = parse_arguments(raw)
    wanted = calls(ToolCallRequest("1", "look", arguments, raw), ToolCallRequest("2", "send", arguments, raw))
    look, send = RecordingTool("look"), RecordingTool("send", "unsafe")
    turn = Turn([wanted, "answer"], look, send)
    result = runner.run(turn.run())
    assert result.content == "answer"
    last_two = turn.model.asked[1][-2:]
    assert [(m["role"], m["tool_call_id"]) for m in last_two] == [("tool", "1"), ("tool", "2")]
    for tool, message in zip((look, send), last_two, strict=True):  # either it ran, or the model is told why it did not
        assert message["content"].startswith("Error: ") is (tool.runs == [])
    assert look.runs == send.runs
    for sent in turn.model.asked[1][2]["tool_calls"]:
        assert isinstance(json.loads(sent["function"]["arguments"]), dict)
    msgspec.json.encode(turn.model.asked[1])
    msgspec.msgpack.encode(result.entries)
