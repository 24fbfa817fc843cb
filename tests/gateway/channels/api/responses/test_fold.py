"""The events of a streamed response are valid, whatever the text does."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent

from gateway.channels.web.api.answer import DROPPED
from gateway.channels.web.api.encoder import DONE
from gateway.channels.web.api.errors import ApiError, turn_error
from gateway.channels.web.api.responses.fold import ResponseFold
from gateway.channels.web.api.responses.numbers import DELTA, SCALE, check_after
from gateway.channels.web.api.responses.shape import ResponseShape
from gateway.channels.web.api.stream_buffer import StreamBuffer
from shared.messages.outbound import RequestFailed, StoredAnswer, TokensUsed
from shared.messages.transcript import ToolCall

SHAPE = ResponseShape("0" * 32, 1_700_000_000, b'{"model":"shoal"}')
EVENTS = {
    model.model_fields["type"].annotation.__args__[0]: model
    for model in ResponseStreamEvent.__args__[0].__args__  # type: ignore[attr-defined]
}
FAILED = RequestFailed(status=500, code="turn_failed", message="Sorry")
TEXTS = st.text("ab \n", max_size=5)


def events_of(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream, whose numbers ascend."""
    found = []
    for block in data.removesuffix(DONE).decode().split("\n\n")[:-1]:
        name, body = block.split("\n")
        event = json.loads(body.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    numbers = [event["sequence_number"] for event in found]
    # An error that ends this stream alone has the number of the event before it.
    alone = bool(found) and found[-1]["type"] == "error"
    assert all(one < other for one, other in pairwise(numbers[: -1 if alone else None]))
    return found


def replayed(after: int | None, shown: list[str], answer: StoredAnswer) -> list[dict[str, Any]]:
    """The events of another gateway, after this number."""
    if after is not None:
        check_after(after, answer)
        # The events at the end are there only once the answer is known: it is read from its record.
        shown = [] if after > SCALE and after % SCALE < DELTA else shown
    return events_of(streamed(ResponseFold(SHAPE, stored=True, after=after), shown, answer))


class Accumulator:
    """A client that adds up what it receives, over several connections."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.last: dict[str, Any] = {}

    def add(self, events: list[dict[str, Any]]) -> None:
        """Take events in."""
        for event in events:
            match event["type"].removeprefix("response."):
                case "output_item.added":
                    assert event["item"]["id"] not in self.texts, "an item begins twice"
                    self.texts[event["item"]["id"]] = ""
                case "output_text.delta":
                    self.texts[event["item_id"]] += event["delta"]
                case "output_text.done":
                    assert self.texts[event["item_id"]] == event["text"]
                case "completed" | "incomplete" | "failed":
                    assert self.last == {}, "a response ends twice"
                    self.last = event["response"]

    def check(self, answer: StoredAnswer) -> None:
        """Check that nothing of the answer is missing or doubled."""
        for item in self.last["output"]:
            assert self.texts[item["id"]] == item["content"][0]["text"] == answer.text


def streamed(fold: ResponseFold, shown: list[str], answer: StoredAnswer) -> bytes:
    """All bytes of a turn that shows these texts, one in place of the other, and then ends."""
    buffer, data = StreamBuffer(), fold.encode_first()
    for text in shown:
        if more := buffer.update(text):
            data += fold.encode_text(more)
    if answer.failed:
        return data + fold.encode_error(turn_error(answer.failed), over=True)
    if more := buffer.finish(answer.text, answer.text):
        data += fold.encode_text(more)
    return data + fold.encode_last(answer)


def check_items(events: list[dict[str, Any]]) -> list[str]:
    """Each item is begun, filled and ended in this order, one after the other; the texts."""
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:2] == ["created", "in_progress"]
    texts: list[str] = []
    at = 2
    while kinds[at] == "output_item.added":
        deltas: list[str] = []
        assert kinds[at + 1] == "content_part.added"
        begun, at = at, at + 2
        while kinds[at] == "output_text.delta":
            assert events[at]["delta"] != ""
            deltas.append(events[at]["delta"])
            at += 1
        assert kinds[at : at + 3] == ["output_text.done", "content_part.done", "output_item.done"]
        assert {event["output_index"] for event in events[begun : at + 3]} == {len(texts)}
        item = events[at + 2]["item"]
        assert {event["item_id"] for event in events[begun + 1 : at + 2]} == {item["id"], events[begun]["item"]["id"]}
        assert events[at]["text"] == item["content"][0]["text"] == events[at + 1]["part"]["text"] == "".join(deltas)
        texts.append("".join(deltas))
        at += 3
    assert len(events) - at == (2 if kinds[at] == "error" else 1)
    return texts


@given(
    st.lists(TEXTS, max_size=8),
    TEXTS,
    st.sampled_from([{}, {"finish": "length"}, {"stopped": True}, {"usage": TokensUsed(prompt=3, completion=2)}]),
)
def test_the_joined_deltas_are_the_answer(shown: list[str], text: str, fields: dict[str, Any]) -> None:
    """Byte for byte, in the last item; the response at the end has it alone and equals the one that is not streamed."""
    answer = StoredAnswer(text=text, **fields)
    events = events_of(streamed(ResponseFold(SHAPE, stored=True), shown, answer))
    texts = check_items(events)
    last = events[-1]["response"]
    whole = json.loads(ResponseFold(SHAPE, stored=True).encode_answer(answer))
    if whole["output"]:
        assert texts[-1] == text
        assert last["output"] == [events[-2]["item"]]
        assert whole["output"][0]["content"] == last["output"][0]["content"]
    assert last | {"output": []} == whole | {"output": []}


@given(st.lists(TEXTS, max_size=8))
def test_a_failed_turn_ends_what_was_begun(shown: list[str]) -> None:
    """An error, then the response that failed, without the text that is no answer."""
    events = events_of(streamed(ResponseFold(SHAPE, stored=True), shown, StoredAnswer(failed=FAILED)))
    check_items(events)
    error = events[-2]
    assert (error["code"], error["message"]) == ("turn_failed", "Sorry")
    assert "error" not in error, "OpenAI's client would raise at an event with this key"
    last = events[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert (last["response"]["error"]["message"], last["response"]["output"]) == ("Sorry", [])


@pytest.mark.parametrize(
    ("answer", "kind", "status"),
    [
        (StoredAnswer(text="a"), "response.completed", "completed"),
        (StoredAnswer(), "response.completed", "completed"),
        (StoredAnswer(text="a", finish="length"), "response.incomplete", "incomplete"),
        (StoredAnswer(text="a", stopped=True), "response.incomplete", "cancelled"),
        (StoredAnswer(stopped=True), "response.incomplete", "cancelled"),
        (DROPPED, "response.incomplete", "cancelled"),
    ],
)
def test_the_last_event_says_how_it_ended(answer: StoredAnswer, kind: str, status: str) -> None:
    """And so does the response in it; OpenAI's client knows every event and every field."""
    events = events_of(streamed(ResponseFold(SHAPE, stored=True), ["b"], answer))
    for event in events:
        assert EVENTS[event["type"]].model_validate(event).model_extra == {}
    assert Response.model_validate(events[-1]["response"]).model_extra == {"store": True}
    assert (events[-1]["type"], events[-1]["response"]["status"]) == (kind, status)


def test_a_gateway_that_goes_away_fails_no_stored_response() -> None:
    """It is answered elsewhere, and can be read there; one that is not stored is gone."""
    closing = ApiError(503, "going away", code="closing")
    kept, lost = ResponseFold(SHAPE, stored=True), ResponseFold(SHAPE, stored=False)
    assert [event["type"] for event in events_of(kept.encode_first() + kept.encode_error(closing, over=False))] == [
        "response.created", "response.in_progress", "error",
    ]  # fmt: skip
    resumed = ResponseFold(SHAPE, stored=True, after=1)
    assert resumed.encode_first() == b""
    [error] = events_of(resumed.encode_error(closing, over=False))
    assert error["sequence_number"] == 1, "a client goes on after the event before the error"
    events = events_of(lost.encode_first() + lost.encode_text("so far") + lost.encode_error(closing, over=False))
    assert check_items(events) == ["so far"]
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]


ANSWERS = st.one_of(
    st.builds(StoredAnswer, text=TEXTS),
    st.builds(StoredAnswer, text=TEXTS, stopped=st.just(True)),
    st.sampled_from([StoredAnswer(failed=FAILED), StoredAnswer(text="a b", finish="length")]),
)


@example(shown=["b", "aaa"], elsewhere=[], answer=StoredAnswer(text="aa"), cut=41, again=7)
@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=4), ANSWERS, st.integers(0, 99), st.integers(0, 99))
def test_a_stream_that_is_cut_goes_on_at_another_gateway(
    shown: list[str], elsewhere: list[str], answer: StoredAnswer, cut: int, again: int
) -> None:
    """After each event, twice, whatever text the others have seen: nothing is lost or doubled, and the
    response at the end is the same but for the id of its message."""
    events = events_of(streamed(ResponseFold(SHAPE, stored=True), shown, answer))
    client, final = Accumulator(), events[-1]["response"]
    for number in (cut, again):
        received = events[: number % (len(events) + 1)]
        client.add(received)
        if received:
            after = received[-1]["sequence_number"]
            events = replayed(after, elsewhere, answer)
            assert all(event["sequence_number"] > after for event in events)
    client.add(events)
    client.check(answer)
    for one in (client.last, final):
        for item in one["output"]:
            item["id"] = ""
    assert client.last == final


@given(
    st.lists(TEXTS, max_size=6), st.sampled_from([StoredAnswer(text="a b\n b"), StoredAnswer(text="b", stopped=True)])
)
def test_text_that_only_grows_is_replayed_exactly(shown: list[str], answer: StoredAnswer) -> None:
    """Same numbers and contents of all events that are no deltas; deltas may be cut elsewhere."""
    shown = [answer.text[:length] for length in sorted(len(one) for one in shown)]
    events = events_of(streamed(ResponseFold(SHAPE, stored=True), shown, answer))
    kinds = "response.output_text.delta"
    assert [one for one in replayed(None, [], answer) if one["type"] != kinds] == [
        one for one in events if one["type"] != kinds
    ]


@pytest.mark.parametrize(
    ("after", "answer"),
    [
        (4, None),
        (15, StoredAnswer(text="a")),
        (20, None),
        (SCALE, None),
        (SCALE, StoredAnswer(text="a")),
        (2 * SCALE + 13, StoredAnswer(text="a")),
        (3 * SCALE, StoredAnswer(text="a")),
        (SCALE * 2**20 * 2, StoredAnswer(text="a")),
        (10**17, StoredAnswer(text="a")),
    ],
)
def test_numbers_that_no_event_has_are_refused(after: int, answer: StoredAnswer | None) -> None:
    with pytest.raises(ApiError) as refused:
        check_after(after, answer)
    assert (refused.value.status, refused.value.param) == (400, "starting_after")


CALLED = StoredAnswer(
    text="Let me look.", finish="tool_calls", calls=(ToolCall("call_a", "f", "{}"), ToolCall("call_b", "g", '{"a": 1}'))
)


@given(st.sampled_from(["", "Let me", "Let me look.", "Let us"]), st.data())
def test_calls_of_functions_follow_the_text(shown: str, data: st.DataObject) -> None:
    """Each in four events; a stream that was cut anywhere goes on with exactly those that are missing."""
    text = data.draw(st.sampled_from(["", CALLED.text]))
    answer = msgspec.structs.replace(CALLED, text=text)
    shown = shown if text else ""
    events = replayed(None, [shown] if shown else [], answer)
    assert [event["type"] for event in events[-9:-1]] == 2 * [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message"] * bool(text) + ["function_call"] * 2
    assert [event["item"] for event in events[-9:-1] if event["type"].endswith("item.done")] == output[-2:]
    at = data.draw(st.integers(len(events) - 10, len(events) - 1))
    after = events[at]["sequence_number"]
    check_after(after, answer)
    assert replayed(after, [], answer) == events[at + 1 :]
