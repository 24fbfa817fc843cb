"""The events of a run are in order and whole, whatever the text does and wherever the stream was cut."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.web.api.agui.fold import RUNNING, SUPERSEDED, UNFINISHED, RunFold
from gateway.channels.web.api.agui.request import AguiRequest, parse_run
from gateway.channels.web.api.answer import DROPPED
from gateway.channels.web.api.errors import ApiError, turn_error
from gateway.channels.web.api.stream_buffer import StreamBuffer
from shared.messages.outbound import RequestFailed, StoredAnswer, TokensUsed
from shared.messages.transcript import ToolCall
from tests.gateway.channels.api.agui.runs import Event, Reader, body_of, events_of, run, user

TICKET = "0" * 8
MESSAGE = f"msg_{TICKET}"
TEXTS = st.text("ab \n", max_size=5)
CALLS = (ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "g", "{}"))
ANSWERS = st.builds(
    StoredAnswer,
    text=TEXTS,
    finish=st.sampled_from(["stop", "length"]),
    usage=st.sampled_from([None, TokensUsed(prompt=3, completion=2, cached=1)]),
    stopped=st.booleans(),
) | st.builds(StoredAnswer, text=TEXTS, finish=st.just("tool_calls"), calls=st.sampled_from([CALLS, CALLS[:1]]))


def asked(*had: Any) -> AguiRequest:
    """A request of a client that has these messages of the reply."""
    return parse_run(body_of(run(user("hello"), *had)))


def pieces(shown: list[str], answer: StoredAnswer, *had: Any) -> list[bytes]:
    """Every piece of a stream that shows these texts, one in place of the other, and then ends."""
    fold, buffer = RunFold(asked(*had), TICKET), StreamBuffer()
    found = [fold.encode_first()]
    found += [fold.encode_text(more) for text in shown if (more := buffer.update(text))]
    if answer.failed:
        return [*found, fold.encode_error(turn_error(answer.failed), over=True)]
    if more := buffer.finish(answer.text, answer.text):
        found.append(fold.encode_text(more))
    return [*found, fold.encode_last(answer)]


def streamed(shown: list[str], answer: StoredAnswer, *had: Any) -> list[Event]:
    return events_of(b"".join(pieces(shown, answer, *had)))


@given(st.lists(TEXTS, max_size=8), ANSWERS)
def test_a_reader_has_the_answer_byte_for_byte(shown: list[str], answer: StoredAnswer) -> None:
    """In the one message that no other replaced; calls are whole, and named at the end."""
    events = streamed(shown, answer)
    reader = Reader().read(events)
    assert reader.text == answer.text or not answer.text
    assert reader.calls == {call.id: call.arguments for call in answer.calls}
    outcome = reader.last["outcome"]
    assert outcome["type"] == ("cancelled" if answer.stopped else "success")
    assert outcome.get("pendingToolCallIds", []) == [call.id for call in answer.calls]
    assert ("usage" in reader.last) == (answer.usage is not None)
    assert (reader.last.get("metadata") == {UNFINISHED: True}) == (answer.finish == "length")


@given(st.lists(TEXTS, max_size=8), ANSWERS, st.lists(TEXTS, max_size=8), st.data())
def test_a_stream_that_was_cut_is_continued_in_the_same_message(
    shown: list[str], answer: StoredAnswer, again: list[str], data: st.DataObject
) -> None:
    """Cut anywhere, between events and after the end: what a client has is in order, and the same run asked again with
    it brings the rest, once, whatever the second gateway has seen of the turn."""
    first = streamed(shown, answer)
    reader = Reader().read(first[: data.draw(st.integers(0, len(first)))])
    reader.read(streamed(again, answer, *reader.messages()))
    if answer.text:
        assert list(reader.texts.values()).count(answer.text) >= 1
        assert reader.texts[list(reader.texts)[-1]] == answer.text
    assert reader.calls == {call.id: call.arguments for call in answer.calls}
    assert reader.last["type"] == "RUN_FINISHED"


@given(st.lists(TEXTS, max_size=8), ANSWERS)
def test_whoever_has_it_all_gets_nothing_again(shown: list[str], answer: StoredAnswer) -> None:
    reader = Reader().read(streamed(shown, answer))
    kept = [message for message in reader.messages() if message["id"] not in reader.superseded]
    if len(reader.messages()) == len(kept):
        assert [event["type"] for event in streamed([], answer, *kept)] == ["RUN_STARTED", "RUN_FINISHED"]


@given(st.lists(TEXTS, max_size=8))
def test_a_failed_turn_ends_what_was_begun(shown: list[str]) -> None:
    failed = RequestFailed(status=500, code="turn_failed", message="Sorry")
    last = Reader().read(streamed(shown, StoredAnswer(failed=failed))).last
    assert last == {"type": "RUN_ERROR", "message": "Sorry", "code": "turn_failed"}


def test_a_text_that_is_replaced_is_marked() -> None:
    """Another message has the answer, and the calls are of that one."""
    answer = StoredAnswer(text="no", finish="tool_calls", calls=CALLS[:1])
    reader = Reader().read(streamed(["yes"], answer))
    assert (reader.superseded, reader.text) == ({MESSAGE}, "no")
    assert reader.parents == {"c1": f"{MESSAGE}_1"}
    [end] = [event for event in streamed(["yes"], answer) if event.get("metadata")]
    assert (end["type"], end["metadata"]) == ("TEXT_MESSAGE_END", {SUPERSEDED: True})


def test_a_message_that_is_not_answered_cancels_the_run() -> None:
    """As `/new` and `/forget` do."""
    last = Reader().read(streamed([], DROPPED)).last
    assert last == {"type": "RUN_FINISHED", "threadId": "a", "runId": "r1", "outcome": {"type": "cancelled"}}


def test_an_error_of_this_stream_alone_says_that_the_run_goes_on() -> None:
    fold = RunFold(asked(), TICKET)
    data = fold.encode_first() + fold.encode_text("a") + fold.encode_error(ApiError(503, "later"), over=False)
    last = Reader().read(events_of(data)).last
    assert last == {"type": "RUN_ERROR", "message": "later", "code": "server_error", "metadata": {RUNNING: True}}


GOLDEN = b"""\
data: {"type":"RUN_STARTED","threadId":"a","runId":"r1","protocolVersion":"1.0"}

data: {"type":"TEXT_MESSAGE_START","messageId":"msg_00000000","role":"assistant"}

data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"msg_00000000","delta":"Let me"}

data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"msg_00000000","delta":" look."}

data: {"type":"TEXT_MESSAGE_END","messageId":"msg_00000000"}

data: {"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"f","parentMessageId":"msg_00000000"}

data: {"type":"TOOL_CALL_ARGS","toolCallId":"c1","delta":"{\\"a\\":1}"}

data: {"type":"TOOL_CALL_END","toolCallId":"c1"}

data: {"type":"RUN_FINISHED","threadId":"a","runId":"r1","outcome":{"type":"success","pendingToolCallIds":["c1"]},\
"usage":[{"inputTokens":3,"outputTokens":2,"totalTokens":5,"cachedInputTokens":1}]}

"""


def test_the_recording_has_not_changed() -> None:
    """Clients that continue a run on a gateway of the next release count on it."""
    used = TokensUsed(prompt=3, completion=2, cached=1)
    answer = StoredAnswer(text="Let me look.", finish="tool_calls", usage=used, calls=CALLS[:1])
    found = pieces(["Let me", "Let me look."], answer)
    assert b"".join(found) == GOLDEN
    whole = RunFold(asked(), TICKET).encode_answer(answer)
    assert Reader().read(events_of(whole)).text == "Let me look."
