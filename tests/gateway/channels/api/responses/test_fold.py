"""The events of a streamed response are valid, whatever the text does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent

from gateway.channels.web.api.answer import DROPPED
from gateway.channels.web.api.encoder import DONE
from gateway.channels.web.api.errors import ApiError, turn_error
from gateway.channels.web.api.responses.fold import ResponseFold
from gateway.channels.web.api.responses.shape import ResponseShape
from gateway.channels.web.api.stream_buffer import StreamBuffer
from shared.messages.outbound import RequestFailed, StoredAnswer, TokensUsed

SHAPE = ResponseShape("0" * 32, 1_700_000_000, b'{"model":"shoal"}')
EVENTS = {
    model.model_fields["type"].annotation.__args__[0]: model
    for model in ResponseStreamEvent.__args__[0].__args__  # type: ignore[attr-defined]
}
FAILED = RequestFailed(status=500, code="turn_failed", message="Sorry")
TEXTS = st.text("ab \n", max_size=5)


def events_of(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream, numbered without a gap."""
    found = []
    for block in data.removesuffix(DONE).decode().split("\n\n")[:-1]:
        name, body = block.split("\n")
        event = json.loads(body.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


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
    events = events_of(lost.encode_first() + lost.encode_text("so far") + lost.encode_error(closing, over=False))
    assert check_items(events) == ["so far"]
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
