"""Tool calls in pieces: two stay two, one stays one, and none is without a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.reports.one_turn import JSON, chunk, hear, recorded, recorded_input, say, sse

ONE: Final = {"expression": "1+1"}
TWO: Final = {"expression": "2+2"}
ONE_TEXT: Final = '{"expression":"1+1"}'
TWO_TEXT: Final = '{"expression":"2+2"}'
HALVES: Final = ('{"expre', 'ssion":"1+1"}')
CALC: Final = [("calculate", ONE)]
BOTH: Final = [("calculate", ONE), ("calculate", TWO)]
CLOCK: Final[tuple[str, Any]] = ("current_time", {})


def piece(index: Any = None, id: Any = None, name: Any = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    """A piece of a call, without what is not given."""
    function = {key: value for key, value in {"name": name, "arguments": arguments}.items() if value is not None}
    return {k: v for k, v in {"index": index, "id": id}.items() if v is not None} | {"function": function} | more


def pieces(*parts: dict[str, Any]) -> bytes:
    """A stream with each piece in a chunk of its own."""
    return sse(*(chunk(tool_calls=[part]) for part in parts), chunk(None, "tool_calls"))


Inputs = dict[str, tuple[bytes, list[tuple[str, Any]]]]


def inputs(table: Inputs) -> Callable[[Any], Any]:
    """A parameter for each input: a stream and the calls in it."""
    return pytest.mark.parametrize(("stream", "right"), table.values(), ids=table.keys())


async def expect_calls(stream: bytes, right: list[tuple[str, Any]], via: str, **how: Any) -> None:
    """The calls are the right ones, they ran, and the model was asked once for them and once for its answer."""
    turn = await hear(stream, say("done"), client=via, **how)
    assert turn.calls == right
    assert (turn.text, turn.asked, turn.fault) == ("done", 2, "")


MOVING: Final[Inputs] = {
    "recorded: ids change": (recorded(recorded_input("p-tool-ids-change")["stream"]), CALC),
    "recorded: the index moves": (recorded(recorded_input("p-tool-index-moves")["stream"]), BOTH),
    "an id in each piece": (pieces(piece(0, "a", "calculate", HALVES[0]), piece(0, "a", None, HALVES[1])), CALC),
    "ids change, no index": (
        pieces(piece(None, "a", "calculate", HALVES[0]), piece(None, "b", None, HALVES[1])),
        CALC,
    ),
    "ids change, the name again": (
        pieces(piece(0, "a", "calculate", HALVES[0]), piece(0, "b", "calculate", HALVES[1])),
        CALC,
    ),
    "ids change in each of five pieces": (
        pieces(piece(0, "a", "calculate", ""), *(piece(0, f"b{n}", None, char) for n, char in enumerate(ONE_TEXT))),
        CALC,
    ),
    "an empty id in the later pieces": (
        pieces(piece(0, "a", "calculate", HALVES[0]), piece(0, "", "", HALVES[1])),
        CALC,
    ),
    "the index counts the pieces": (
        pieces(piece(0, "a", "calculate", HALVES[0]), piece(1, "a", None, HALVES[1])),
        CALC,
    ),
    "the index counts the pieces, no id": (
        pieces(piece(0, "a", "calculate", HALVES[0]), piece(1, None, None, HALVES[1])),
        CALC,
    ),
    "the index counts the pieces, the name again": (
        pieces(piece(0, None, "calculate", HALVES[0]), piece(1, None, "calculate", HALVES[1])),
        CALC,
    ),
    "the first piece has only an id": (
        pieces(piece(0, "a"), piece(0, None, "calculate"), piece(0, None, None, ONE_TEXT)),
        CALC,
    ),
    "the id comes last": (pieces(piece(0, None, "calculate", ONE_TEXT), piece(0, "a", None, "")), CALC),
    "the index is null later": (
        pieces(piece(0, "a", "calculate", HALVES[0]), {"index": None, "function": {"arguments": HALVES[1]}}),
        CALC,
    ),
    "index 0 for both, two ids": (
        pieces(piece(0, "a", "calculate", ONE_TEXT), piece(0, "b", "calculate", TWO_TEXT)),
        BOTH,
    ),
    "index 0 for both, two ids, in pieces": (
        pieces(
            piece(0, "a", "calculate", HALVES[0]),
            piece(0, "a", None, HALVES[1]),
            piece(0, "b", "calculate", '{"expre'),
            piece(0, "b", None, 'ssion":"2+2"}'),
        ),
        BOTH,
    ),
    "index 0 for both, no ids": (
        pieces(piece(0, None, "calculate", ONE_TEXT), piece(0, None, "calculate", TWO_TEXT)),
        BOTH,
    ),
    "index 0 for both, one id": (
        pieces(piece(0, "a", "calculate", ONE_TEXT), piece(0, "a", "calculate", TWO_TEXT)),
        BOTH,
    ),
    "index 0 for both, no ids, arguments apart": (
        pieces(
            piece(0, None, "calculate", ""),
            piece(0, None, None, ONE_TEXT),
            piece(0, None, "calculate", ""),
            piece(0, None, None, TWO_TEXT),
        ),
        BOTH,
    ),
    "index 0 for both, two names without arguments": (
        pieces(piece(0, None, "current_time", ""), piece(0, None, "calculate", ""), piece(0, None, None, ONE_TEXT)),
        [CLOCK, *CALC],
    ),
    "neither index nor id": (
        pieces(piece(None, None, "calculate", ONE_TEXT), piece(None, None, "calculate", TWO_TEXT)),
        BOTH,
    ),
    "neither index nor id, in pieces": (
        pieces(
            piece(None, None, "calculate", HALVES[0]),
            piece(None, None, None, HALVES[1]),
            piece(None, None, "calculate", TWO_TEXT),
        ),
        BOTH,
    ),
    "two calls at once, piece by piece": (
        pieces(
            piece(0, "a", "calculate", ""),
            piece(1, "b", "calculate", ""),
            piece(0, None, None, '{"expre'),
            piece(1, None, None, '{"expre'),
            piece(0, None, None, 'ssion":"1+1"}'),
            piece(1, None, None, 'ssion":"2+2"}'),
        ),
        BOTH,
    ),
    "two calls at once, by id alone": (
        pieces(
            piece(None, "a", "calculate", HALVES[0]),
            piece(None, "b", "calculate", TWO_TEXT),
            piece(None, "a", None, HALVES[1]),
        ),
        BOTH,
    ),
    "one id for two indexes": (
        pieces(piece(0, "a", "calculate", ONE_TEXT), piece(1, "a", "calculate", TWO_TEXT)),
        BOTH,
    ),
    "both announced before their names": (
        pieces(
            piece(0, "a"),
            piece(1, "b"),
            piece(0, None, "calculate", ONE_TEXT),
            piece(1, None, "calculate", TWO_TEXT),
        ),
        BOTH,
    ),
    "an index that begins at one": (pieces(piece(1, "a", "calculate", ONE_TEXT)), CALC),
    "a piece with nothing behind it": (
        pieces(piece(0, "a", "calculate", ONE_TEXT), piece(1, "", "", "")),
        CALC,
    ),
    "the same call twice, by two ids": (
        pieces(piece(0, "a", "calculate", ONE_TEXT), piece(1, "b", "calculate", ONE_TEXT)),
        [*CALC, *CALC],
    ),
    "both in one chunk": (
        sse(
            chunk(tool_calls=[piece(0, "a", "calculate", ONE_TEXT), piece(1, "b", "calculate", TWO_TEXT)]),
            chunk(None, "tool_calls"),
        ),
        BOTH,
    ),
}


@inputs(MOVING)
async def test_ids_and_indexes_that_move_make_neither_more_nor_fewer_calls(
    stream: bytes, right: list[tuple[str, Any]], via: str
) -> None:
    """Ids that change, one index for all, an index for each piece, none at all."""
    await expect_calls(stream, right, via)


NAMES: Final[Inputs] = {
    "in two pieces": (
        pieces(piece(0, "a", "calc", ""), piece(0, None, "ulate", ""), piece(0, None, None, ONE_TEXT)),
        CALC,
    ),
    "in two pieces, with the arguments": (
        pieces(piece(0, "a", "calc", ""), piece(0, "a", "ulate", ONE_TEXT)),
        CALC,
    ),
    "in two pieces without an index": (
        pieces(piece(None, None, "calc", ""), piece(None, None, "ulate", ONE_TEXT)),
        CALC,
    ),
    "in three pieces": (
        pieces(piece(0, "a", "current"), piece(0, "a", "_"), piece(0, "a", "time"), piece(0, "a", None, "{}")),
        [CLOCK],
    ),
    "whole so far": (
        pieces(piece(0, "a", "calc"), piece(0, "a", "calculate"), piece(0, "a", None, ONE_TEXT)),
        CALC,
    ),
    "in each piece": (
        pieces(piece(0, "a", "calculate", HALVES[0]), piece(0, "a", "calculate", HALVES[1])),
        CALC,
    ),
    "in each piece, no id": (
        pieces(piece(0, None, "calculate", HALVES[0]), piece(0, None, "calculate", HALVES[1])),
        CALC,
    ),
    "in each piece, neither index nor id": (
        pieces(piece(None, None, "calculate", HALVES[0]), piece(None, None, "calculate", HALVES[1])),
        CALC,
    ),
    "once more behind the arguments": (
        pieces(piece(0, "a", "calculate", ONE_TEXT), piece(0, "a", "calculate", "")),
        CALC,
    ),
    "behind the arguments only": (pieces(piece(0, "a", None, ONE_TEXT), piece(0, "a", "calculate", "")), CALC),
    "empty in the later pieces": (
        pieces(piece(0, "a", "calculate", HALVES[0]), piece(0, "a", "", HALVES[1])),
        CALC,
    ),
    "a prefix in a piece of its own": (
        pieces(piece(0, "a", "functions."), piece(0, "a", "calculate", ONE_TEXT)),
        CALC,
    ),
}


@inputs(NAMES)
async def test_a_name_in_pieces_or_in_each_piece_is_one_name(
    stream: bytes, right: list[tuple[str, Any]], via: str
) -> None:
    """Halves are joined, repetitions are not."""
    await expect_calls(stream, right, via)


ARGUMENTS: Final[Inputs] = {
    "repeated whole": (
        pieces(piece(0, "a", "calculate", ONE_TEXT), piece(0, "a", None, ONE_TEXT)),
        CALC,
    ),
    "repeated whole behind pieces": (
        pieces(
            piece(0, "a", "calculate", HALVES[0]), piece(0, "a", None, HALVES[1]), piece(0, "a", "calculate", ONE_TEXT)
        ),
        CALC,
    ),
    "whole so far in each piece": (
        pieces(piece(0, "a", "calculate", HALVES[0]), piece(0, "a", None, ONE_TEXT)),
        CALC,
    ),
    "an empty object first": (
        pieces(piece(0, "a", "calculate", "{}"), piece(0, "a", None, ONE_TEXT)),
        CALC,
    ),
    "an empty object first, the name again": (
        pieces(piece(0, "a", "calculate", "{}"), piece(0, "a", "calculate", ONE_TEXT)),
        CALC,
    ),
    "an object": (pieces(piece(0, "a", "calculate", ONE)), CALC),
    "a list with an object": (pieces(piece(0, "a", "calculate", [ONE])), CALC),
    "a list with an object, as text": (pieces(piece(0, "a", "calculate", f"[{ONE_TEXT}]")), CALC),
    "an empty list": (pieces(piece(0, "a", "current_time", [])), [CLOCK]),
    "null": (pieces({"index": 0, "id": "a", "function": {"name": "current_time", "arguments": None}}), [CLOCK]),
    "null as text": (pieces(piece(0, "a", "current_time", "null")), [CLOCK]),
    "blanks": (pieces(piece(0, "a", "current_time", " \n")), [CLOCK]),
    "two objects in one": (pieces(piece(0, "a", "calculate", ONE_TEXT + TWO_TEXT)), BOTH),
    "one object twice in one": (pieces(piece(0, "a", "calculate", ONE_TEXT + ONE_TEXT)), CALC),
    "encoded twice": (pieces(piece(0, "a", "calculate", '"{\\"expression\\": \\"1+1\\"}"')), CALC),
    "another name: input": (
        pieces({"index": 0, "id": "a", "function": {"name": "calculate", "input": ONE}}),
        CALC,
    ),
    "another name: parameters": (
        pieces({"index": 0, "id": "a", "function": {"name": "calculate", "parameters": ONE}}),
        CALC,
    ),
    "in a fence": (pieces(piece(0, "a", "calculate", f"```json\n{ONE_TEXT}\n```")), CALC),
    "half of a character": (
        pieces(piece(0, "a", "write_file", '{"text":"\ud83d'), piece(0, None, None, '\ude00"}')),
        [("write_file", {"text": "\U0001f600"})],
    ),
}


@inputs(ARGUMENTS)
async def test_arguments_in_any_form_are_the_arguments(stream: bytes, right: list[tuple[str, Any]], via: str) -> None:
    """Repeated, as an object, in a list, two of them."""
    await expect_calls(stream, right, via)


FIELDS: Final[Inputs] = {
    "recorded: the old form": (recorded(recorded_input("p-function-call")["stream"]), CALC),
    "the old form in pieces": (
        sse(
            chunk(function_call={"name": "calculate", "arguments": ""}),
            chunk(function_call={"arguments": HALVES[0]}),
            chunk(function_call={"arguments": HALVES[1]}),
            chunk(None, "function_call"),
        ),
        CALC,
    ),
    "the old form with an object": (
        sse(chunk(function_call={"name": "calculate", "arguments": ONE}), chunk(None, "stop")),
        CALC,
    ),
    "the old form beside the new one": (
        sse(
            chunk(
                function_call={"name": "calculate", "arguments": ONE_TEXT},
                tool_calls=[piece(0, "a", "calculate", ONE_TEXT)],
            ),
            chunk(None, "tool_calls"),
        ),
        CALC,
    ),
    "an id that is a number": (pieces(piece(0, 17, "calculate", ONE_TEXT)), CALC),
    "an index that is a text": (
        pieces(piece("0", "a", "calculate", HALVES[0]), piece("0", None, None, HALVES[1])),
        CALC,
    ),
    "an index that is a fraction": (
        pieces(piece(0.0, "a", "calculate", HALVES[0]), piece(0.0, None, None, HALVES[1])),
        CALC,
    ),
    "name and arguments outside of the function": (
        pieces({"index": 0, "id": "a", "name": "calculate", "arguments": ONE_TEXT}),
        CALC,
    ),
    "the function is a name": (
        pieces({"index": 0, "id": "a", "function": "calculate", "arguments": ONE}),
        CALC,
    ),
    "one call without a list": (
        sse(chunk(tool_calls=piece(0, "a", "calculate", ONE_TEXT)), chunk(None, "tool_calls")),
        CALC,
    ),
    "a list with null": (
        sse(chunk(tool_calls=[None, piece(0, "a", "calculate", ONE_TEXT)]), chunk(None, "tool_calls")),
        CALC,
    ),
    "the finish reason says stop": (
        sse(chunk(tool_calls=[piece(0, "a", "calculate", ONE_TEXT)]), chunk(None, "stop")),
        CALC,
    ),
    "no finish reason": (sse(chunk(tool_calls=[piece(0, "a", "calculate", ONE_TEXT)])), CALC),
    "a part of the content": (
        sse(chunk([{"type": "tool_use", "id": "a", "name": "calculate", "input": ONE}]), chunk(None, "tool_use")),
        CALC,
    ),
    "in another choice": (
        sse(
            {
                "choices": [
                    {"index": 0, "delta": {"content": "I calculate."}, "finish_reason": None},
                    {"index": 1, "delta": {"tool_calls": [piece(0, "a", "calculate", ONE_TEXT)]}},
                ]
            },
            chunk(None, "tool_calls"),
        ),
        CALC,
    ),
    "in a message": (
        sse(
            {
                "choices": [
                    {"message": {"tool_calls": [piece(None, "a", "calculate", ONE_TEXT)]}, "finish_reason": "stop"}
                ]
            }
        ),
        CALC,
    ),
    "in a message at the end once more": (
        sse(
            chunk(tool_calls=[piece(0, "a", "calculate", ONE_TEXT)]),
            {
                "choices": [
                    {
                        "message": {"tool_calls": [piece(None, "a", "calculate", ONE_TEXT)]},
                        "finish_reason": "tool_calls",
                    }
                ]
            },
        ),
        CALC,
    ),
    "tool_calls that are empty beside the text": (
        sse(chunk(tool_calls=[piece(0, "a", "calculate", ONE_TEXT)]), chunk("", "tool_calls", tool_calls=[])),
        CALC,
    ),
}


@inputs(FIELDS)
async def test_a_call_in_another_form_or_place_is_found(stream: bytes, right: list[tuple[str, Any]], via: str) -> None:
    """The old form, other types, other places."""
    await expect_calls(stream, right, via)


WRAPPED: Final = (
    "functions.calculate",
    "default_api.calculate",
    "default_api:calculate",
    "tools/calculate",
    "functions.calculate:0",
    " calculate ",
    "calculate\n",
    "Calculate",
    "CALCULATE",
    "calculate()",
    "`calculate`",
    '"calculate"',
    "calculate<|channel|>commentary",
    "calculate<|channel|>json",
    "<|channel|>commentary to=functions.calculate",
    "functions.calculate<|constrain|>json",
    "assistant<|channel|>commentary to=functions.calculate <|constrain|>json",
    "namespace::calculate",
    "functions->calculate",
)


@pytest.mark.parametrize("name", WRAPPED)
async def test_a_wrapped_name_means_the_one_tool_that_fits(name: str, via: str) -> None:
    """Prefixes, blanks, case, channel marks."""
    await expect_calls(pieces(piece(0, "a", name, ONE_TEXT)), CALC, via)


@pytest.mark.parametrize("name", ["current-time", "currentTime", "current time", "functions.current-time"])
async def test_dashes_and_camels_are_underscores(name: str, via: str) -> None:
    """If one tool fits."""
    await expect_calls(pieces(piece(0, "a", name, "{}")), [CLOCK], via)


@pytest.mark.parametrize("name", ["calculator", "calculate.current_time", "calc", "please calculate it"])
async def test_a_name_that_fits_none_or_two_is_the_models_to_correct(name: str, via: str) -> None:
    """Nothing is guessed."""
    turn = await hear(pieces(piece(0, "a", name, ONE_TEXT)), say("done"), client=via)
    assert [called for called, _ in turn.calls if called in ("calculate", "current_time")] == []
    assert turn.text == "done"
    assert "there is no tool named" in str(turn.requests[1]["messages"][-1]["content"])


GOOD: Final[Inputs] = {
    case["right"]: (recorded(case["stream"]), right)
    for case, right in zip(
        recorded_input("ok-calls")["cases"][:6],
        [
            BOTH,
            CALC,
            [CLOCK],
            [("write_file", {"path": "a.txt", "content": "line1\nline2"})],
            [("write_file", {"path": "b.tsx", "content": "it's"})],
            CALC,
        ],
        strict=True,
    )
}


@inputs(GOOD)
async def test_calls_that_were_read_rightly_still_are(stream: bytes, right: list[tuple[str, Any]], via: str) -> None:
    """What providers send on good days."""
    await expect_calls(stream, right, via)


def whole(**message: Any) -> bytes:
    """A body that is no stream."""
    return sse({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}, end=b"")[6:]


WHOLE: Final[Inputs] = {
    "arguments as an object": (whole(tool_calls=[piece(None, "a", "calculate", ONE)]), CALC),
    "two without ids": (
        whole(tool_calls=[piece(None, None, "calculate", ONE_TEXT), piece(None, None, "calculate", TWO_TEXT)]),
        BOTH,
    ),
    "two with one id": (
        whole(tool_calls=[piece(0, "a", "calculate", ONE_TEXT), piece(0, "a", "calculate", TWO_TEXT)]),
        BOTH,
    ),
    "the old form": (whole(content=None, function_call={"name": "calculate", "arguments": ONE_TEXT}), CALC),
    "two choices": (
        sse(
            {
                "choices": [
                    {"message": {"content": "I calculate."}, "finish_reason": "tool_calls"},
                    {"message": {"tool_calls": [piece(None, "a", "calculate", ONE_TEXT)]}},
                ]
            },
            end=b"",
        )[6:],
        CALC,
    ),
    "a wrapped name": (whole(tool_calls=[piece(None, "a", "functions.calculate", ONE_TEXT)]), CALC),
    "an id that is a number": (whole(tool_calls=[piece(None, 5, "calculate", ONE_TEXT)]), CALC),
}


@inputs(WHOLE)
async def test_calls_of_an_answer_in_one_piece_are_read_as_well(
    stream: bytes, right: list[tuple[str, Any]], via: str
) -> None:
    """Nobody watches, so nothing is streamed."""
    answer = sse({"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}, end=b"")[6:]
    turn = await hear(stream, answer, client=via, shown=False, content_type=JSON)
    assert turn.calls == right
    assert (turn.text, turn.asked, turn.fault) == ("done", 2, "")


BEFORE: Final = {
    "test_ids_and_indexes_that_move_make_neither_more_nor_fewer_calls": 16,
    "test_a_name_in_pieces_or_in_each_piece_is_one_name": 6,
    "test_arguments_in_any_form_are_the_arguments": 10,
    "test_a_call_in_another_form_or_place_is_found": 5,
    "test_a_wrapped_name_means_the_one_tool_that_fits": 0,
    "test_dashes_and_camels_are_underscores": 1,
    "test_a_name_that_fits_none_or_two_is_the_models_to_correct": 4,
    "test_calls_that_were_read_rightly_still_are": 6,
    "test_calls_of_an_answer_in_one_piece_are_read_as_well": 3,
}
"""How many inputs of a kind were right when it was first tried."""
