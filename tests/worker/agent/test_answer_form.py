"""Answers in a form that a program asked for: limits, stops, schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.errors import ModelError
from shared.messages.inbound import TurnOptions
from shared.messages.transcript import AssistantEntry
from tests.helpers.scripted_model import call, calls
from tests.helpers.turn_borders import RecordingTool
from tests.worker.agent.turns import Turn
from worker.agent.model.answer_form import StopFilter, cut_at_stop, fit_schema
from worker.agent.model.model import LLMResponse
from worker.agent.tools.json_parameters import find_problem

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "near": {"type": "array", "items": {"$ref": "#/$defs/place"}}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"place": {"anyOf": [{"type": "string"}, {"type": "null"}, {"$ref": "#"}]}},
}
FORM = TurnOptions(schema=json.dumps(CITY))
GOOD, BAD = '{"city": "Kiel"}', '{"town": "Kiel"}'


async def test_the_schema_is_asked_for_and_nothing_is_shown_before_it_fits() -> None:
    """A stream cannot take back half of a JSON text that does not fit."""
    turn = Turn([GOOD])
    result = await turn.run(options=FORM)
    assert (result.content, result.outcome, turn.progress.log) == (GOOD, "done", [])
    assert FORM.schema in turn.model.asked[0][0]["content"]


@pytest.mark.parametrize("text", [f"```json\n{GOOD}\n```", f"Here it is: {GOOD} I hope it helps.", f"  {GOOD}\n"])
async def test_words_around_the_answer_are_left_out(text: str) -> None:
    """No second call for what is there already."""
    turn = Turn([text])
    assert (await turn.run(options=FORM)).content == GOOD
    assert len(turn.model.asked) == 1


async def test_an_answer_that_does_not_fit_is_asked_for_again_once() -> None:
    """With the reason, and only the good one is in the history and the text; both are counted."""
    turn = Turn([LLMResponse(content=BAD), calls(call("look", {})), GOOD], RecordingTool("look"))
    result = await turn.run(options=FORM)
    assert (result.content, result.rounds) == (GOOD, 3)
    assert [entry.content for entry in result.entries if isinstance(entry, AssistantEntry)] == [None, GOOD]
    answer, reason = turn.seen(1)
    assert answer == ("assistant", BAD)
    assert "Object missing required field `city`" in (reason[1] or "")


async def test_a_second_such_answer_is_an_error_with_its_reason() -> None:
    """Not an answer: the program would fail on it later."""
    turn = Turn([BAD, "no JSON"])
    with pytest.raises(ModelError) as caught:
        await turn.run(options=FORM)
    assert (caught.value.kind, caught.value.retryable, caught.value.reason) == (
        "invalid_output",
        False,
        "it is not JSON",
    )


async def test_the_answer_ends_before_the_first_stop() -> None:
    """Shown and final text are the same, whatever the model wrote behind it; earlier rounds go on past it."""
    turn = Turn([calls(call("look", {}), text="I look. STOP? Yes."), "one two STOP three"], RecordingTool("look"))
    result = await turn.run(options=TurnOptions(stop=("never", "STOP")))
    assert (result.content, result.outcome) == ("one two ", "done")
    assert "".join(turn.progress.log).endswith("one two ")
    assert isinstance(result.entries[1], AssistantEntry)
    assert result.entries[1].content == "I look. STOP? Yes."


async def test_a_beginning_of_a_stop_is_shown_at_the_end() -> None:
    """It was none."""
    turn = Turn(["one two ST"])
    assert (await turn.run(options=TurnOptions(stop=("STOP",)))).content == "one two ST"
    assert "".join(turn.progress.log) == "one two ST"


async def test_an_answer_cut_by_the_clients_limit_says_so() -> None:
    """Also one that has a schema, as with OpenAI: half of it is no fault of the model."""
    cut = LLMResponse(content='{"city": "Ki', finish_reason="length")
    for options in (TurnOptions(max_tokens=5), TurnOptions(max_tokens=5, schema=FORM.schema)):
        turn = Turn([cut])
        result = await turn.run(options=options, continuations=0)
        assert (result.content, result.outcome) == ('{"city": "Ki', "length")


@example(["ab", "b"], ["b", "abb"])
@example(["a", "bb"], ["bb", "abb"])
@given(st.lists(st.text("abS", max_size=4), max_size=12), st.lists(st.text("abS", min_size=1, max_size=3), max_size=3))
@settings(max_examples=500)
def test_a_stream_stops_where_the_whole_text_does(pieces: list[str], stops: list[str]) -> None:
    """However its deltas are cut, and nothing more than that was ever shown."""
    stop, shown, wanted = StopFilter(stops), "", cut_at_stop("".join(pieces), stops)
    for piece in pieces:
        shown += stop.feed(piece)
        assert wanted.startswith(shown)
    assert shown + stop.flush() == wanted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"city": "a", "near": ["b", null, {"city": "c"}]}', ""),
        ('{"city": "a", "near": [1]}', "(nor any other of 3 forms) - at"),
        ('{"city": "a", "near": [{"town": "c"}]}', "nor any other"),
        ('["a"]', "Expected `object`, got `array`"),
        ("nothing", "it is not JSON"),
        ("", "it is not JSON"),
    ],
)
def test_definitions_and_alternatives_of_a_schema_count(text: str, problem: str) -> None:
    """Libraries of types write optional and nested fields with them."""
    found = fit_schema(text, FORM.schema)[1]
    assert (found == "") == (problem == "")
    assert all(part in found for part in problem.split(" - at"))


def test_a_schema_cannot_keep_a_worker_busy() -> None:
    """Neither by going in circles nor by alternatives of alternatives; a `$ref` to elsewhere says nothing."""
    circle = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert "nested too deep" in find_problem(circle, 1)
    many = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 100}}}
    assert find_problem(many, 1) == "the schema is too complex to check this value"
    assert find_problem({"$ref": "http://127.0.0.1:1/x"}, 1) == ""
    assert find_problem({"allOf": [{"type": "string"}]}, 1)
    assert find_problem({"const": 2}, 1)
    assert find_problem({"minItems": 1}, [])
    assert find_problem({"type": "array", "maxItems": 1}, [1, 2])
