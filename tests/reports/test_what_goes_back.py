"""What a model gets back of its own calls: thoughts, signatures and ids."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.messages.transcript import AssistantEntry, ToolCall, ToolEntry, UserEntry
from tests.reports.provider import Body, Rule, provider, refusal, report, text_stream, turn
from worker.llm.clients.messages import messages_for, wire_id

BACK: Final = report("p-reasoning-back.json")
FOREIGN: Final = report("p-foreign-ids.json")
ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")
SIGNED: Final = {"google": {"thought_signature": "c2lnbmVk"}}


def calling(messages: list[Body]) -> list[Body]:
    return [message for message in messages if message.get("tool_calls")]


def wants_thoughts(body: Body) -> tuple[int, Any]:
    """Refuse a call without thoughts, as Kimi and DeepSeek do."""
    calls = calling(body["messages"])
    if not all(message.get("reasoning_content") for message in calls):
        return BACK["refusal"]["status"], BACK["refusal"]["body"]
    return 200, BACK["then"] if calls and body["messages"][-1]["role"] == "tool" else BACK["stream"]


async def test_a_model_gets_the_thoughts_of_its_calls_back() -> None:
    """At once: nothing is refused first."""
    async with provider(wants_thoughts) as served:
        result = await turn(served.settings())
    assert (result.content, len(served.requests)) == (BACK["right"]["text"], 2)
    [message] = calling(served.requests[-1]["messages"])
    assert (message["reasoning_content"], "thoughts_of" in message) == ("I should compute.", False)


EARLIER: Final = (
    UserEntry(content="before", turn=1),
    AssistantEntry(content=None, turn=1, tool_calls=(ToolCall("a", "calculate", "{}"),), reasoning="gone", model="old"),
    ToolEntry(call_id="a", name="calculate", content="1", turn=1),
    AssistantEntry(content="one", turn=1),
)


async def test_calls_of_earlier_turns_are_accepted_too() -> None:
    """Their thoughts are not kept; a model that wants some is told so, and remembered for this process."""
    async with provider(wants_thoughts) as served:
        result = await turn(served.settings(), history=EARLIER)
    assert (result.content, len(served.requests)) == (BACK["right"]["text"], 3)
    first = calling(served.requests[-1]["messages"])[0]
    assert first["reasoning_content"] == "(not kept)"


@pytest.mark.parametrize("words", ["reasoning_content: Extra inputs are not permitted", "remove reasoning_content"])
async def test_a_model_that_refuses_its_own_thoughts_is_asked_without_them(words: str) -> None:
    def rule(body: Body) -> tuple[int, Any]:
        calls = calling(body["messages"])
        if any("reasoning_content" in message for message in calls):
            return 400, refusal(words)
        return 200, BACK["then"] if calls else BACK["stream"]

    async with provider(rule) as served:
        result = await turn(served.settings())
    assert (result.content, len(served.requests)) == (BACK["right"]["text"], 3)


def called(**fields: Any) -> list[str]:
    """Return a stream of one call."""
    call = {"index": 0, "id": "a", "type": "function"} | fields
    call["function"] = {"name": "calculate", "arguments": '{"expression":"6*7"}'}
    delta = {"reasoning_content": "hm", "tool_calls": [call]}
    return [report_line({"delta": delta}), report_line({"delta": {}, "finish_reason": "tool_calls"}), "data: [DONE]"]


def report_line(choice: Body) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0} | choice]})}"


def first_calls(stream: list[str]) -> Rule:
    return lambda body: (200, text_stream("done") if calling(body["messages"]) else stream)


async def test_a_signature_goes_back_with_its_call() -> None:
    async with provider(first_calls(called(extra_content=SIGNED))) as served:
        assert (await turn(served.settings())).content == "done"
    [message] = calling(served.requests[-1]["messages"])
    assert message["tool_calls"][0]["extra_content"] == SIGNED


@pytest.mark.parametrize("stream", [FOREIGN["stream"], called(extra_content=SIGNED, id="x" * 90)], ids=["id", "signed"])
async def test_another_model_gets_neither_thoughts_nor_signatures(stream: list[str]) -> None:
    """And ids that it takes, whoever made them."""

    def rule(body: Body) -> tuple[int, Any]:
        messages = body["messages"]
        if body["model"] == "x":
            return (503, refusal("away")) if calling(messages) else (200, stream)
        ids = [call["id"] for message in calling(messages) for call in message["tool_calls"]]
        results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        fits = ids == results and all(map(ID.fullmatch, ids))
        foreign = "reasoning" in str(messages) or "google" in str(messages)
        return (200, text_stream("fallback: it is 42.")) if fits and not foreign else (400, refusal("not mine"))

    async with provider(rule) as served:
        result = await turn(served.settings(fallbacks=("openai/y",)))
    assert result.content == "fallback: it is 42."


@given(st.text(min_size=1, max_size=200))
def test_any_id_gets_a_form_that_every_provider_takes(id_: str) -> None:
    """The same in call and result, and one that fits stays."""
    call = {"role": "assistant", "tool_calls": [{"id": id_, "function": {}}]}
    asked, answered = messages_for("x", [call, {"role": "tool", "tool_call_id": id_}])
    assert ID.fullmatch(answered["tool_call_id"])
    assert asked["tool_calls"][0]["id"] == answered["tool_call_id"]
    assert (wire_id(id_) == id_) is bool(ID.fullmatch(id_))


@given(st.lists(st.text(min_size=1, max_size=60), unique=True, max_size=20))
def test_two_ids_stay_two(ids: list[str]) -> None:
    assert len(set(map(wire_id, ids))) == len(ids)


BEFORE: Final = {"test_another_model_gets_neither_thoughts_nor_signatures": 1}
