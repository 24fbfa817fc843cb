from __future__ import annotations

import json

import pytest

from gateway.channels.web.socket.frames import decode_frame, decode_ids, encode_frame
from shared.errors import BadInput
from shared.messages.web import ErrorFrame, ReadHistoryFrame, ResumedFrame, ResumeFrame, SendFrame

BAD = {
    "not json": ("{", "bad_frame"),
    "empty": ("", "bad_frame"),
    "a list": ("[]", "bad_frame"),
    "a number": ("7", "bad_frame"),
    "null": ("null", "bad_frame"),
    "no type": ('{"chat":"a"}', "bad_frame"),
    "a type of another kind": ('{"type":7}', "bad_frame"),
    "an unknown type": ('{"type":"welcome"}', "bad_frame"),
    "a missing field": ('{"type":"message","id":"m","chat":"a"}', "bad_frame"),
    "text of a wrong type": ('{"type":"message","id":"m","chat":"a","text":{}}', "bad_frame"),
    "an id of a wrong type": ('{"type":"message","id":7,"chat":"a","text":"x"}', "bad_frame"),
    "after below zero": ('{"type":"resume","chat":"a","after":-1}', "bad_frame"),
    "after as text": ('{"type":"resume","chat":"a","after":"1"}', "bad_frame"),
    "after as a fraction": ('{"type":"resume","chat":"a","after":1.5}', "bad_frame"),
    "after too large": ('{"type":"resume","chat":"a","after":18446744073709551616}', "bad_frame"),
    "yes as text": ('{"type":"approve","chat":"a","call":"c","yes":"no"}', "bad_frame"),
    "half a surrogate": ('{"type":"message","id":"m","chat":"a","text":"\\ud800"}', "bad_frame"),
    "ten thousand deep": ('{"type":"chats","x":' + "[" * 10_000 + "]" * 10_000 + "}", "bad_frame"),
    "open and ten thousand deep": ('{"type":"chats","x":' + "[" * 10_000, "bad_frame"),
    "an id too long": ('{"type":"message","id":"' + "m" * 65 + '","chat":"a","text":"x"}', "bad_id"),
    "an empty id": ('{"type":"message","id":"","chat":"a","text":"x"}', "bad_id"),
    "an id with a slash": ('{"type":"withdraw","id":"a/b"}', "bad_id"),
    "an id with a newline": ('{"type":"message","id":"a\\n","chat":"a","text":"x"}', "bad_id"),
    "a chat with a slash": ('{"type":"resume","chat":"ann/a"}', "bad_chat"),
    "a chat with dots": ('{"type":"resume","chat":"../a"}', "bad_chat"),
    "an empty chat": ('{"type":"stop","chat":""}', "bad_chat"),
    "a chat too long": ('{"type":"stop","chat":"' + "c" * 65 + '"}', "bad_chat"),
    "a chat with a newline": ('{"type":"stop","chat":"a\\n"}', "bad_chat"),
    "a chat with a percent": ('{"type":"stop","chat":"%2F"}', "bad_chat"),
    "no text": ('{"type":"message","id":"m","chat":"a","text":""}', "empty"),
    "blank text": ('{"type":"message","id":"m","chat":"a","text":" \\n\\t "}', "empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_a_code(name: str) -> None:
    """Whatever comes, it is a typed refusal and nothing else."""
    raw, code = BAD[name]
    with pytest.raises(BadInput) as refused:
        decode_frame(raw)
    assert refused.value.code == code
    assert refused.value.message


def test_good_frames_are_read_and_unknown_fields_are_left_alone() -> None:
    """A newer client may say more."""
    assert decode_frame('{"type":"message","id":"a-1_B","chat":"c","text":"hi","mood":1}') == SendFrame(
        "a-1_B", "c", "hi"
    )
    assert decode_frame('{"type":"resume","chat":"c"}') == ResumeFrame("c", 0)
    assert decode_frame('{"type":"history","chat":"c","before":null}') == ReadHistoryFrame("c", None)


def test_a_refusal_names_the_message_it_speaks_of_when_that_can_be_read() -> None:
    """A client must be able to tell which of its messages was refused."""
    assert decode_ids('{"type":"message","id":"m1","chat":"a","text":7}') == ("m1", "a")
    assert decode_ids('{"type":"message","id":7,"chat":"a b"}') == (None, None)
    assert decode_ids("{") == (None, None)
    assert decode_ids("[" * 100_000) == (None, None)


def test_frames_out_leave_out_what_says_nothing_but_keep_a_running_of_null() -> None:
    """`running: null` means that nothing runs; a missing one would mean nothing."""
    assert json.loads(encode_frame(ResumedFrame("a", 3, None))) == {
        "type": "resumed",
        "chat": "a",
        "seq": 3,
        "running": None,
    }
    assert json.loads(encode_frame(ErrorFrame("empty", "no text"))) == {
        "type": "error",
        "code": "empty",
        "message": "no text",
    }
