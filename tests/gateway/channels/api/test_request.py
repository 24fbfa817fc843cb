"""Reading a request."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsBase,
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from gateway.channels.web.api.errors import FAILED_TURNS, ApiError
from gateway.channels.web.api.parameters import FIXED, USED, WITHOUT_EFFECT
from gateway.channels.web.api.request import CompletionRequest, parse_request

DOCS = Path(__file__).parents[4] / "docs" / "api.md"
HELLO: dict[str, Any] = {"model": "shoal", "messages": [{"role": "user", "content": "hello"}]}


def ask(body: dict[str, Any], header: str | None = None) -> CompletionRequest:
    return parse_request(json.dumps(body).encode(), header, {"shoal": "", "deep": "deep"})


def test_every_parameter_of_openais_client_is_known() -> None:
    """A newer client with another parameter fails here first; nothing is in two tables."""
    theirs = {
        name
        for kind in (CompletionCreateParamsBase, CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming)
        for name in kind.__annotations__
    }
    assert theirs == {*USED, *WITHOUT_EFFECT, *FIXED}
    assert len(theirs) == len(USED) + len(WITHOUT_EFFECT) + len(FIXED)


def test_the_documented_parameters_are_those_of_the_code() -> None:
    """docs/api.md: each of them, and none beside them."""
    table = DOCS.read_text().partition("| parameter |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    named = {
        word.partition(".")[0]: effect for names, effect in rows for word in re.findall(r"`([a-z_.]+)`", names)
    }  # fmt: skip
    assert set(named) == {*USED, *WITHOUT_EFFECT, *FIXED}
    assert {name for name, effect in named.items() if "no effect" in effect} == set(WITHOUT_EFFECT)


def test_the_documented_codes_are_those_of_the_code() -> None:
    """Every code that is raised stands in the table of errors."""
    source = "".join(path.read_text() for path in (DOCS.parents[1] / "gateway/channels/web/api").rglob("*.py"))
    raised = set(re.findall(r'code="([a-z_]+)"', source)) | {code for _, code in FAILED_TURNS.values()}
    table = DOCS.read_text().partition("| status |")[2]
    assert raised - set(re.findall(r"`([a-z_]+)`", table)) == set()


@pytest.mark.parametrize(
    "other",
    [
        HELLO | {"stream": True},
        HELLO | {"stream": True, "stream_options": {"include_usage": True}},
        dict(reversed(HELLO.items())),
    ],
)
def test_the_form_of_the_answer_is_no_part_of_what_is_asked(other: dict[str, Any]) -> None:
    """The same hash: the same key may ask for the same answer in another form."""
    assert ask(other).hash == ask(HELLO).hash


def test_where_the_name_stood_is_no_part_of_what_is_asked() -> None:
    """But the name is."""
    assert ask(HELLO | {"user": "a"}).hash == ask(HELLO, "a").hash == ask(HELLO | {"user": "b"}, "a").hash
    assert len({ask(HELLO).hash, ask(HELLO, "a").hash, ask(HELLO, "b").hash}) == 3


@pytest.mark.parametrize("name", ["a", "ann@example.org", "Ann Müller", "x:y", "a~b", "+49 30 1234", "日本"])
def test_a_name_may_be_what_people_call_things(name: str) -> None:
    """As a program has it for its users."""
    assert ask(HELLO | {"user": name}).name == name


@pytest.mark.parametrize("name", ["", "/", "a/b", "a#b", "~a", " a", "a ", "a\tb", "a\x7f"])
def test_a_name_in_the_header_must_be_one(name: str) -> None:
    """An empty one too: a template that found nothing is no wish for a session without a name."""
    with pytest.raises(ApiError) as refused:
        ask(HELLO, name)
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "bad_session", "X-Shoal-Session")


def test_a_preset_is_that_model_and_shoal_is_none() -> None:
    """`""` leaves the choice to the session."""
    assert [(one.model, one.preset) for one in (ask(HELLO), ask(HELLO | {"model": "deep"}))] == [
        ("shoal", ""), ("deep", "deep"),
    ]  # fmt: skip


def test_system_texts_after_the_last_message_count_as_history() -> None:
    """Some clients put theirs last."""
    messages = [*HELLO["messages"], {"role": "system", "content": "be brief"}]
    spoken = ask(HELLO | {"messages": messages}).prompt
    assert (spoken.text, [entry.content for entry in spoken.history]) == ("hello", ["be brief"])


def test_an_answer_of_ours_can_be_sent_back_as_it_came() -> None:
    """With all the empty fields that a client's model of it has."""
    sent_text: dict[str, Any] = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "tool_calls": None,
        "audio": None,
        "annotations": [],
    }
    spoken = ask(HELLO | {"messages": [*HELLO["messages"], sent_text, *HELLO["messages"]]}).prompt
    assert [entry.content for entry in spoken.history] == ["hello", "hi"]
