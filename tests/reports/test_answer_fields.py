"""Fields of an answer with other types, names and places than the protocol gives them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from shared.metrics import REGISTRY
from tests.reports.one_turn import JSON, chunk, hear, recorded, recorded_input, say, sse

TEXT: Final = "hello world"
THOUGHT: Final = "secret thought"
END: Final = chunk("", "stop")

Inputs = Mapping[str, bytes]


def inputs(table: Inputs) -> Callable[[Any], Any]:
    """A parameter for each input."""
    return pytest.mark.parametrize("body", table.values(), ids=table.keys())


async def expect_text(body: bytes, via: str, right: str = TEXT, **how: Any) -> None:
    """The text is the answer, the model was asked once, and no thought was shown."""
    turn = await hear(body, client=via, **how)
    assert (turn.text, turn.asked, turn.fault) == (right, 1, "")
    assert THOUGHT not in turn.ever_shown


RECORDED: Final = [recorded(stream) for stream in recorded_input("p-thinking-part")["streams"]]
CONTENT: Final[Inputs] = {
    "recorded: thoughts in a part": RECORDED[0],
    "recorded: a list of texts": RECORDED[1],
    "recorded: an object": RECORDED[2],
    "recorded: a list of parts": recorded(recorded_input("ok-calls")["cases"][7]["stream"]),
    "texts and parts": sse(chunk(["hello ", {"type": "text", "text": "world"}]), END),
    "a list with null": sse(chunk([None, "hello ", None, "world"]), END),
    "a list in a list": sse(chunk([["hello "], ["world"]]), END),
    "an empty list": sse(chunk([]), chunk(TEXT), END),
    "an empty object": sse(chunk({}), chunk(TEXT), END),
    "a part named output_text": sse(chunk([{"type": "output_text", "text": TEXT}]), END),
    "a part with a value in it": sse(chunk([{"type": "text", "text": {"value": TEXT, "annotations": []}}]), END),
    "a part without a type": sse(chunk([{"text": TEXT}]), END),
    "a part whose text is in content": sse(chunk([{"type": "text", "content": TEXT}]), END),
    "a part that is a picture": sse(chunk([{"type": "image_url", "image_url": {"url": "x"}}, TEXT]), END),
    "thoughts as text": sse(chunk([{"type": "thinking", "thinking": THOUGHT}, TEXT]), END),
    "thoughts as a list": sse(
        chunk([{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}, {"type": "text", "text": TEXT}]),
        END,
    ),
    "a part named reasoning": sse(chunk([{"type": "reasoning", "text": THOUGHT}, TEXT]), END),
    "a part named reasoning with a summary": sse(
        chunk([{"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]}, TEXT]), END
    ),
    "a part named redacted_thinking": sse(chunk([{"type": "redacted_thinking", "data": THOUGHT}, TEXT]), END),
    "a part marked as thought": sse(chunk([{"text": THOUGHT, "thought": True}, {"text": TEXT}]), END),
    "false": sse(chunk(False), chunk(TEXT), END),
}


@inputs(CONTENT)
async def test_content_in_any_type_is_text_without_its_thoughts(body: bytes, via: str) -> None:
    """Texts, parts, objects, lists."""
    await expect_text(body, via)


async def test_a_number_is_text(via: str) -> None:
    """A model that answers 42 may send a number."""
    await expect_text(sse(chunk(42), END), via, "42")


def beside(**fields: Any) -> bytes:
    """A good stream whose chunks have further fields."""
    return sse(chunk("hello ") | fields, chunk("world") | fields, END | fields)


ERRORS: Final[Inputs] = {
    "recorded: false, and usage as a list": RECORDED[4],
    "false": beside(error=False),
    "empty text": beside(error=""),
    "an empty object": beside(error={}),
    "an empty list": beside(error=[]),
    "zero": beside(error=0),
    "null in each field": beside(error={"message": None, "code": None, "type": None}),
    "code 0": beside(error={"code": 0, "message": ""}),
    "success": beside(error={"code": 200, "message": "success"}),
    "the word null": beside(error="null"),
    "base_resp of a success": beside(base_resp={"status_code": 0, "status_msg": ""}),
    "code and msg of a success": beside(code=0, msg="success"),
}


@inputs(ERRORS)
async def test_an_error_that_is_none_is_none(body: bytes, via: str) -> None:
    """False, empty, or a success."""
    await expect_text(body, via)


def used(usage: Any, **more: Any) -> bytes:
    """A good stream that ends with token counts."""
    return sse(chunk("hello "), chunk("world"), END, {"choices": [], "usage": usage} | more)


async def test_the_log_and_the_metric_name_the_field(via: str) -> None:
    """Once an answer, however many of its chunks have it."""
    name, labels = "shoal_model_bad_replies_total", {"model": "openai/x", "field": "choices.delta.content"}
    before = REGISTRY.get_sample_value(name, labels) or 0.0
    with capture_logs() as logs:
        await expect_text(sse(chunk(["hello "]), chunk(["world"]), END), via)
    odd = [(line["event"], line["field"]) for line in logs if line["event"] == "bad_reply"]
    assert odd == [("bad_reply", "choices.delta.content")]
    assert REGISTRY.get_sample_value(name, labels) == before + 1


COUNTS: Final[Inputs] = {
    "recorded: floats": RECORDED[3],
    "a list": used([]),
    "a list with an object": used([{"prompt_tokens": 10}]),
    "a text": used("none"),
    "a number": used(12),
    "false": used(False),
    "texts in it": used({"prompt_tokens": "10", "completion_tokens": "2"}),
    "null in it": used({"prompt_tokens": None, "completion_tokens": None}),
    "objects in it": used({"prompt_tokens": {"text": 10}, "completion_tokens": []}),
    "negative": used({"prompt_tokens": -1, "completion_tokens": -1}),
    "NaN": used({"prompt_tokens": float("nan"), "completion_tokens": float("inf")}),
    "details as a list": used({"prompt_tokens": 10, "prompt_tokens_details": []}),
    "details with a text": used({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": "3"}}),
    "without choices": sse(chunk(TEXT), END, {"usage": {"prompt_tokens": 10.5}}),
    "choices that are null": used({"prompt_tokens": 10}, choices=None),
    "huge": used({"prompt_tokens": 10**30}),
}


@inputs(COUNTS)
async def test_counts_in_any_type_spoil_no_answer(body: bytes, via: str) -> None:
    """Lists, texts, fractions, what is no number."""
    await expect_text(body, via)


def chosen(*choices: Any, **more: Any) -> dict[str, Any]:
    """A chunk with these choices."""
    return {"choices": list(choices)} | more


FORMS: Final[Inputs] = {
    "in messages of a stream": sse(
        chosen({"index": 0, "message": {"content": "hello "}, "finish_reason": None}),
        chosen({"index": 0, "message": {"content": "world"}, "finish_reason": "stop"}),
    ),
    "in one message of a stream": sse(chosen({"message": {"content": TEXT}, "finish_reason": "stop"})),
    "in a message behind an empty delta": sse(
        chosen({"delta": {}, "message": {"content": TEXT}, "finish_reason": "stop"})
    ),
    "once more in a message at the end": sse(
        chunk("hello "), chunk("world"), chosen({"message": {"content": TEXT}, "finish_reason": "stop"})
    ),
    "once more in a message, beside an empty delta": sse(
        chunk("hello "), chunk("world"), chosen({"delta": {}, "message": {"content": TEXT}, "finish_reason": "stop"})
    ),
    "the rest in a message at the end": sse(
        chunk("hello "), chosen({"message": {"content": TEXT}, "finish_reason": "stop"})
    ),
    "as text of a choice": sse(
        chosen({"index": 0, "text": "hello ", "finish_reason": None}),
        chosen({"index": 0, "text": "world", "finish_reason": "stop"}),
    ),
    "as a delta that is a text": sse(chosen({"index": 0, "delta": "hello "}), chosen({"index": 0, "delta": "world"})),
    "as a delta that is a list": sse(chosen({"index": 0, "delta": []}), chunk(TEXT), END),
    "with one choice without a list": sse({"choices": {"index": 0, "delta": {"content": TEXT}}}, END),
    "with choices by number": sse({"choices": {"0": {"delta": {"content": TEXT}}}}, END),
    "with choices that are null at times": sse({"choices": None}, chunk(TEXT), {"choices": ""}, END),
    "with a choice that is null": sse({"choices": [None]}, chunk(TEXT), END),
    "without choices": sse(
        {"message": {"content": "hello "}, "done": False}, {"message": {"content": "world"}, "done": True}
    ),
    "in an object of a gateway": sse({"data": chunk(TEXT)}, {"data": END}),
    "in output": sse({"output": chunk(TEXT)}, {"output": END}),
    "with an index that is a text": sse(chosen({"index": "0", "delta": {"content": TEXT}}), END),
    "with ids that are numbers": sse(chunk(TEXT) | {"id": 5, "created": "now", "model": 7}, END | {"id": 5}),
    "with a second answer": sse(
        chunk("hello "),
        chosen({"index": 1, "delta": {"content": "good "}}),
        chunk("world"),
        chosen({"index": 1, "delta": {"content": "bye"}, "finish_reason": "length"}),
        END,
    ),
    "with a second answer in each chunk": sse(
        chosen({"index": 0, "delta": {"content": TEXT}}, {"index": 1, "delta": {"content": "good bye"}}),
        chosen({"index": 0, "delta": {}, "finish_reason": "stop"}, {"index": 1, "delta": {}, "finish_reason": "stop"}),
    ),
    "with refusal null": sse(chunk(TEXT, refusal=None), END),
    "with calls that are empty": sse(chunk(TEXT, tool_calls=[], function_call=None), END),
    "with calls that are an empty object": sse(chunk(TEXT, tool_calls={}), END),
    "with calls that are an empty text": sse(chunk(TEXT, tool_calls=""), END),
    "with a call of the old form that is empty": sse(chunk(TEXT, function_call={"name": "", "arguments": ""}), END),
    "with thoughts as a list": sse(chunk("", reasoning_content=[{"type": "text", "text": THOUGHT}]), chunk(TEXT), END),
    "with thoughts as an object": sse(chunk("", reasoning={"text": THOUGHT}), chunk(TEXT), END),
    "with thoughts as details": sse(
        chunk("", reasoning_details=[{"type": "reasoning.text", "text": THOUGHT}]), chunk(TEXT), END
    ),
    "with thoughts by another name": sse(chunk("", thinking=THOUGHT), chunk(TEXT), END),
}


@inputs(FORMS)
async def test_an_answer_in_another_form_or_place_is_found(body: bytes, via: str) -> None:
    """In `message`, in `text`, without choices, beside another answer."""
    await expect_text(body, via)


REFUSALS: Final[Inputs] = {
    "in its field": sse(chunk(None, None, refusal="I cannot "), chunk(None, None, refusal="do that."), END),
    "beside empty text": sse(chunk("", None, refusal="I cannot do that."), END),
    "in a part": sse(chunk([{"type": "refusal", "refusal": "I cannot do that."}]), END),
    "in a message": sse(
        chosen({"message": {"content": None, "refusal": "I cannot do that."}, "finish_reason": "stop"})
    ),
}


@inputs(REFUSALS)
async def test_a_refusal_is_shown(body: bytes, via: str) -> None:
    """It is what the model says."""
    turn = await hear(body, client=via)
    assert (turn.text, turn.shown, turn.asked) == ("I cannot do that.", "I cannot do that.", 1)


ALONE: Final[Inputs] = {
    "reasoning_content": sse(
        chunk(None, None, reasoning_content="hello "), chunk(None, None, reasoning_content="world"), END
    ),
    "reasoning": sse(chunk(None, None, reasoning=TEXT), END),
    "beside empty text": sse(chunk("", None, reasoning_content=TEXT), END),
    "with its own thoughts before a tag": sse(chunk(None, None, reasoning_content=f"{THOUGHT}</think>{TEXT}"), END),
}


@inputs(ALONE)
async def test_an_answer_that_is_called_thoughts_alone_is_the_answer(body: bytes, via: str) -> None:
    """A server with a wrong parser takes all of it for thoughts."""
    await expect_text(body, via)


@inputs(ALONE)
async def test_an_answer_in_one_piece_that_is_called_thoughts_is_the_answer(body: bytes, via: str) -> None:
    """The same, when nobody watches."""
    await expect_text(body, via, shown=False)


async def test_thoughts_that_were_cut_off_are_no_answer(via: str) -> None:
    """They used up all tokens."""
    turn = await hear(sse(chunk(None, "length", reasoning_content=THOUGHT)), say(TEXT), client=via)
    assert (turn.text, turn.asked) == (TEXT, 2)


FAULTS: Final[Mapping[str, tuple[str, str]]] = {
    "an event called error": ('event: error\ndata: {"message": "boom", "code": 500}', "overloaded"),
    "an event called error, with words": ("event: error\ndata: boom", "connection"),
    "an event called error, rate limit": ('event: error\ndata: {"message": "slow down", "code": 429}', "rate_limit"),
    "object: error": ('data: {"object": "error", "message": "boom", "code": 500}', "overloaded"),
    "object: error, a wrong request": ('data: {"object": "error", "message": "no", "code": 400}', "bad_request"),
    "type: error": ('data: {"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}', "connection"),
    "true, and a message": ('data: {"error": true, "message": "boom", "code": 503}', "overloaded"),
    "a list of errors": ('data: {"errors": [{"message": "boom"}]}', "connection"),
    "detail": ('data: {"detail": "boom"}', "connection"),
    "code and msg": ('data: {"code": 50000, "msg": "boom"}', "connection"),
    "base_resp": ('data: {"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}', "connection"),
    "error_code and error_msg": ('data: {"error_code": 18, "error_msg": "limit reached"}', "connection"),
    "in the choice": (
        'data: {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "x"}}]}',
        "overloaded",
    ),
    "a text": ('data: {"error": "boom"}', "connection"),
}


@pytest.mark.parametrize(("event", "kind"), FAULTS.values(), ids=FAULTS.keys())
async def test_an_error_in_any_form_is_one(event: str, kind: str, via: str) -> None:
    """It is asked again if that can help, and is no answer."""
    turn = await hear(sse(event), client=via)
    assert (turn.text, turn.fault) == ("", kind)
    assert turn.asked == (1 if kind == "bad_request" else 4)


@pytest.mark.parametrize(("event", "kind"), FAULTS.values(), ids=FAULTS.keys())
async def test_an_error_behind_text_takes_the_text_back(event: str, kind: str, via: str) -> None:
    """What is shown in the end is the second answer."""
    turn = await hear(sse(chunk("half an ans"), event), say(TEXT), client=via)
    if kind == "bad_request":
        assert turn.fault == kind
    else:
        assert (turn.text, turn.shown, turn.asked) == (TEXT, TEXT, 2)


WHOLE: Final[Mapping[str, dict[str, Any]]] = {
    "content as a list of texts": chosen({"message": {"content": ["hello ", "world"]}}),
    "content as an object": chosen({"message": {"content": {"type": "text", "text": TEXT}}}),
    "thoughts in a part": chosen({"message": {"content": [{"type": "thinking", "thinking": THOUGHT}, TEXT]}}),
    "error false, usage as a list": chosen({"message": {"content": TEXT}}, error=False, usage=[]),
    "floats in usage": chosen({"message": {"content": TEXT}}, usage={"prompt_tokens": 10.0, "completion_tokens": 2.5}),
    "in a delta": chosen({"delta": {"content": TEXT}}),
    "in text": chosen({"text": TEXT}),
    "two answers": chosen({"index": 0, "message": {"content": TEXT}}, {"index": 1, "message": {"content": "bye"}}),
    "thoughts alone": chosen({"message": {"content": None, "reasoning_content": TEXT}, "finish_reason": "stop"}),
    "a refusal": chosen({"message": {"content": None, "refusal": TEXT}}),
    "no finish reason": chosen({"message": {"content": TEXT}, "finish_reason": None}),
}


@pytest.mark.parametrize("answer", WHOLE.values(), ids=WHOLE.keys())
async def test_an_answer_in_one_piece_is_read_as_well(answer: dict[str, Any], via: str) -> None:
    """Nobody watches, so nothing is streamed."""
    await expect_text(json.dumps(answer).encode(), via, shown=False, content_type=JSON)


BEFORE: Final = {
    "test_content_in_any_type_is_text_without_its_thoughts": 5,
    "test_a_number_is_text": 0,
    "test_an_error_that_is_none_is_none": 2,
    "test_the_log_and_the_metric_name_the_field": 0,
    "test_counts_in_any_type_spoil_no_answer": 4,
    "test_an_answer_in_another_form_or_place_is_found": 12,
    "test_a_refusal_is_shown": 0,
    "test_an_answer_that_is_called_thoughts_alone_is_the_answer": 0,
    "test_an_answer_in_one_piece_that_is_called_thoughts_is_the_answer": 0,
    "test_thoughts_that_were_cut_off_are_no_answer": 1,
    "test_an_error_in_any_form_is_one": 2,
    "test_an_error_behind_text_takes_the_text_back": 4,
    "test_an_answer_in_one_piece_is_read_as_well": 2,
}
"""How many inputs of a kind were right when it was first tried."""
