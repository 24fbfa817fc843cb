"""Arguments, results and progress of the tool, without a gateway."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.channels.web.api.errors import ApiError
from gateway.channels.web.mcp.ask import answer_result, approval_result, parse_ask, progress_text
from shared.chatlog.turn_reader import TurnReader
from shared.messages.live import DeltaEvent, ProgressEvent
from shared.messages.outbound import Approval, OutboundMessage, RequestFailed, StoredAnswer, TokensUsed
from shared.store.delivery.outbox import NumberedLine


def reader() -> TurnReader:
    """A reader of message `m`, which begins turn 3."""
    return TurnReader("m", 0, 3)


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        (None, "arguments"),
        ({"message": 1}, "arguments"),
        ({"message": "a", "files": []}, "arguments"),
        ({"message": "\n"}, "message"),
        ({"message": "a", "session": ""}, "session"),
        ({"message": "a", "session": "~a"}, "session"),
        ({"message": "a", "session": "a#b"}, "session"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, param: str) -> None:
    """Names of sessions are those of the API."""
    with pytest.raises(ApiError) as refused:
        parse_ask(arguments)
    assert refused.value.param == param


def test_arguments_are_a_request_of_the_api() -> None:
    """With the default model, and no other history."""
    request = parse_ask({"message": "hello", "session": "a"})
    assert (request.prompt.text, request.name, request.preset, request.ephemeral) == ("hello", "a", "", False)
    assert parse_ask({"message": "hello"}).ephemeral


def test_each_end_of_a_turn_has_its_result() -> None:
    """Only a failure is an error."""
    used = {"session": "a", "usage": {"input_tokens": 5, "output_tokens": 1}}
    answer = answer_result(StoredAnswer(text="yes", usage=TokensUsed(prompt=5, completion=1)), "a")
    assert (answer.text, answer.structured, answer.is_error) == ("yes", used, False)
    stopped = answer_result(StoredAnswer(stopped=True), "a")
    assert stopped.structured is not None
    assert (stopped.structured["stopped"], stopped.is_error) == (True, False)
    assert stopped.text
    assert answer_result(StoredAnswer(), None).text
    failed = answer_result(StoredAnswer(failed=RequestFailed(status=500, code="turn_failed", message="no")), "a")
    assert (failed.text, failed.is_error) == ("no", True)


def test_progress_is_the_action_and_then_the_words() -> None:
    """A new word ends the action before it; what another turn does is not shown."""
    turn = reader()
    assert progress_text(turn) == ""
    turn.on_event(ProgressEvent(turn=2, text="other()"))
    assert progress_text(turn) == ""
    turn.on_event(ProgressEvent(turn=3, text='calculate("2+2")'))
    assert progress_text(turn) == 'calculate("2+2")'
    turn.on_event(DeltaEvent(turn=3, attempt=1, seq=0, text="First.\nThen\n", full=True))
    assert progress_text(turn) == "Then"


def test_a_result_says_what_the_turn_waits_for() -> None:
    """In words, with the id, and how to answer."""
    question = Approval(id="q7", state="open", tool="exec")
    turn = reader()
    line = OutboundMessage(turn=3, in_reply_to=(), content="May I run `ls`?", approval=question)
    turn.on_line(NumberedLine(seq=1, mark=1, line=line))
    result = approval_result(question, turn, "a")
    assert not result.is_error
    assert result.text.startswith("May I run `ls`?")
    assert "q7" in result.text
    assert "/yes" in result.text
    assert result.structured is not None
    assert result.structured["approval"] == "q7"
