"""How an answer ended: whole, cut, broken, filtered, or without a word."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from shared.settings import ModelSettings
from tests.reports.one_turn import chunk, hear, recorded, recorded_input, say, sse
from worker.agent.run import FILTERED
from worker.llm.clients import replies
from worker.llm.policies.timeouts import CallTimeouts

TEXT: Final = "hello world"
HALF: Final = "The first half of an ans"
END: Final = b""


def ends(finish: Any, text: str = HALF, **choice: Any) -> bytes:
    """A stream that ends with this reason."""
    return sse(chunk(text), {"choices": [{"index": 0, "delta": {}, "finish_reason": finish} | choice]})


WHOLE: Final = (
    "stop", "STOP", "Stop", " stop ", "end_turn", "endTurn", "eos", "eos_token", "stop_sequence", "COMPLETE",
    "completed", "FINISH", "finished", "FinishReason.STOP", "FINISH_REASON_STOP", "tool_calls", "whatever",
)  # fmt: skip


@pytest.mark.parametrize("word", WHOLE)
async def test_words_for_a_whole_answer_end_it(word: str, via: str) -> None:
    """And words that nobody knows."""
    turn = await hear(ends(word, TEXT), client=via)
    assert (turn.text, turn.asked, turn.fault) == (TEXT, 1, "")


RECORDED: Final = [one["stream"] for one in recorded_input("p-delta-null")["streams"]]
NO_DELTA: Final = {
    "recorded: null": recorded(RECORDED[0]),
    "recorded: none": recorded(RECORDED[1]),
    "null, and [DONE]": sse(chunk(TEXT), {"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}),
    "a message that is null": sse(
        chunk(TEXT), {"choices": [{"delta": None, "message": None, "finish_reason": "stop"}]}, end=END
    ),
    "an empty text": sse(chunk(TEXT), {"choices": [{"delta": "", "finish_reason": "stop"}]}, end=END),
    "an empty list": sse(chunk(TEXT), {"choices": [{"delta": [], "finish_reason": "stop"}]}, end=END),
    "with usage": sse(chunk(TEXT), {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}, end=END),
    "another name: stop_reason": sse(chunk(TEXT), {"choices": [{"stop_reason": "end_turn"}]}, end=END),
    "another name: finishReason": sse(chunk(TEXT), {"choices": [{"finishReason": "STOP"}]}, end=END),
    "an object: finish_details": sse(chunk(TEXT), {"choices": [{"finish_details": {"type": "stop"}}]}, end=END),
    "an object": sse(chunk(TEXT), {"choices": [{"finish_reason": {"type": "stop"}}]}, end=END),
    "true": sse(chunk(TEXT), {"choices": [{"delta": {}, "finish_reason": True}]}, end=END),
    "a second chunk that says nothing": sse(chunk(TEXT), chunk("", "stop"), chunk(""), end=END),
    "in the chunk of the text": sse(chunk(TEXT, "stop"), end=END),
    "in each chunk": sse(chunk("hello ", "stop"), chunk("world", "stop"), end=END),
    "the word null while it goes on": sse(chunk("hello ", "null"), chunk("world", "null"), chunk("", "stop"), end=END),
    "an empty word while it goes on": sse(chunk("hello ", ""), chunk("world", ""), chunk("", "stop"), end=END),
}


@pytest.mark.parametrize("body", NO_DELTA.values(), ids=NO_DELTA.keys())
async def test_a_reason_without_a_delta_counts(body: bytes, via: str) -> None:
    """No [DONE] is needed behind it."""
    turn = await hear(body, client=via, chunked=False)
    assert (turn.text, turn.asked, turn.fault) == (TEXT, 1, "")


CUT: Final = {
    "recorded: a null delta": recorded(RECORDED[2]),
    **{
        word: ends(word, "first half, ")
        for word in (
            "length", "LENGTH", "max_tokens", "MAX_TOKENS", "maxTokens", "max_token", "max_output_tokens", "max_length",
            "model_length", "FinishReason.MAX_TOKENS", "FINISH_REASON_MAX_TOKENS", "token_limit", "truncated",
            "incomplete", "model_context_window_exceeded", "pause_turn", "max_new_tokens",
        )
    },
    "length, then stop": sse(chunk("first half, "), chunk("", "length"), chunk("", "stop")),
    "no delta at all": sse(chunk("first half, "), {"choices": [{"index": 0, "finish_reason": "length"}]}),
}  # fmt: skip


@pytest.mark.parametrize("body", CUT.values(), ids=CUT.keys())
async def test_words_for_an_answer_that_was_cut_go_on_with_it(body: bytes, via: str) -> None:
    """A second call asks to go on, and its text is joined."""
    turn = await hear(body, say("second half."), client=via)
    assert (turn.text, turn.shown, turn.asked) == ("first half, second half.",) * 2 + (2,)
    assert "cut off" in turn.requests[1]["messages"][-1]["content"]


FAULTS: Final = {
    "recorded: network_error": recorded(recorded_input("p-finish-error")["streams"][0]),
    "recorded: error": recorded(recorded_input("p-finish-error")["streams"][1]),
    **{
        word: ends(word)
        for word in (
            "error", "ERROR", "network_error", "insufficient_system_resource", "abort", "aborted", "cancelled",
            "internal_error", "server_error", "failed", "timeout", "engine_overloaded", "overloaded", "unavailable",
            "MALFORMED_FUNCTION_CALL", "FinishReason.MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "interrupted",
        )
    },
    "error, then stop": sse(chunk(HALF), chunk("", "error"), chunk("", "stop")),
    "error with a null delta": sse(chunk(HALF), {"choices": [{"delta": None, "finish_reason": "error"}]}),
}  # fmt: skip


@pytest.mark.parametrize("body", FAULTS.values(), ids=FAULTS.keys())
async def test_words_for_a_fault_are_asked_again(body: bytes, via: str) -> None:
    """Half a sentence is never the answer, and is taken back."""
    turn = await hear(body, say("It is 42."), client=via)
    assert (turn.text, turn.shown, turn.asked, turn.fault) == ("It is 42.", "It is 42.", 2, "")


FILTERS: Final = (
    "content_filter", "CONTENT_FILTER", "content-filter", "contentFilter", "SAFETY", "RECITATION", "PROHIBITED_CONTENT",
    "BLOCKLIST", "SPII", "IMAGE_SAFETY", "sensitive", "refusal", "content_filtered", "guardrail_intervened",
    "FinishReason.SAFETY", "ERROR_TOXIC", "moderation",
)  # fmt: skip


@pytest.mark.parametrize("word", FILTERS)
async def test_words_for_a_filter_say_so(word: str, via: str) -> None:
    """Nobody is asked again, and the text that came stays."""
    turn = await hear(ends(word, "So far."), client=via)
    assert (turn.text, turn.asked) == (f"So far.\n\n{FILTERED}", 1)


async def test_a_filter_that_leaves_nothing_says_so(via: str) -> None:
    """Instead of an apology for having no answer."""
    turn = await hear(ends("content_filter", ""), client=via)
    assert (turn.text, turn.asked) == (FILTERED, 1)


@pytest.mark.parametrize("text", [TEXT, "A sentence.", "```\ncode\n```"])
async def test_a_body_that_ends_as_it_should_is_the_answer_without_a_word_on_it(text: str, via: str) -> None:
    """Its provider never says more: to ask again would end the same way, and cost the same."""
    turn = await hear(sse(chunk(text), end=END), client=via)
    assert (turn.text, turn.asked, turn.fault) == (text, 1, "")


@pytest.mark.parametrize("text", ["A sentence.", "Really?", "是的。", "(so it is)", "```\ncode\n```"])
async def test_of_a_body_without_a_length_the_text_tells_whether_it_is_whole(text: str, via: str) -> None:
    """It ends as texts do."""
    turn = await hear(sse(chunk(text), end=END), client=via, chunked=False)
    assert (turn.text, turn.asked, turn.fault) == (text, 1, "")


async def test_of_a_body_without_a_length_counts_tell_that_it_is_whole(via: str) -> None:
    """They come last."""
    body = sse(chunk(TEXT), {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}, end=END)
    assert (await hear(body, client=via, chunked=False)).asked == 1


async def test_a_text_of_which_nobody_can_tell_is_asked_for_once_more(via: str) -> None:
    """A better one is taken; one like it is, too: its provider never says more."""
    half = sse(chunk(HALF), end=END)
    turn = await hear(half, say("It is 42."), client=via, chunked=False)
    assert (turn.text, turn.shown, turn.asked) == ("It is 42.", "It is 42.", 2)
    turn = await hear(half, client=via, chunked=False)
    assert (turn.text, turn.shown, turn.asked, turn.fault) == (HALF, HALF, 2, "")


async def test_an_answer_whose_connection_breaks_behind_its_reason_has_come(via: str) -> None:
    """Only the mark of the end is missing."""
    turn = await hear(sse(chunk(TEXT), chunk("", "stop"), end=END), client=via, whole=False)
    assert (turn.text, turn.asked, turn.fault) == (TEXT, 1, "")


async def test_a_server_that_never_closes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than its token counts may take."""
    monkeypatch.setattr(replies, "LAST_S", 0.01)
    pieces = iter([sse(chunk(TEXT), chunk("", "stop"), end=END)])

    async def next_piece() -> bytes:
        if piece := next(pieces, b""):
            return piece
        await asyncio.Event().wait()
        raise AssertionError

    with CallTimeouts(ModelSettings(name="openai/x")) as timeouts:
        reply = await replies.read_event_stream(next_piece, "x", timeouts, None)
    assert (reply.content, reply.finish_reason) == (TEXT, "stop")


@pytest.mark.parametrize("text", ["```\nprint(1", HALF])
async def test_a_body_that_breaks_is_asked_again(text: str, via: str) -> None:
    """HTTP itself says that it is not whole."""
    turn = await hear(sse(chunk(text), end=END), say("It is 42."), client=via, chunked=text != HALF, whole=False)
    assert (turn.text, turn.shown, turn.asked) == ("It is 42.", "It is 42.", 2)


def call(arguments: str) -> bytes:
    """A call, and no word on how it ended."""
    function = {"name": "calculate", "arguments": arguments}
    return sse(chunk(tool_calls=[{"index": 0, "id": "a", "function": function}]), end=END)


async def test_a_whole_call_without_a_word_on_its_end_runs(via: str) -> None:
    """Its arguments are complete."""
    turn = await hear(call('{"expression": "1+1"}'), say("done"), client=via)
    assert (turn.calls, turn.asked) == ([("calculate", {"expression": "1+1"})], 2)


async def test_half_a_call_without_a_word_on_its_end_does_not_run(via: str) -> None:
    """It is asked for again."""
    turn = await hear(call('{"expression": "1+'), say("done"), client=via)
    assert (turn.calls, turn.text, turn.asked) == ([], "done", 2)


BEFORE: Final = {
    "test_words_for_a_whole_answer_end_it": 17,
    "test_a_reason_without_a_delta_counts": 6,
    "test_words_for_an_answer_that_was_cut_go_on_with_it": 1,
    "test_words_for_a_fault_are_asked_again": 1,
    "test_words_for_a_filter_say_so": 0,
    "test_a_filter_that_leaves_nothing_says_so": 0,
    "test_a_body_that_ends_as_it_should_is_the_answer_without_a_word_on_it": 0,
    "test_of_a_body_without_a_length_the_text_tells_whether_it_is_whole": 0,
    "test_of_a_body_without_a_length_counts_tell_that_it_is_whole": 0,
    "test_a_text_of_which_nobody_can_tell_is_asked_for_once_more": 0,
    "test_an_answer_whose_connection_breaks_behind_its_reason_has_come": 0,
    "test_a_server_that_never_closes_is_not_waited_for": 0,
    "test_a_body_that_breaks_is_asked_again": 2,
    "test_a_whole_call_without_a_word_on_its_end_runs": 0,
    "test_half_a_call_without_a_word_on_its_end_does_not_run": 1,
}
"""How many inputs of a kind were right when it was first tried."""
