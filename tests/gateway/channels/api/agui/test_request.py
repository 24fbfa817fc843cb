"""What is read of a run, and what is refused."""

from __future__ import annotations

import contextlib
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.web.api.agui.request import (
    CONTEXT_LIMIT_BYTES,
    IGNORED_LIMIT_BYTES,
    AguiRequest,
    join_messages,
    message_id,
    parse_run,
)
from gateway.channels.web.api.client_tools import OUTPUT_LIMIT_BYTES
from gateway.channels.web.api.errors import ApiError
from shared.messages.inbound import TEXT_LIMIT_BYTES, ClientTool, TurnOptions
from tests.gateway.channels.api.agui.runs import TOOL, assistant, body_of, result, run, user

PICTURE = b64encode(b"GIF89a").decode()


def parsed(*messages: Any, **fields: Any) -> AguiRequest:
    return parse_run(body_of(run(*messages, **fields)))


def test_the_newest_message_is_asked_in_the_session_of_the_thread() -> None:
    """The rest of the conversation is there. Fields that clients add are left alone."""
    asked = parsed(user("one", "u1"), assistant("1"), user("two", "u2"), parentRunId="r0", protocolVersion="1.0")
    assert (asked.name, asked.prompt.text, asked.stream, asked.ignored) == ("a", "two", True, ())
    assert (asked.earlier, asked.options) == ((), None)


def test_functions_are_offered() -> None:
    """Whatever type a client gives them."""
    asked = parsed(user("hello"), tools=[TOOL | {"type": "frontend"}])
    assert asked.options == TurnOptions(tools=(ClientTool("get_weather", TOOL["description"], '{"type":"object"}'),))


def test_results_at_the_end_are_for_the_turn_that_waits() -> None:
    """An error is part of one; a part that is no text is named."""
    parts = [{"type": "text", "text": "see"}, {"type": "image", "source": {}}]
    calls = assistant(None, "a1", ("c1", "{}"), ("c2", "{}"))
    asked = parsed(user("hi"), calls, result("c1", error="late"), result("c2", id="t2") | {"content": parts})
    assert asked.prompt.outputs == (("c1", "rain\nerror: late"), ("c2", "see\n[image]"))
    assert asked.prompt.text == ""


def test_what_is_asked_has_one_name_whichever_run_brings_it() -> None:
    """A message is known by its id, results by their calls. The run's id is the key of a message."""
    first, again = parsed(user("hi")), parsed(user("hi"), assistant("hel", "msg_x"), run="r2")
    assert first.ticket == again.ticket
    assert first.hash == again.hash
    assert first.key != again.key
    assert first.key == parsed(user("hi"), state={"a": 1}, tools=[TOOL]).key
    assert len({parsed(user("hi"), thread="b").ticket, parsed(user("hi", "u2")).ticket, first.ticket}) == 3
    assert parsed(user("ho")).hash != first.hash
    one = parsed(user("hi"), assistant(None, "a1", ("c1", "{}")), result("c1"))
    other = parsed(user("hi"), assistant(None, "a1", ("c1", "{}")), result("c1"), run="r2")
    assert (one.ticket, one.key, one.hash) == (other.ticket, other.key, other.hash)


def test_what_the_client_has_of_the_answer_is_read() -> None:
    ticket = parsed(user("hi")).ticket
    asked = parsed(user("hi"), assistant("hel", message_id(ticket), ("c1", '{"a"')))
    assert asked.ticket == ticket
    assert (asked.had, asked.had_calls) == ({message_id(ticket): "hel"}, {"c1": '{"a"'})


def test_earlier_messages_without_an_answer_are_joined_unless_they_are_known() -> None:
    """A command is one message alone: neither is it joined, nor does it join."""
    asked = parsed(user("old"), assistant("1"), user("a", "u2"), user("b", "u3"), user("/stop", "u4"), user("c", "u5"))
    assert [one.ticket for one in asked.earlier] == [
        parsed(user("", id) | {"content": id}).ticket for id in ("u2", "u3", "u4")
    ]
    assert join_messages(asked, [True, False, False]).prompt.text == "b\n\nc"
    assert join_messages(asked, [True, True, True]).prompt.text == "c"
    command = parsed(user("a"), user("/stop", "u2"))
    assert join_messages(command, [False]).prompt.text == "/stop"
    long = parsed(user("a" * TEXT_LIMIT_BYTES), user("b", "u2"))
    with pytest.raises(ApiError) as refused:
        join_messages(long, [False])
    assert (refused.value.status, refused.value.param) == (413, "messages")


def test_context_is_a_text_of_the_user() -> None:
    """After the message; a command stays one."""
    context = [{"description": "The page", "value": "prices"}, {"description": "Time", "value": "noon"}]
    text = parsed(user("why?"), context=context).prompt.text
    assert text == "why?\n\n[context of the application]\nThe page: prices\nTime: noon"
    assert parsed(user("/stop"), context=context).prompt.text == "/stop"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "data", "value": PICTURE, "mimeType": "image/gif"}},
        {"type": "binary", "mimeType": "image/gif", "data": PICTURE},
    ],
)
def test_files_come_with_their_data(part: Any) -> None:
    """In the form of today and in the older one; with a name if there is one."""
    asked = parsed(
        user("") | {"content": [{"type": "text", "text": "what?"}, part, part | {"metadata": {"filename": "a.gif"}}]}
    )
    assert asked.prompt.text == "what?"
    assert [(file.name, file.data) for file in asked.prompt.files] == [(part["type"], b"GIF89a"), ("a.gif", b"GIF89a")]
    assert asked.prompt.files[0].param == "messages[0].content[1]"


def test_what_has_no_effect_is_named() -> None:
    assert parsed(user("hi"), state={"a": 1}, forwardedProps=[1]).ignored == ("state", "forwardedProps")
    assert parsed(user("hi"), state=None, forwardedProps={}).ignored == ()


def content(*parts: Any) -> dict[str, Any]:
    return run(user("") | {"content": list(parts)})


URL = {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}}
LONG = "x" * (IGNORED_LIMIT_BYTES + 1)


@pytest.mark.parametrize(
    ("asked", "status", "param"),
    [
        ([], 400, ""),
        ({"threadId": "a", "runId": "r"}, 400, ""),
        (run(user("hi"), thread="a/b"), 400, "threadId"),
        (run(user("hi"), thread="~a"), 400, "threadId"),
        (run(user("hi"), thread=""), 400, "threadId"),
        (run(user("hi")) | {"threadId": 7}, 400, "threadId"),
        (run(user("hi"), run=""), 400, "runId"),
        (run(user("hi"), run="r" * 256), 400, "runId"),
        (run(user("hi"), run="r\n"), 400, "runId"),
        (run(), 400, "messages"),
        (run(assistant("hi")), 400, "messages"),
        (run({"role": "user", "content": "hi"}), 400, "messages[0]"),
        (run({"id": "u", "role": "user"}), 400, "messages[0].content"),
        (run(user(" ")), 400, "messages[0].content"),
        (content("hi"), 400, "messages[0].content[0]"),
        (content({"type": "text"}), 400, "messages[0].content[0]"),
        (content(URL), 400, "messages[0].content[0]"),
        (content({"type": "image", "source": {"type": "data", "value": "?"}}), 400, "messages[0].content[0]"),
        (run(user("hi"), tools=[{"name": "a b"}]), 400, "tools[0].name"),
        (run(user("hi"), tools=[TOOL, TOOL]), 400, "tools"),
        (run(user("hi"), tools=["f"]), 400, "tools[0]"),
        (run(user("hi"), context=[{"value": "x"}]), 400, "context[0]"),
        (run(user("hi"), context=[{"description": "x", "value": "x" * CONTEXT_LIMIT_BYTES}]), 413, "context"),
        (run(user("hi"), state=LONG), 413, "state"),
        (run(user("hi"), forwardedProps=LONG), 413, "forwardedProps"),
        (run(user("hi"), resume=[{"interruptId": "i", "status": "resolved"}]), 400, "resume"),
        (run(result("c1") | {"toolCallId": None}), 400, "messages[0].toolCallId"),
        (run(result("c1"), result("c1", id="t2")), 400, "messages"),
        (run(result("c1", "x" * (OUTPUT_LIMIT_BYTES + 1))), 413, "messages"),
        (run(result("c1") | {"content": {}}), 400, "messages[0].content"),
    ],
)
def test_what_is_refused_is_named(asked: Any, status: int, param: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_run(body_of(asked))
    assert (refused.value.status, refused.value.param) == (status, param)


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b'{"threadId": NaN}', b'{"state":' + DEEP, b'{"messages":[{"content":' + DEEP]
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parse_run(body)
    assert (refused.value.status, refused.value.code) == (400, "invalid_json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
ROLES = st.sampled_from(["user", "assistant", "tool", "system", "activity", "reasoning"])
MESSAGES = st.fixed_dictionaries(
    {"id": st.text(max_size=3), "role": ROLES},
    optional={"content": JSON, "toolCallId": JSON, "error": JSON, "toolCalls": JSON},
)


@given(st.lists(MESSAGES, max_size=4), st.dictionaries(st.sampled_from(["tools", "context", "resume", "state"]), JSON))
def test_whatever_comes_is_read_or_refused(messages: list[Any], fields: dict[str, Any]) -> None:
    """Never an error of ours."""
    with contextlib.suppress(ApiError):
        parse_run(body_of(run(*messages, **fields)))
