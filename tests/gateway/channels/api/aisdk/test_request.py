"""Reading a request of the AI SDK."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.web.api.aisdk.request import parse_chat_request
from gateway.channels.web.api.client_tools import OUTPUT_LIMIT_BYTES
from gateway.channels.web.api.errors import ApiError
from gateway.channels.web.api.request import CompletionRequest
from shared.messages.inbound import ClientTool
from shared.settings import ApiSettings

HI = "data:text/plain;base64,aGk="


def message(*parts: Any, id: Any = "m1", role: str = "user") -> dict[str, Any]:
    return {"id": id, "role": role, "parts": list(parts)}


def text(words: str = "hello") -> dict[str, Any]:
    return {"type": "text", "text": words}


def file(**fields: Any) -> dict[str, Any]:
    return {"type": "file", "mediaType": "text/plain", "url": HI} | fields


def called(state: str, id: Any = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool-f", "toolCallId": id, "state": state, "input": {}} | fields


def answered(*parts: Any) -> dict[str, Any]:
    return message({"type": "step-start"}, *parts, role="assistant", id="a1")


def ask(*messages: Any, strict: bool = False, **fields: Any) -> CompletionRequest:
    body = {"id": "chat", "messages": list(messages), "trigger": "submit-message"} | fields
    models = {"shoal": "", "fast": "fast"}
    return parse_chat_request(json.dumps(body).encode(), None, models, ApiSettings(strict=strict))


def refusal(*messages: Any, **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as refused:
        ask(*messages, **fields)
    return refused.value


def test_the_last_message_is_read() -> None:
    """The session has the others; parts for the page alone are left out."""
    parts = (text("a"), {"type": "data-mood", "data": 1}, text("b"), {"type": "reasoning", "text": "hm"})
    asked = ask({"nonsense": True}, message(*parts), messageId=None)
    assert (asked.name, asked.prompt.text, asked.prompt.history) == ("chat", "a\nb", ())
    assert (asked.stream, asked.stored, asked.preset, asked.ignored) == (True, True, "", ())
    assert json.loads(asked.shown) == {"model": "shoal", "conversation": {"id": "conv_chat"}}
    [item] = json.loads(asked.input)
    assert (item["role"], item["content"]) == ("user", [{"type": "input_text", "text": "a\nb"}])


def test_files_come_as_data() -> None:
    asked = ask(message(file(filename="a.txt"), file()))
    assert [(one.name, one.data) for one in asked.prompt.files] == [("a.txt", b"hi"), ("file-2", b"hi")]
    [item] = json.loads(asked.input)
    assert [part["text"] for part in item["content"]] == ["[file: a.txt]", "[file: file-2]"]


def test_a_model_is_a_preset_and_the_rest_is_named() -> None:
    asked = ask(message(text()), model="fast", mood="good")
    assert (asked.model, asked.preset, asked.ignored) == ("fast", "fast", ("mood",))
    assert refusal(message(text()), mood="good", strict=True).code == "unknown_parameter"
    assert refusal(message(text()), model="gpt").status == 404


def test_functions_are_a_list_or_an_object() -> None:
    """Of the Responses API, and of the AI SDK; a type that is no function is ignored."""
    schema = {"type": "object"}
    tool = ClientTool("f", "F.", '{"type":"object"}')
    for tools in (
        [{"type": "function", "name": "f", "description": "F.", "parameters": schema}],
        [{"name": "f", "description": "F.", "inputSchema": schema}],
        {"f": {"description": "F.", "inputSchema": schema}},
        {"f": {"description": "F.", "parameters": schema}, "g": {"type": "provider"}},
    ):
        asked = ask(message(text()), tools=tools)
        assert asked.options is not None
        assert asked.options.tools == (tool,)
        assert asked.ignored == (("tools",) if "g" in tools else ())


def test_results_of_the_last_step_are_for_the_turn_that_waits() -> None:
    """A text as it is, anything else as JSON, an error in words; not those of earlier steps, nor of the agent."""
    asked = ask(
        message(text()),
        answered(
            called("output-available", "c0", output="old"),
            {"type": "step-start"},
            text("Let me look."),
            called("output-available", output="rain"),
            called("output-available", "c2", type="dynamic-tool", output={"mm": 3}),
            called("output-error", "c3", errorText="no network"),
            called("input-available", "c4", providerExecuted=True),
            called("output-available", "c5", output=None),
        ),
    )
    assert asked.prompt.text == ""
    outputs = {"c1": "rain", "c2": '{"mm":3}', "c3": "Error: no network", "c5": "null"}
    assert dict(asked.prompt.outputs) == outputs
    assert [item["call_id"] for item in json.loads(asked.input)] == list(outputs)


@pytest.mark.parametrize(
    ("messages", "status", "words"),
    [
        ((), 400, "the last message must be one of the user"),
        (({},), 400, "the last message must be one of the user"),
        ((message(text(), role="system"),), 400, "the last message must be one of the user"),
        ((message(),), 400, "the message has no text"),
        ((message(text("  ")),), 400, "the message has no text"),
        ((message(text(1)),), 400, "parts[0].text of the last message must be a text"),  # type: ignore[arg-type]
        ((message("x"),), 400, "parts[0] of the last message must be an object"),
        (({"role": "user", "content": "x"},), 400, "the last message must have a list of 'parts'"),
        ((message(file(url="https://example.com/a")),), 400, "parts[0].url of the last message must be a data: URL"),
        ((message(file(url=None)),), 400, "must be a data: URL"),
        ((message(file(url="data:text/plain;base64,a")),), 400, "is not base64"),
        ((answered(),), 400, "or have the results of functions"),
        ((answered(text()),), 400, "or have the results of functions"),
        ((answered(called("input-available")),), 400, "no tool output found for function call c1"),
        ((answered(called("output-available", output=1, preliminary=True)),), 400, "no tool output found"),
        ((answered(called("output-available"), called("input-streaming", "c2")),), 400, "function call c2"),
        ((answered(called("output-available", 7)),), 400, "must be the id of a call"),
        ((answered(called("output-available"), called("output-available")),), 400, "two results of one call"),
        ((answered(called("approval-responded")),), 400, "nobody can be asked for a yes here"),
        ((answered(called("output-available", output="x" * (OUTPUT_LIMIT_BYTES + 1))),), 413, "more than 64 kB"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(messages: tuple[Any, ...], status: int, words: str) -> None:
    refused = refusal(*messages)
    assert (refused.status, words in refused.message) == (status, True), refused.message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id": "a/b"}, "id names the session"),
        ({"id": ""}, "id names the session"),
        ({"id": 1}, "'id' has a wrong type"),
        ({"messages": "x"}, "'messages' has a wrong type"),
        ({"messages": ["x"]}, "'messages' has a wrong type"),
        ({"tools": "x"}, "'tools' has a wrong type"),
        ({"tools": {"f": 1}}, "'tools' has a wrong type"),
        ({"tools": {"f f": {}}}, "must be 1 to 64 letters"),
        ({"trigger": "regenerate-message"}, "an answer cannot be made again here"),
    ],
)
def test_fields_with_wrong_values_are_named(fields: dict[str, Any], words: str) -> None:
    refused = refusal(message(text()), **fields)
    assert (refused.status, words in refused.message) == (400, True), refused.message


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"messages":[]}', b'{"id":"a"}'])
def test_a_body_must_be_an_object_with_its_fields(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parse_chat_request(body, None, {"shoal": ""})
    assert refused.value.status == 400


def test_what_is_sent_once_has_one_key() -> None:
    """A message by its id in its chat, results by their calls; what it says is in the hash, other messages are not."""
    one = ask(message(text("a")))
    assert one.key == ask(message(text("b")), message(text("a")), tools=[], mood=1).key != ""
    assert one.hash == ask(message(text("b")), message(text("a")), tools=[], mood=1).hash
    assert one.key == ask(message(text("b"))).key
    assert one.hash != ask(message(text("b"))).hash
    assert one.hash != ask(message(text("a"), file())).hash
    others = [ask(message(text("a"), id="m2")), ask(message(text("a")), id="chat m1"), ask(message(text("a")), id="b")]
    assert len({one.key, *(other.key for other in others)}) == 4
    assert [ask(message(text("a"), id=id)).key for id in (None, "", 7)] == ["", "", ""]
    result = ask(answered(called("output-available", output="x")))
    assert result.key == ask(message(text()), answered(called("output-available", output="y"))).key
    assert result.key not in ("", ask(message(text("x"), id="c1")).key)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "text", "file", "tool-f", "step-start", HI]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "url", "state", "toolCallId", "filename"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(["user", "assistant", "tool", None]), JSON, JSON, JSON)
def test_any_json_is_read_or_refused(role: Any, parts: Any, tools: Any, id: Any) -> None:
    """Never anything but ApiError."""
    body = {"id": "chat", "messages": [{"role": role, "parts": parts, "id": id}], "tools": tools}
    try:
        asked = parse_chat_request(msgspec.json.encode(body), None, {"shoal": ""})
    except ApiError:
        return
    assert asked.prompt.text or asked.prompt.files or asked.prompt.outputs
