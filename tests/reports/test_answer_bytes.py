"""The bytes of an answer: frames of events, marks of their end, characters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.reports.one_turn import JSON, chunk, hear, recorded, recorded_input, sse

TEXT: Final = "hello world"
FIRST: Final = json.dumps(chunk("hello "))
SECOND: Final = json.dumps(chunk("world"))
LAST: Final = json.dumps(chunk("", "stop"))
ALL: Final = (FIRST, SECOND, LAST)

Inputs = dict[str, bytes]


def inputs(table: Inputs) -> Callable[[Any], Any]:
    """A parameter for each input."""
    return pytest.mark.parametrize("body", table.values(), ids=table.keys())


async def expect_text(body: bytes, via: str, right: str = TEXT, **how: Any) -> None:
    """The text is the answer, people saw it, and the model was asked once."""
    turn = await hear(body, client=via, **how)
    assert (turn.text, turn.shown, turn.asked, turn.fault) == (right, right, 1, "")


def lines(*events: str, prefix: str = "data: ", end: str = "\n\n", done: str = "data: [DONE]\n\n") -> bytes:
    """The bytes of a stream, event by event."""
    return ("".join(f"{prefix}{event}{end}" for event in events) + done).encode()


ENDS: Final[Inputs] = {
    "recorded: a blank behind": recorded(recorded_input("p-done-blank")["stream"]),
    "blanks around": lines(*ALL, done="data:   [DONE]  \n\n"),
    "a tab behind": lines(*ALL, done="data: [DONE]\t\n\n"),
    "small letters": lines(*ALL, done="data: [done]\n\n"),
    "a capital": lines(*ALL, done="data: [Done]\n\n"),
    "blanks within": lines(*ALL, done="data: [ DONE ]\n\n"),
    "without brackets": lines(*ALL, done="data: DONE\n\n"),
    "quoted": lines(*ALL, done='data: "[DONE]"\n\n'),
    "without data": lines(*ALL, done="[DONE]\n\n"),
    "an event called done": lines(*ALL, done="event: done\ndata: [DONE]\n\n"),
    "an event called done, with an object": lines(*ALL, done="event: done\ndata: {}\n\n"),
    "twice": lines(*ALL, done="data: [DONE]\n\ndata: [DONE]\n\n"),
    "nothing behind it, not even a line end": lines(*ALL, done="data: [DONE]"),
    "no empty line behind it": lines(*ALL, done="data: [DONE]\n"),
    "in the line of the last event": lines(FIRST, SECOND, f"{LAST}[DONE]", done=""),
    "in the line of the last event, with data": lines(FIRST, SECOND, f"{LAST}data: [DONE]", done=""),
    "missing": lines(*ALL, done=""),
    "missing, with an empty event": lines(*ALL, done="data: \n\n"),
}


@inputs(ENDS)
async def test_the_mark_of_the_end_in_any_form_ends_an_answer(body: bytes, via: str) -> None:
    """Blanks, case, quotes, places."""
    await expect_text(body, via)


async def test_the_mark_within_a_sentence_is_text(via: str) -> None:
    """As it is."""
    await expect_text(recorded(recorded_input("ok-calls")["cases"][6]["stream"]), via, "Keep [DONE] in this sentence.")


FRAMES: Final[Inputs] = {
    "no blank behind data": lines(*ALL, prefix="data:"),
    "two blanks behind data": lines(*ALL, prefix="data:  "),
    "a blank before data": lines(*ALL, prefix=" data: "),
    "a blank before the colon": lines(*ALL, prefix="data : "),
    "capitals": lines(*ALL, prefix="DATA: "),
    "data twice": lines(*ALL, prefix="data: data: "),
    "no data at all": lines(*ALL, prefix=""),
    "no data at all, one line each": lines(*ALL, prefix="", end="\n", done=""),
    "empty data between": lines(FIRST, "", SECOND, "", LAST),
    "empty data without a colon": lines(FIRST, done="data\n\n") + lines(SECOND, LAST),
    "a mark of UTF-8 at the start": b"\xef\xbb\xbf" + lines(*ALL),
    "a mark of UTF-8 in each event": lines(*("\ufeff" + event for event in ALL)),
    "CRLF": lines(*ALL, end="\r\n\r\n"),
    "lone CR": lines(*ALL, end="\r\r", done="data: [DONE]\r\r"),
    "mixed line ends": lines(FIRST, end="\r\n\n", done="")
    + lines(SECOND, end="\n\r\n", done="")
    + lines(LAST, end="\r\r"),
    "no empty lines": lines(*ALL, end="\n", done="data: [DONE]\n"),
    "no empty lines, CRLF": lines(*ALL, end="\r\n", done="data: [DONE]\r\n"),
    "three empty lines": lines(*ALL, end="\n\n\n\n"),
    "two in a line": lines(f"{FIRST}{SECOND}", LAST),
    "two in a line, with data": lines(f"{FIRST}data: {SECOND}", LAST),
    "two in a line, with a blank": lines(f"{FIRST} {SECOND}", LAST),
    "all in a line": lines(FIRST + SECOND + LAST),
    "a list of them": lines(f"[{FIRST},{SECOND}]", LAST),
    "each in a list": lines(*(f"[{event}]" for event in ALL)),
    "each encoded twice": lines(*map(json.dumps, ALL)),
    "over several lines": lines(*(json.dumps(json.loads(event), indent=1).replace("\n", "\ndata: ") for event in ALL)),
    "comments between": lines(FIRST, end="\n\n: keep-alive\n\n", done="") + lines(SECOND, LAST),
    "keep-alives as data": lines(FIRST, "ping", SECOND, "[]", LAST),
    "null as data": lines(FIRST, "null", SECOND, LAST),
    "names, ids and times": lines(*ALL, prefix="event: message\nid: 7\nretry: 10\ndata: "),
    "fields that nobody knows": lines(*ALL, prefix="foo: bar\ndata: "),
    "behind two empty lines": b"\n\n" + lines(*ALL),
    "without a line end at the end": lines(*ALL, done="").rstrip(),
}


@inputs(FRAMES)
async def test_events_in_any_frame_are_read(body: bytes, via: str) -> None:
    """Line ends, empty lines, prefixes, several in a line."""
    await expect_text(body, via)


@pytest.mark.parametrize("name", ["no empty lines", "lone CR", "no data at all, one line each"])
async def test_text_in_an_unusual_frame_is_shown_as_it_comes(name: str, via: str) -> None:
    """Not only when the stream ends."""
    turn = await hear(FRAMES[name], client=via)
    assert turn.ever_shown == TEXT
    assert turn.shown == TEXT


WHOLE: Final[Inputs] = {
    "a stream of events": lines(*ALL),
    "two blanks and a line end around": b"  \n" + sse({"choices": [{"message": {"content": TEXT}}]}, end=b"")[6:],
    "a mark of UTF-8": b"\xef\xbb\xbf" + sse({"choices": [{"message": {"content": TEXT}}]}, end=b"")[6:],
    "over several lines": json.dumps({"choices": [{"message": {"content": TEXT}}]}, indent=2).encode(),
    "encoded twice": json.dumps(json.dumps({"choices": [{"message": {"content": TEXT}}]})).encode(),
}


@inputs(WHOLE)
async def test_a_body_that_is_called_json_is_read_whatever_it_is(body: bytes, via: str) -> None:
    """To a request for a stream."""
    await expect_text(body, via, content_type=JSON)


@pytest.mark.parametrize("indent", [None, 2])
async def test_a_whole_answer_that_is_called_a_stream_is_read(indent: int | None, via: str) -> None:
    """In one line or in many, without data."""
    body = json.dumps({"choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}]}, indent=indent)
    await expect_text(body.encode(), via)


def contents(*texts: bytes) -> bytes:
    """Events whose contents are these bytes, as they stand in JSON."""
    return b"".join(b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % one for one in texts)


def raw(*texts: bytes) -> bytes:
    """A stream of such events."""
    return contents(*texts) + sse(chunk("", "stop"))


GRIN: Final = "\U0001f600"
CHARACTERS: Final[dict[str, tuple[bytes, str]]] = {
    "halves of a pair in two events": (raw(b"hi \\ud83d", b"\\ude00 you"), f"hi {GRIN} you"),
    "halves with an event between that has none": (
        contents(b"hi \\ud83d") + b'data: {"choices":[{"index":0,"delta":{}}]}\n\n' + raw(b"\\ude00"),
        f"hi {GRIN}",
    ),
    "a half alone": (raw(b"hi \\ud83d you"), "hi \ufffd you"),
    "a half alone at the end of an event": (raw(b"hi \\ud83d", b" you"), "hi \ufffd you"),
    "a second half alone": (raw(b"hi \\ude00 you"), "hi \ufffd you"),
    "a pair": (raw(b"hi \\ud83d\\ude00"), f"hi {GRIN}"),
    "one byte that is no UTF-8": (raw(b"hi \xff you"), "hi \ufffd you"),
    "bytes of a character in two events": (raw(b"hi \xf0\x9f", b"\x98\x80 you"), f"hi {GRIN} you"),
    "bytes of an umlaut in two events": (raw(b"Gr\xc3", b"\xb6\xc3\x9fe"), "Größe"),
    "a line break within a text": (raw(b"one\ttwo"), "one\ttwo"),
    "NaN beside the text": (
        b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"logprobs":NaN}],"x":-Infinity}\n\n' + raw(b" you"),
        "hi you",
    ),
    "a number too big for any type": (
        b'data: {"created":1e999,"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n' + raw(b" you"),
        "hi you",
    ),
    "a null byte": (raw(b"hi\\u0000 you"), "hi\x00 you"),
    "a null byte between events": (raw(b"hi").replace(b"\n\n", b"\n\n\x00", 1), "hi"),
}


@pytest.mark.parametrize(("body", "right"), CHARACTERS.values(), ids=CHARACTERS.keys())
async def test_an_odd_byte_costs_at_most_its_character(body: bytes, right: str, via: str) -> None:
    """Halves are joined over events, the rest is shown as a replacement."""
    turn = await hear(body, client=via)
    assert (turn.text, turn.asked, turn.fault) == (right, 1, "")


UNREADABLE: Final[Inputs] = {
    "a page for people": b"<html><body>Bad gateway</body></html>\n",
    "words": b"data: the model is loading\n\n",
    "an event that breaks off": b'data: {"choices":[{"index":0,"delta":{"con\n\n',
    "numbers": b"data: 17\n\n",
    "choices of a wrong type": b'data: {"choices":"hello"}\n\n',
}


@inputs(UNREADABLE)
async def test_what_is_no_answer_is_a_bad_reply_and_not_a_missing_model(body: bytes, via: str) -> None:
    """It did answer."""
    assert (await hear(body, client=via)).fault == "bad_reply"


BEFORE: Final = {
    "test_the_mark_of_the_end_in_any_form_ends_an_answer": 7,
    "test_the_mark_within_a_sentence_is_text": 1,
    "test_events_in_any_frame_are_read": 10,
    "test_text_in_an_unusual_frame_is_shown_as_it_comes": 0,
    "test_a_body_that_is_called_json_is_read_whatever_it_is": 2,
    "test_a_whole_answer_that_is_called_a_stream_is_read": 0,
    "test_an_odd_byte_costs_at_most_its_character": 4,
    "test_what_is_no_answer_is_a_bad_reply_and_not_a_missing_model": 4,
}
"""How many inputs of a kind were right when it was first tried."""
