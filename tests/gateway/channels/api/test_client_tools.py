"""Functions of a client: what is taken, and how calls and results of a conversation are paired."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.web.api.client_tools import (
    OUTPUT_LIMIT_BYTES,
    OfferedTools,
    check_outputs,
    pair_results,
    read_tools,
)
from gateway.channels.web.api.errors import ApiError
from gateway.channels.web.api.request import parse_request
from shared.messages.inbound import ClientTool
from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, UserEntry
from tests.gateway.channels.api.asking import HELLO, user

F: Any = {"name": "f", "description": "F.", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": F}


def functions(many: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": f"f{at}", **fields}} for at in range(many)]


def test_functions_are_read_in_both_forms() -> None:
    """With `none` they are not offered; what is no function is named."""
    offered = (ClientTool("f", "F.", '{"type":"object"}'),)
    assert read_tools({"tools": [TOOL]}, nested=True) == OfferedTools(offered)
    assert read_tools({"tools": [{"type": "function", **F}]}, nested=False) == OfferedTools(offered)
    assert read_tools({"tools": [TOOL], "tool_choice": "none"}, nested=True) == OfferedTools((), "none")
    assert read_tools({"tools": [TOOL, {"type": "custom"}]}, nested=True).other
    assert read_tools({"tools": functions(64)}, nested=True).tools[63].name == "f63"


@pytest.mark.parametrize(
    ("choice", "found"),
    [("auto", ""), (None, ""), ("required", "required"), ({"type": "function", "function": {"name": "f"}}, "f")],
)
def test_a_choice_binds_the_first_round(choice: Any, found: str) -> None:
    assert read_tools({"tools": [TOOL], "tool_choice": choice}, nested=True).choice == found


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": functions(65)}, "tools"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": functions(6, description="x" * 15_000)}, "tools"),
        ({"tools": functions(1, description="x" * 17_000)}, "tools[0].function"),
        ({"tools": functions(1, description=1)}, "tools[0].function.description"),
        ({"tools": functions(1, parameters="{}")}, "tools[0].function.parameters"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "x" * 65}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
    ],
)
def test_what_is_refused_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_tools(fields, nested=True)
    assert (refused.value.status, refused.value.param) == (400, param)


def conversation(*ids: str, results: tuple[str, ...]) -> list[dict[str, Any]]:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    answers = [{"role": "tool", "tool_call_id": id, "content": "x"} for id in results]
    return [user("a"), {"role": "assistant", "tool_calls": calls}, *answers]


def ask(messages: list[dict[str, Any]], name: str | None = None) -> Any:
    return parse_request(json.dumps(HELLO | {"messages": messages}).encode(), name, {"shoal": ""})


@pytest.mark.parametrize(
    ("messages", "code", "words"),
    [
        (conversation("c1", results=("c2",)), "no_such_call", "'c2'"),
        (conversation("c1", "c2", "c3", results=("c2",)), "missing_output", "c1, c3"),
        ([*conversation("c1", results=()), user("so?")], "missing_output", "c1"),
        (conversation("c1", results=("c1", "c1")), "no_such_call", "'c1'"),
    ],
)
def test_every_call_has_one_result(messages: list[dict[str, Any]], code: str, words: str) -> None:
    """Without a name; the turn would run a call that has none."""
    with pytest.raises(ApiError, match=words) as refused:
        ask(messages)
    assert (refused.value.status, refused.value.code) == (400, code)


def test_a_named_session_gets_the_results_at_the_end() -> None:
    """The rest of the conversation is there; another message is a message."""
    messages = conversation("c1", "c2", results=("c1", "c2"))
    assert ask(messages, "n").prompt.outputs == (("c1", "x"), ("c2", "x"))
    assert ask([*messages, user("so?")], "n").prompt.outputs == ()
    with pytest.raises(ApiError, match="two results"):
        ask(conversation("c1", results=("c1", "c1")), "n")


def test_results_are_bounded() -> None:
    check_outputs([("c1", "x" * OUTPUT_LIMIT_BYTES)], "messages")
    with pytest.raises(ApiError) as refused:
        check_outputs([("c1", "x" * OUTPUT_LIMIT_BYTES + "x")], "messages")
    assert refused.value.status == 413


ENTRIES = st.lists(
    st.one_of(
        st.just(UserEntry(content="u", turn=0)),
        st.just(AssistantEntry(content="a", turn=0)),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True).map(
            lambda ids: AssistantEntry(content=None, turn=0, tool_calls=tuple(ToolCall(one, "f", "{}") for one in ids))
        ),
        st.sampled_from("abc").map(lambda call: ToolEntry(call_id=call, name="", content="r", turn=0)),
    ),
    max_size=8,
)


@given(ENTRIES)
def test_whatever_is_paired_has_every_result_after_its_call(entries: list[Any]) -> None:
    """Or it is refused: a provider takes nothing else."""
    try:
        paired = pair_results([(f"[{at}]", entry) for at, entry in enumerate(entries)], ("s",))
    except ApiError:
        return
    waiting: set[str] = set()
    for entry in paired:
        if isinstance(entry, ToolEntry):
            assert (entry.name, entry.sources) == ("f", ("s",))
            waiting.remove(entry.call_id)
            continue
        assert not waiting
        waiting = {call.id for call in entry.tool_calls} if isinstance(entry, AssistantEntry) else set()
    assert not waiting
