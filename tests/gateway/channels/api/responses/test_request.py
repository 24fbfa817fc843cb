"""Reading a request for a response."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses.response_create_params import (
    ResponseCreateParamsBase,
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)

from gateway.channels.web.api.errors import ApiError
from gateway.channels.web.api.request import CompletionRequest
from gateway.channels.web.api.responses.items import INPUT_LIMIT_BYTES
from gateway.channels.web.api.responses.parameters import FIXED, USED, WITHOUT_EFFECT
from gateway.channels.web.api.responses.request import INSTRUCTIONS_BYTES, parse_response_request
from shared.settings import ApiSettings

DOCS = Path(__file__).parents[5] / "docs" / "api.md"
HELLO: dict[str, Any] = {"model": "shoal", "input": "hello"}
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
PIXEL = "data:image/png;base64,aGk="


def ask(
    fields: dict[str, Any], header: str | None = None, *, strict: bool = False, system_texts: bool = False
) -> CompletionRequest:
    body = json.dumps(HELLO | fields).encode()
    return parse_response_request(body, header, {"shoal": ""}, ApiSettings(strict=strict, system_texts=system_texts))


def refusal(fields: dict[str, Any], *, strict: bool = False) -> ApiError:
    with pytest.raises(ApiError) as refused:
        ask(fields, strict=strict)
    return refused.value


def test_every_parameter_of_openais_client_is_known() -> None:
    """A newer client with another parameter fails here first; nothing is in two tables."""
    kinds = (ResponseCreateParamsBase, ResponseCreateParamsNonStreaming, ResponseCreateParamsStreaming)
    theirs = {name for kind in kinds for name in kind.__annotations__}
    assert theirs == {*USED, *WITHOUT_EFFECT, *FIXED}
    assert len(theirs) == len(USED) + len(WITHOUT_EFFECT) + len(FIXED)


def test_the_documented_parameters_are_those_of_the_code() -> None:
    """docs/api.md: each of them, and none beside them."""
    table = DOCS.read_text().partition("| parameter of a response |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    named = {word.partition(".")[0]: effect for names, effect in rows for word in re.findall(r"`([a-z_.]+)`", names)}
    assert set(named) == {*USED, *WITHOUT_EFFECT, *FIXED}
    assert {name for name, effect in named.items() if "no effect" in effect} == set(WITHOUT_EFFECT)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"background": True, "store": False}, "background", None),
        ({"background": "yes"}, "background", "invalid_type"),
        ({"tools": [FUNCTION, {"type": "web_search"}]}, "tools[1]", "unsupported_parameter"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0]", "unsupported_parameter"),
        ({"tools": [{"type": "code_interpreter"}]}, "tools[0]", "unsupported_parameter"),
        ({"tools": ["f"]}, "tools[0]", "unsupported_parameter"),
        ({"tools": 1}, "tools", "invalid_type"),
        ({"tool_choice": "required"}, "tool_choice", "unsupported_parameter"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "unsupported_parameter"),
        ({"include": ["message.output_text.logprobs"]}, "include", "unsupported_parameter"),
        ({"top_logprobs": 3}, "top_logprobs", "unsupported_parameter"),
        ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
        ({"input": 1}, "input", "invalid_type"),
        ({"input": ["x"]}, "input", "invalid_type"),
        ({"input": ""}, "input[0].content", None),
        ({"input": []}, "input", None),
        ({"input": [{"role": "x", "content": "a"}]}, "input[0].role", None),
        ({"input": [{"role": "user"}]}, "input[0].content", "invalid_type"),
        ({"input": [{"role": "user", "content": "a"}, {"type": "web_search_call"}]}, "input[1]", "unsupported_item"),
        ({"input": [{"type": "item_reference", "id": "msg_x"}]}, "input[0].id", "item_not_found"),
        (
            {"input": [{"type": "reasoning"}, {"role": "user", "content": [{"type": "input_audio"}]}]},
            "input[1].content[0]",
            None,
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x.example"}]}]},
            "input[0].content[0].image_url",
            None,
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x.example"}]}]},
            "input[0].content[0].file_url",
            None,
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0].file_id",
            None,
        ),
        ({"input": "x" * 65537}, "input", "too_big"),
        ({"input": [{"role": "user", "content": "x" * 600_000}, {"role": "user", "content": "a"}]}, "input", "too_big"),
        ({"conversation": {"name": "a"}}, "conversation", None),
        ({"conversation": "a/b"}, "conversation", "bad_session"),
        ({"conversation": "conv_"}, "conversation", "bad_session"),
        ({"conversation": "~-1"}, "conversation", "bad_session"),
        ({"conversation": "a", "previous_response_id": "resp_1"}, "previous_response_id", None),
        ({"store": False, "previous_response_id": "resp_1"}, "store", None),
        ({"text": {"format": {"type": "grammar"}}}, "text.format", None),
        ({"text": {"format": "json"}}, "text.format", None),
        ({"text": {"format": {"type": "json_schema", "schema": 1}}}, "text.format.schema", "invalid_type"),
        ({"max_output_tokens": 0}, "max_output_tokens", None),
        ({"temperature": 3}, "temperature", None),
        ({"metadata": {"a": 1}}, "metadata", "invalid_type"),
        ({"metadata": {"a": "x" * 5000}}, "metadata", "bad_metadata"),
        ({"model": "gpt-7"}, "model", "model_not_found"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(fields: dict[str, Any], param: str, code: str | None) -> None:
    """With its place in the request as it was sent."""
    error = refusal(fields)
    assert (error.param, error.code) == (param, code)
    assert "messages" not in error.message or param == "input"


@pytest.mark.parametrize("missing", ["model", "input"])
def test_what_is_missing_is_named(missing: str) -> None:
    body = json.dumps({key: value for key, value in HELLO.items() if key != missing}).encode()
    with pytest.raises(ApiError) as refused:
        parse_response_request(body, None, {"shoal": ""})
    assert (refused.value.param, refused.value.code) == (missing, "missing_required_parameter")


def test_other_tools_of_the_client_are_ignored_unless_the_api_is_strict() -> None:
    """As in chat completions, and so are unknown names; functions are offered."""
    fields = {"tools": [FUNCTION, {"type": "custom", "name": "c"}], "tool_choice": "auto", "top_p": 0.5, "top_k": 3}
    asked = ask(fields)
    assert asked.ignored == ("top_p", "top_k", "tools")
    assert asked.options is not None
    assert [tool.name for tool in asked.options.tools] == [FUNCTION["name"]]
    assert refusal({"tools": fields["tools"]}, strict=True).param == "tools"
    assert refusal({"top_k": 3}, strict=True).code == "unknown_parameter"
    assert ask({"include": ["reasoning.encrypted_content"]}).ignored == ()


def test_a_message_has_its_text_and_its_files() -> None:
    parts = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": PIXEL, "detail": "low"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
    ]
    prompt = ask({"input": [{"role": "user", "content": parts}]}).prompt
    assert prompt.text == "look"
    assert [(file.name, file.data, file.param) for file in prompt.files] == [
        ("picture-1", b"hi", "input[0].content[1].image_url"),
        ("a.txt", b"hi", "input[0].content[2].file_data"),
    ]


def test_instructions_are_the_operators_only_if_the_settings_say_so() -> None:
    """Otherwise they are text of the user; a named session takes none, and the answer says so."""
    fields = {"instructions": "be brief"}
    assert [entry.content for entry in ask(fields).prompt.history] == ["be brief"]
    trusted = ask(fields, system_texts=True)
    assert (trusted.prompt.history, trusted.prompt.system) == ((), "be brief")
    assert ask({**fields, "conversation": "a"}).ignored == ("instructions",)
    named = ask({**fields, "conversation": "a"}, system_texts=True)
    assert (named.ignored, named.prompt.system) == ((), "be brief")


def test_the_same_request_has_the_same_hash() -> None:
    """Whatever its form; a chat completion with the same values is another one."""
    assert ask({}).hash == ask({"stream": True}).hash
    assert ask({}).hash != ask({"store": False}).hash
    assert ask({}).hash != ask({"input": "x"}).hash
    assert ask({}).hash != ask({}, "a").hash


def test_what_is_stored_to_be_shown_is_bounded() -> None:
    """Long instructions are left out, old items cut; both are followed in full."""
    long = {"instructions": "x" * (INSTRUCTIONS_BYTES + 1)}
    assert "instructions" not in json.loads(ask(long).shown)
    items = [{"role": "user", "content": f"{at} {'y' * 1000}"} for at in range(200)]
    asked = ask({"input": items})
    shown = json.loads(asked.input)
    assert len(asked.input) <= INPUT_LIMIT_BYTES
    assert shown[-1]["content"][0]["text"].startswith("199 ")
    assert len(asked.prompt.history) == 199
