"""A prompt that grows too big becomes smaller without losing the task, and without losing anything that is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.errors import LeaseLost, ModelError
from shared.messages.transcript import AssistantEntry, ToolEntry, TranscriptEntry, UserEntry
from tests.helpers.scripted_model import Replies, ScriptedModel, call, calls
from tests.helpers.turn_borders import RecordingTool
from tests.worker.agent.turns import SPEC, Turn
from worker.agent.hook import AgentHook, Iteration, IterationDone
from worker.agent.limits import Budget, estimate_tokens
from worker.agent.model.compact import (
    LEFT_OUT,
    PROMPT,
    SHORTENED,
    SUMMARY_MARK,
    SUMMARY_TOKENS,
    Compacted,
    compact,
    shorten_results,
)
from worker.agent.model.model import Image, LLMResponse, ModelRequest, OnDelta, TokenUsage
from worker.agent.model.record import Message
from worker.agent.turn import AgentResult, AgentRunSpec

TOO_LONG = ModelError("context_length", "too long", retryable=False)
SYSTEM: Message = {"role": "system", "content": "be"}
TASK: Message = {"role": "user", "content": "the task: mend report.txt\n\n[Runtime Context]"}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant_message(text: str | None, *ids: str) -> Message:
    wanted = [{"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": text} | ({"tool_calls": wanted} if wanted else {})


def result(id: str, text: str = "seen") -> Message:
    return {"role": "tool", "tool_call_id": id, "name": "look", "content": text}


def rounds(*numbers: int, chars: int = 10) -> list[Message]:
    return [
        step for n in numbers for step in (assistant_message(f"round {n}", f"c{n}"), result(f"c{n}", f"{n}" * chars))
    ]


def summary(text: str) -> Message:
    return user(f"{SUMMARY_MARK}\n{text}")


async def compacted(
    messages: Sequence[Message],
    model: ScriptedModel,
    *,
    keep: int = 4,
    aim_tokens: int = 100_000,
    task: Message = TASK,
) -> Compacted:
    return await compact(model, messages, task=task, keep=keep, aim_tokens=aim_tokens)


def assert_pairs(messages: Sequence[Mapping[str, Any]]) -> None:
    """Every result follows its call, every call has its result."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
            continue
        assert not open_calls
        open_calls = [one["id"] for one in message.get("tool_calls", ())]
    assert not open_calls


# --- what is kept


async def test_system_text_summary_task_and_newest_messages_are_what_is_left() -> None:
    """In this order; the summary is one model call, and what it used is handed on."""
    model = ScriptedModel([LLMResponse(content="<think>hm</think>did 1 to 3", usage=TokenUsage(50, 5))])
    got = await compacted([SYSTEM, user("old"), assistant_message("yes"), TASK, *rounds(1, 2, 3, 4, 5)], model)
    assert got.messages == [SYSTEM, summary("did 1 to 3"), TASK, *rounds(4, 5)]
    assert got.usage == TokenUsage(50, 5)


async def test_the_summary_is_asked_for_with_the_task_and_all_that_goes() -> None:
    """As text under a prompt of its own, without tools: nothing of it can be taken for a wish of the person."""
    model = ScriptedModel(["notes"])
    await compacted([SYSTEM, user("old wish"), assistant_message("yes"), TASK, *rounds(1, 2, 3, 4, 5)], model)
    ((system, asked),) = model.asked
    assert system == {"role": "system", "content": PROMPT}
    assert asked["role"] == "user"
    text = asked["content"]
    assert text.startswith("The task that the agent is working on now:\nthe task: mend report.txt")
    for gone in ("USER: old wish", "ASSISTANT: yes", "ASSISTANT: round 1\n(calls look with {})", "TOOL: 3333333333"):
        assert gone in text
    assert "round 4" not in text
    assert text.count("mend report.txt") == 1
    assert model.offered == [[]]
    for word in ("original task", "decided", "open", "file name", "follow no instruction"):
        assert word in PROMPT


async def test_a_call_is_never_split_from_its_results() -> None:
    """The kept part grows to the whole group, also when the group is larger than it."""
    group = [assistant_message(None, "a", "b", "c"), result("a"), result("b"), result("c")]
    messages = [SYSTEM, TASK, *rounds(1, 2), *group, assistant_message("then", "d"), result("d")]
    for keep in (3, 4, 5, 6):
        got = (await compacted(messages, ScriptedModel(["notes"]), keep=keep)).messages
        assert got == [SYSTEM, summary("notes"), TASK, *group, assistant_message("then", "d"), result("d")]
    got = (await compacted(messages, ScriptedModel(["notes"]), keep=2)).messages
    assert got == [SYSTEM, summary("notes"), TASK, assistant_message("then", "d"), result("d")]


async def test_a_task_that_is_among_the_newest_stays_where_it_is() -> None:
    """It is there once."""
    messages = [SYSTEM, *(user(f"old {n}") for n in range(9)), TASK, *rounds(1)]
    got = (await compacted(messages, ScriptedModel(["notes"]))).messages
    assert got == [SYSTEM, summary("notes"), user("old 8"), TASK, *rounds(1)]


async def test_a_task_that_a_hook_took_out_comes_back() -> None:
    """Without it nobody knows what all of this is for."""
    got = (await compacted([SYSTEM, *rounds(1, 2, 3, 4)], ScriptedModel(["notes"]))).messages
    assert got == [SYSTEM, summary("notes"), TASK, *rounds(3, 4)]


async def test_the_images_of_the_task_stay() -> None:
    """The summary is told that they are there, and does not get them."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    task = {"role": "user", "content": [image, {"type": "text", "text": "what is it?"}]}
    model = ScriptedModel(["notes"])
    got = (await compacted([SYSTEM, task, *rounds(1, 2, 3)], model, task=task)).messages
    assert got[2] == task
    assert "[image_url]\nwhat is it?" in model.asked[0][1]["content"]
    assert "AAAA" not in model.asked[0][1]["content"]


async def test_an_earlier_summary_goes_into_the_next() -> None:
    """It is part of what is summed up; when it is all there is to sum up, no model is asked."""
    model = ScriptedModel(["more notes"])
    first = [SYSTEM, summary("first notes"), TASK, *rounds(1, 2, 3)]
    got = await compacted(first, model)
    assert "first notes" in model.asked[0][1]["content"]
    assert got.messages == [SYSTEM, summary("more notes"), TASK, *rounds(2, 3)]
    again = await compacted(got.messages, model)
    assert again == Compacted(got.messages, None)
    assert len(model.asked) == 1


async def test_a_prompt_without_old_messages_needs_no_summary() -> None:
    """Nothing to leave out: no call, nothing changed while it fits."""
    messages = [SYSTEM, user("hi"), TASK]
    assert await compacted(messages, ScriptedModel([])) == Compacted(messages, None)


# --- when it fails


@pytest.mark.parametrize("kind", ["auth", "overloaded", "context_length", "bad_reply"])
async def test_without_a_summary_the_middle_is_dropped_with_a_note(kind: str) -> None:
    """A summary is a help, not a need; one that was made earlier stays."""
    fault = ModelError(kind, "no", retryable=False)
    messages = [SYSTEM, summary("first notes"), TASK, *rounds(1, 2, 3, 4)]
    got = await compacted(messages, ScriptedModel([fault]))
    assert got == Compacted([SYSTEM, summary("first notes"), user(LEFT_OUT), TASK, *rounds(3, 4)], None)


@pytest.mark.parametrize("empty", ["", "<think>only thoughts</think>"])
async def test_an_empty_summary_is_none_but_was_paid_for(empty: str) -> None:
    """The note stands instead, and its usage counts."""
    reply = LLMResponse(content=empty, usage=TokenUsage(9, 1))
    got = await compacted([SYSTEM, TASK, *rounds(1, 2, 3)], ScriptedModel([reply]))
    assert got == Compacted([SYSTEM, user(LEFT_OUT), TASK, *rounds(2, 3)], TokenUsage(9, 1))


# --- when that is not enough


async def test_the_largest_results_are_shortened_until_the_prompt_fits() -> None:
    """The largest first; small ones stay as they are, and what was cut says so."""
    steps = [
        assistant_message(None, "a", "b"),
        result("a", "x" * 8_000),
        result("b", "y" * 1_000),
        assistant_message("so"),
        user("go on"),
    ]
    got = shorten_results([SYSTEM, TASK, *steps], 1_500)
    assert estimate_tokens(got) <= 1_500
    big, small = got[3]["content"], got[4]["content"]
    assert big == "x" * 4_000 + SHORTENED
    assert small == "y" * 1_000
    assert [m for m in got if m["role"] != "tool"] == [m for m in [SYSTEM, TASK, *steps] if m["role"] != "tool"]
    assert steps[1]["content"] == "x" * 8_000, "the messages that were handed in are not changed"


async def test_shortening_ends_when_there_is_nothing_left_to_shorten() -> None:
    """An aim that cannot be reached is missed by little, not looped after."""
    got = shorten_results([SYSTEM, TASK, *rounds(1, 2, chars=5_000)], 1)
    assert [len(m["content"]) for m in got if m["role"] == "tool"] == [200 + len(SHORTENED)] * 2
    assert shorten_results([], 0) == []


async def test_fewer_messages_are_kept_when_the_newest_alone_are_too_big() -> None:
    """Long texts of a person cannot be shortened; then they are summed up."""
    messages = [SYSTEM, *(user(f"{n}" * 4_000) for n in range(8)), TASK]
    got = await compacted(messages, ScriptedModel(["notes"]), keep=8, aim_tokens=4_000)
    assert got.messages == [SYSTEM, summary("notes"), user("7" * 4_000), TASK]
    assert estimate_tokens(got.messages) <= 4_000


async def test_results_that_can_be_shortened_push_out_no_message() -> None:
    """What was said stays; of what a tool answered the beginning is enough."""
    messages = [SYSTEM, TASK, *rounds(1, 2, 3, chars=8_000)]
    got = await compacted(messages, ScriptedModel(["notes"]), keep=4, aim_tokens=3_000)
    assert [m["content"] for m in got.messages if m["role"] == "assistant"] == ["round 2", "round 3"]
    assert estimate_tokens(got.messages) <= 3_000


async def test_a_turn_without_system_text_is_compacted_alike() -> None:
    """Its first message is no different from the others."""
    got = await compacted([user("old"), TASK, *rounds(1, 2, 3)], ScriptedModel(["notes"]))
    assert got.messages == [summary("notes"), TASK, *rounds(2, 3)]


async def test_the_request_for_a_summary_fits_too() -> None:
    """However much there is to sum up: every message is in it, with its beginning."""
    old = [user(f"message {n} " + "x" * 20_000) for n in range(30)]
    model = ScriptedModel(["notes"])
    await compacted([SYSTEM, *old, TASK, *rounds(1, 2)], model, aim_tokens=5_000)
    asked = model.asked[0][1]["content"]
    assert len(asked) < 5_000 * 4
    for n in range(30):
        assert f"message {n} " in asked


PIECES = st.lists(
    st.one_of(
        st.just([user("u" * 300)]),
        st.just([assistant_message("t")]),
        st.integers(1, 3).map(
            lambda n: [assistant_message(None, *"abc"[:n]), *(result(id, "r" * 900) for id in "abc"[:n])]
        ),
        st.just([summary("earlier")]),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@settings(max_examples=300, deadline=None)
@given(before=PIECES, after=PIECES, keep=st.integers(1, 25), aim=st.integers(0, 5_000), works=st.booleans())
def test_whatever_is_compacted_pairs_and_has_its_task(
    runner: asyncio.Runner, before: list[list[Message]], after: list[list[Message]], keep: int, aim: int, works: bool
) -> None:
    """System text first, the task exactly once, no call without result, the newest message last, never longer."""
    messages = [SYSTEM, *chain.from_iterable(before), TASK, *chain.from_iterable(after)]
    model = ScriptedModel(lambda _: "notes" if works else TOO_LONG)
    got = runner.run(compacted(messages, model, keep=keep, aim_tokens=aim)).messages
    assert got[0] == SYSTEM
    assert got.count(TASK) == 1
    assert_pairs(got)
    last = messages[-1]
    assert got[-1]["role"] == last["role"]
    assert str(got[-1]["content"])[:200] == str(last["content"])[:200]
    assert len(got) <= len(messages) + 1


# --- in a turn


def long_turn(replies: Replies, spec: AgentRunSpec) -> Turn:
    """A turn whose tool has much to say."""

    async def much(*_: Any) -> str:
        return "z" * 3_000

    return Turn(replies, RecordingTool("look", behaviour=much), spec=spec)


SMALL = replace(SPEC, context_tokens=10_000, max_tokens=1_000, compact_keep=4)


class Steady:
    """Uses a tool so often, then answers; sums up when it is asked to. `prompts` are the sizes of what it saw."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.summaries = 0
        self.prompts: list[int] = []

    def __call__(self, messages: list[dict[str, Any]]) -> Any:
        if messages[0]["content"] == PROMPT:
            self.summaries += 1
            return LLMResponse(content=f"notes {self.summaries}", usage=TokenUsage(100, 10))
        self.prompts.append(estimate_tokens(messages))
        if len(self.prompts) > self.rounds:
            return "done"
        return calls(call("look", id=f"c{len(self.prompts)}"), text=f"step {len(self.prompts)}")


async def run(turn: Turn, **more: Any) -> AgentResult:
    return await turn.run(compact=partial(compact, turn.model), **more)


async def test_a_long_turn_stays_within_its_budget_and_history_keeps_everything() -> None:
    """Over 80 % of the budget the prompt is compacted before the call; the task is in every one of them."""
    steady = Steady(30)
    turn = long_turn(steady, SMALL)
    done = await run(turn)
    assert done.content == "done"
    limit = Budget(10_000, 1_000).prompt_tokens
    assert limit == 7_976
    assert max(steady.prompts) <= limit
    assert 2 <= steady.summaries <= 10
    for asked in turn.model.asked:
        assert asked[0]["content"] in ("be", PROMPT)
        assert any("question" in str(message["content"]) for message in asked)
        assert_pairs(asked)
    assert sum(isinstance(entry, ToolEntry) for entry in done.entries) == 30
    assert sum(isinstance(entry, ToolEntry) for entry in turn.journal.entries) == 30
    assert all(entry.content == "z" * 3_000 for entry in turn.journal.entries if isinstance(entry, ToolEntry))
    assert not any(SUMMARY_MARK in str(entry.content) for entry in done.entries)


@pytest.mark.parametrize(("compact_at", "compacts"), [(0.8, False), (0.5, True)])
async def test_the_share_at_which_a_prompt_is_compacted_can_be_set(compact_at: float, compacts: bool) -> None:
    """A prompt of 60 % of the context."""
    history: tuple[TranscriptEntry, ...] = tuple(UserEntry(content="y" * 2_400, turn=1) for _ in range(10))
    spec = replace(SPEC, context_tokens=10_000, max_tokens=500, history=history, compact_at=compact_at, compact_keep=4)
    steady = Steady(0)
    await run(long_turn(steady, spec))
    assert (steady.summaries == 1) is compacts


async def test_a_summary_counts_as_used_and_as_part_of_its_round() -> None:
    """In the result, for the allowance, and for the hooks."""
    usages: list[TokenUsage] = []
    round_usages: list[TokenUsage] = []

    class Purse:
        async def refusal(self) -> str | None:
            return None

        async def count(self, usage: TokenUsage) -> str | None:
            usages.append(usage)
            return None

    class Noting(AgentHook):
        async def after_iteration(self, result: IterationDone) -> None:
            round_usages.append(result.usage)

    steady = Steady(8)
    turn = long_turn(steady, replace(SMALL, context_tokens=7_000))
    done = await run(turn, allowance=Purse(), hook=Noting())
    assert steady.summaries > 0
    assert usages.count(TokenUsage(100, 10)) == steady.summaries
    assert done.usage == TokenUsage(100 * steady.summaries + 8 * 10, 10 * steady.summaries + 8)
    assert TokenUsage(110, 11) in round_usages
    assert sum(round_usages, TokenUsage()) == done.usage


async def test_the_turns_border_stands_before_a_summary_too() -> None:
    """A worker that lost its lease or drains makes no call for it."""
    history: tuple[TranscriptEntry, ...] = tuple(UserEntry(content="y" * 4_000, turn=1) for _ in range(10))
    turn = long_turn(Steady(0), replace(SMALL, history=history))
    turn.journal.on("checkpoint", LeaseLost("gone"))
    with pytest.raises(LeaseLost):
        await run(turn)
    assert turn.model.asked == []


async def test_a_model_that_finds_the_prompt_too_long_is_asked_once_more_with_half_of_it() -> None:
    """Also when its limit is not known; the tools and the text of the turn go on as if nothing was."""
    history = tuple(UserEntry(content=f"{n} " + "y" * 2_000, turn=1) for n in range(30))
    refused = [False]

    def answer(messages: list[dict[str, Any]]) -> Any:
        if messages[0]["content"] == PROMPT:
            return "notes"
        if not refused[0]:
            refused[0] = True
            return TOO_LONG
        return "the answer"

    turn = Turn(answer, spec=replace(SPEC, history=history, compact_keep=4))
    done = await run(turn)
    assert (done.content, done.rounds) == ("the answer", 1)
    first, summing, second = turn.model.asked
    assert summing[0]["content"] == PROMPT
    assert estimate_tokens(second) <= estimate_tokens(first) // 2
    assert second[1]["content"] == f"{SUMMARY_MARK}\nnotes"
    assert "question" in second[-1]["content"]


async def test_a_prompt_that_stays_too_long_is_the_models_fault_in_the_end() -> None:
    """One more try, not two; the caller tells the person."""
    history = tuple(UserEntry(content="y" * 2_000, turn=1) for _ in range(30))
    turn = Turn(lambda m: "notes" if m[0]["content"] == PROMPT else TOO_LONG, spec=replace(SPEC, history=history))
    with pytest.raises(ModelError) as raised:
        await run(turn)
    assert raised.value.kind == "context_length"
    assert len(turn.model.asked) == 3


async def test_what_cannot_become_smaller_is_not_asked_for_again() -> None:
    """Neither a single message nor a turn without compaction."""
    turn = Turn([TOO_LONG])
    with pytest.raises(ModelError):
        await run(turn)
    history = tuple(UserEntry(content="y" * 2_000, turn=1) for _ in range(30))
    turn = Turn([TOO_LONG], spec=replace(SPEC, history=history))
    with pytest.raises(ModelError):
        await turn.run()
    assert len(turn.model.asked) == 1


async def test_other_faults_of_a_model_compact_nothing() -> None:
    """A refused key does not become right by asking for less."""
    history = tuple(UserEntry(content="y" * 2_000, turn=1) for _ in range(30))
    turn = Turn([ModelError("bad_request", "no", retryable=False)], spec=replace(SPEC, history=history))
    with pytest.raises(ModelError):
        await run(turn)
    assert len(turn.model.asked) == 1


async def test_compaction_goes_by_what_the_hooks_made_and_by_what_the_tools_take() -> None:
    """Both are part of the prompt."""
    asked: list[tuple[int, int, int]] = []

    async def note(messages: Sequence[Message], *, task: Message, keep: int, aim_tokens: int) -> Compacted:
        asked.append((len(messages), keep, aim_tokens))
        return Compacted([messages[0], task])

    class Adds(AgentHook):
        async def before_iteration(self, context: Iteration) -> None:
            context.messages.insert(1, {"role": "user", "content": "a" * 40_000})

    spec = replace(SPEC, context_tokens=10_000, max_tokens=500)
    turn = Turn(["x"], spec=spec)
    await turn.run(compact=note)
    assert asked == []
    await (turn := Turn(["x"], spec=spec)).run(compact=note, hook=Adds())
    assert asked == [(3, 20, 6_000)]
    assert len(turn.model.asked[0]) == 2
    tool = RecordingTool("look")
    tool.description = "d" * 20_000
    spec = replace(spec, entry=UserEntry(content="y" * 14_000, turn=1))
    await Turn(["x"], tool, spec=spec).run(compact=note)
    (_, _, aim_tokens) = asked.pop()
    assert 900 < aim_tokens < 1_000
    tool.description = "d" * 40_000
    await Turn(["x"], tool, spec=spec).run(compact=note)
    assert asked.pop()[2] == 0


async def test_an_image_does_not_compact_a_turn() -> None:
    """A megabyte of base64 is not a million characters of text."""
    spec = replace(SPEC, context_tokens=10_000, max_tokens=500, images=(Image("image/png", b"x" * 1_000_000),))
    turn = Turn(["seen"], spec=spec)
    assert (await run(turn)).content == "seen"
    assert len(turn.model.asked) == 1


async def test_a_successor_compacts_what_it_finds() -> None:
    """It starts from the whole ledger, and needs no more than its predecessor did."""
    steady = Steady(20)
    first = long_turn(steady, SMALL)
    first.journal.on("checkpoint", LeaseLost("lost"), skip=38)
    with pytest.raises(LeaseLost):
        await run(first)
    left = tuple(first.journal.entries)
    assert sum(isinstance(entry, AssistantEntry) for entry in left) > 10
    second = Turn(lambda m: "notes" if m[0]["content"] == PROMPT else "done", spec=replace(SMALL, resume=left))
    done = await run(second)
    assert done.content == "done"
    assert estimate_tokens(second.model.asked[-1]) <= Budget(10_000, 1_000).prompt_tokens
    assert "question" in repr(second.model.asked[-1])


async def test_a_summary_is_asked_for_with_few_tokens_and_no_stream() -> None:
    """It is for the model, not for the chat."""
    asked: list[tuple[int, float, OnDelta | None]] = []

    class Watched(ScriptedModel):
        async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
            asked.append((request.max_tokens, request.temperature, on_delta))
            return await super().chat(request, on_delta)

    await compacted([SYSTEM, TASK, *rounds(1, 2, 3)], Watched(["notes"]))
    assert asked == [(SUMMARY_TOKENS, 0.3, None)]
