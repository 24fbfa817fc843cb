"""The chunks of the AI SDK's stream are valid, whatever the text does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.web.api.aisdk.fold import ChatFold
from gateway.channels.web.api.answer import DROPPED
from gateway.channels.web.api.encoder import DONE
from gateway.channels.web.api.errors import ApiError, draining_error, turn_error
from gateway.channels.web.api.stream_buffer import StreamBuffer
from shared.messages.outbound import RequestFailed, StoredAnswer
from shared.messages.transcript import ToolCall

GOLDEN = Path(__file__).with_name("golden.txt")
CALLS = (ToolCall("c1", "get_weather", '{"city":"Kiel"}'), ToolCall("c2", "beep", "{'a"))
FAILED = RequestFailed(status=500, code="turn_failed", message="the agent gave up")
TEXTS = st.text("ab \n", max_size=5)
ENDS = st.sampled_from([{}, {"finish": "length"}, {"stopped": True}, {"finish": "tool_calls", "calls": CALLS}])


class Reader:
    """A message as the AI SDK puts it together (`processUIMessageStream`), with its rules."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.parts: list[dict[str, Any]] = []
        self.finish = self.error = self.abort = ""
        self.kinds: list[str] = []
        self.in_step = False
        self._texts: dict[str, dict[str, Any]] = {}

    def add(self, data: bytes) -> None:
        """Read events, each of which is whole; nothing follows the last one."""
        for block in data.decode().split("\n\n")[:-1]:
            assert "done" not in self.kinds
            body = block.removeprefix("data: ")
            assert body != block
            assert "\n" not in body
            chunk = {"type": "done"} if body == "[DONE]" else json.loads(body)
            self.kinds.append(chunk["type"])
            self._take(chunk)

    def _take(self, chunk: dict[str, Any]) -> None:
        match chunk["type"]:
            case "start":
                assert len(self.kinds) == 1
                self.id = chunk.get("messageId")
            case "start-step":
                assert not self.in_step
                self.in_step = True
                self.parts.append({"type": "step-start"})
            case "text-start":
                assert self.in_step
                self._texts[chunk["id"]] = part = {"type": "text", "text": "", "state": "streaming"}
                self.parts.append(part)
            case "text-delta":
                assert chunk["delta"]
                self._texts[chunk["id"]]["text"] += chunk["delta"]
            case "text-end":
                self._texts.pop(chunk["id"])["state"] = "done"
            case "tool-input-available":
                assert self.in_step
                kind = f"tool-{chunk['toolName']}"
                self.parts.append({"type": kind, "toolCallId": chunk["toolCallId"], "input": chunk["input"]})
            case "finish-step":
                assert not self._texts, "what begins also ends"
                self.in_step = False
            case "finish":
                self.finish = chunk["finishReason"]
            case "error":
                self.error = chunk["errorText"]
            case "abort":
                self.abort = chunk["reason"]
            case kind:
                assert kind == "done"

    @property
    def text(self) -> str:
        return "".join(part["text"] for part in self.parts if part["type"] == "text")


def streamed(fold: ChatFold, shown: list[str], answer: StoredAnswer) -> list[bytes]:
    """What is written for a turn that shows these texts, one in place of the other, and then ends."""
    buffer, writes = StreamBuffer(), [fold.encode_first()]
    writes += [fold.encode_text(more) for text in shown if (more := buffer.update(text))]
    if answer.failed:
        return [*writes, fold.encode_error(turn_error(answer.failed), over=True)]
    if more := buffer.finish(answer.text, answer.text):
        writes.append(fold.encode_text(more))
    return [*writes, fold.encode_last(answer)]


def read(writes: list[bytes]) -> Reader:
    reader = Reader()
    for one in writes:
        reader.add(one)
    return reader


@given(st.lists(TEXTS, max_size=8), TEXTS, ENDS, st.integers(0, 20))
def test_a_stream_is_valid_wherever_it_is_cut(shown: list[str], text: str, fields: dict[str, Any], cut: int) -> None:
    """Each write is whole events; all that begins also ends, in one step, and the text is all that was shown."""
    answer = StoredAnswer(text=text, **fields)
    writes = streamed(ChatFold("m"), shown, answer)
    prefix = read(writes[:cut])
    assert prefix.kinds == read(writes).kinds[: len(prefix.kinds)]
    whole = read(writes)
    assert whole.id == "m"
    assert whole.kinds[:2] == ["start", "start-step"]
    assert whole.kinds[-1] == "done"
    assert not whole.in_step
    assert whole.text.rstrip().endswith(text.strip().rpartition("\n\n")[2])
    assert whole.text.startswith(prefix.text)
    assert (whole.finish or "abort") == {"tool_calls": "tool-calls"}.get(
        answer.finish, "abort" if answer.stopped else answer.finish
    )
    calls = [part["toolCallId"] for part in whole.parts if "toolCallId" in part]
    assert calls == [call.id for call in answer.calls]


@given(st.lists(TEXTS, max_size=8))
def test_a_failed_turn_ends_what_was_begun(shown: list[str]) -> None:
    """The error is a sentence for people."""
    reader = read(streamed(ChatFold("m"), shown, StoredAnswer(failed=FAILED)))
    assert reader.kinds[-3:] == ["finish-step", "error", "done"]
    assert reader.error == "The agent gave up."


def test_a_text_that_grows_comes_as_it_is() -> None:
    assert read(streamed(ChatFold("m"), ["a", "a b"], StoredAnswer(text="a b c"))).text == "a b c"


def test_a_text_that_is_begun_again_follows_as_a_paragraph() -> None:
    """What was shown cannot be taken back in versions 5 and 6."""
    assert read(streamed(ChatFold("m"), ["Once upon"], StoredAnswer(text="Twice"))).text == "Once upon\n\nTwice"


def test_an_answer_that_goes_on_keeps_the_id_of_the_client() -> None:
    """Under another id the client would show its calls twice."""
    assert read([ChatFold(None).encode_first()]).id is None


def test_arguments_that_are_no_json_come_as_they_are() -> None:
    [_, call] = read(streamed(ChatFold("m"), [], StoredAnswer(calls=CALLS, finish="tool_calls"))).parts[1:]
    assert call == {"type": "tool-beep", "toolCallId": "c2", "input": "{'a"}
    none = StoredAnswer(calls=(ToolCall("c", "beep", ""),), finish="tool_calls")
    assert read(streamed(ChatFold("m"), [], none)).parts[1]["input"] == {}


@pytest.mark.parametrize(
    ("error", "over", "kind", "words"),
    [
        (turn_error(DROPPED.failed or FAILED), True, "abort", "The message was taken out of its session"),
        (draining_error(), False, "error", "This gateway is going away; ask again."),
    ],
)
def test_what_ends_a_stream_early(error: ApiError, over: bool, kind: str, words: str) -> None:
    """A message that was taken back is no error; a gateway that leaves says so: a stream that just ends is done."""
    reader = read([ChatFold("m").encode_first(), ChatFold("m").encode_error(error, over=over)])
    assert reader.kinds[-2] == kind
    assert (reader.error or reader.abort).startswith(words)


@given(TEXTS, ENDS)
def test_a_whole_answer_is_the_same_stream(text: str, fields: dict[str, Any]) -> None:
    answer = StoredAnswer(text=text, **fields)
    whole, pieces = read([ChatFold("m").encode_answer(answer)]), read(streamed(ChatFold("m"), [], answer))
    assert (whole.parts, whole.finish, whole.abort) == (pieces.parts, pieces.finish, pieces.abort)


def recorded() -> bytes:
    """Every kind of chunk, in the bytes that pages get."""
    streams = [
        streamed(ChatFold("resp_1"), ["Hel", "Hello"], StoredAnswer(text="Hello, \u201cKiel\u201d.")),
        streamed(
            ChatFold("resp_2"), ["Let me see."], StoredAnswer(text="Let me see.", calls=CALLS, finish="tool_calls")
        ),
        streamed(ChatFold(None), ["Once upon"], StoredAnswer(text="Twice", finish="length")),
        streamed(ChatFold("resp_3"), ["Half"], StoredAnswer(text="Half", stopped=True)),
        streamed(ChatFold("resp_4"), ["Half"], StoredAnswer(failed=FAILED)),
    ]
    return b"".join(b"".join(one) for one in streams)


def test_the_bytes_are_those_of_the_recording() -> None:
    """A change of them is a change for every page: then write `recorded()` into golden.txt."""
    assert recorded() == GOLDEN.read_bytes()
    assert recorded().count(DONE) == 5
