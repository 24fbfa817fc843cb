"""The rules of the loop, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from shared.errors import LeaseLost, ModelError, ToolFailed, TurnReleased, TurnStopped
from shared.messages.transcript import AssistantEntry, ToolEntry, UserEntry
from tests.helpers.clock import HandClock
from tests.helpers.scripted_model import Broken, ScriptedModel, call, calls
from tests.helpers.turn_borders import RecordingTool
from tests.worker.agent.turns import BUSY, SPEC, Turn
from worker.agent.composite_hook import CompositeHook
from worker.agent.hook import AgentHook, Iteration, IterationDone, ToolRun
from worker.agent.model.ask import CONTINUE
from worker.agent.model.model import LLMResponse, ModelRequest, OnDelta, TokenUsage, ToolCallRequest
from worker.agent.ports import NULL_PORTS
from worker.agent.run import NO_ANSWER
from worker.llm.clients.arguments import parse_arguments


async def test_an_answer_without_tools_ends_the_turn() -> None:
    """Ask once, store nothing before the commit, hand the entries over."""
    turn = Turn(["the answer"])
    result = await turn.run()
    assert (result.content, result.rounds, result.outcome) == ("the answer", 1, "done")
    assert [type(entry) for entry in result.entries] == [UserEntry, AssistantEntry]
    assert result.entries[0] == SPEC.entry
    assert turn.events == ["checkpoint"]
    assert turn.progress.log == ["the", " answer"]


async def test_a_tool_is_run_and_its_result_goes_back_to_the_model() -> None:
    """Ask, act, append; the reply is stored before its tools run."""
    tool = RecordingTool("look")
    turn = Turn([calls(call("look", {"text": "up"}), text="I look."), "it says up"], tool)
    result = await turn.run()
    assert result.content == "it says up"
    assert turn.events == ["checkpoint", "assistant", "checkpoint", "run:id-look", "result:id-look", "checkpoint"]
    assert turn.seen(1) == [("assistant", "I look."), ("tool", "look says up")]
    assert turn.model.asked[1][3] == {
        "role": "tool",
        "tool_call_id": "id-look",
        "name": "look",
        "content": "look says up",
    }
    assert [type(entry) for entry in result.entries] == [UserEntry, AssistantEntry, ToolEntry, AssistantEntry]
    assert result.usage == TokenUsage(10, 1)
    assert turn.model.offered == [["look"], ["look"]]


async def test_tools_that_change_something_leave_an_intent_first() -> None:
    """Idempotent and unsafe tools are announced, an unsafe one only after the lease was confirmed, and
    before it runs the intent is where a fail-over finds it."""
    writes, sends = RecordingTool("write", "idempotent"), RecordingTool("send", "unsafe")
    turn = Turn([calls(call("write"), call("send")), "done"], writes, sends)
    await turn.run()
    assert turn.events == [
        "checkpoint",
        "assistant",
        *("checkpoint", "intent:id-write", "run:id-write", "result:id-write"),
        *("checkpoint", "confirm", "intent:id-send", "secure", "run:id-send", "result:id-send"),
        "checkpoint",
    ]


async def test_read_only_calls_run_together_and_answer_in_order() -> None:
    """The second finishes before the first; the model sees them in the order it asked."""
    second_done = asyncio.Event()

    async def first(*_: Any) -> str:
        await second_done.wait()
        return "first"

    async def second(*_: Any) -> str:
        second_done.set()
        return "second"

    turn = Turn(
        [calls(call("a"), call("b")), "x"], RecordingTool("a", behaviour=first), RecordingTool("b", behaviour=second)
    )
    await turn.run()
    assert turn.seen(1)[1:] == [("tool", "first"), ("tool", "second")]
    assert turn.events[2:] == ["checkpoint", "run:id-a", "run:id-b", "result:id-a", "result:id-b", "checkpoint"]


async def test_calls_run_one_after_the_other_when_one_of_them_changes_something() -> None:
    """Order matters as soon as there are effects."""
    tools = RecordingTool("a"), RecordingTool("b", "idempotent"), RecordingTool("c")
    turn = Turn([calls(call("a"), call("b"), call("c")), "x"], *tools)
    await turn.run()
    runs = [event for event in turn.events if event.startswith(("run", "result"))]
    assert runs == ["run:id-a", "result:id-a", "run:id-b", "result:id-b", "run:id-c", "result:id-c"]


async def test_whatever_goes_wrong_in_a_tool_becomes_a_result() -> None:
    """Unknown tool, bad arguments, a failure, a bug: the loop goes on, and each call has its answer."""

    async def fail(*_: Any) -> str:
        raise ToolFailed("not today")

    async def bug(*_: Any) -> str:
        raise RuntimeError

    wanted = calls(
        call("nothing"),
        ToolCallRequest("id-x", "fine", None, '{"text": '),
        call("fails"),
        call("bug"),
    )
    tools = RecordingTool("fine"), RecordingTool("fails", behaviour=fail), RecordingTool("bug", "unsafe", behaviour=bug)
    turn = Turn([wanted, "sorry"], *tools)
    result = await turn.run()
    assert result.content == "sorry"
    texts = [str(text) for role, text in turn.seen(1) if role == "tool"]
    assert len(texts) == 4
    for text, says in zip(texts, ("no tool named 'nothing'", "JSON object", "not today", "RuntimeError"), strict=True):
        assert text.startswith("Error: ")
        assert says in text
    assert [entry.ok for entry in result.entries if isinstance(entry, ToolEntry)] == [False] * 4


async def test_at_the_cap_the_best_result_is_given_and_called_unfinished() -> None:
    """The last reply's tools do not run: nobody would see what they did."""
    tool = RecordingTool("look")
    turn = Turn(
        [calls(call("look"), text="half of it"), calls(call("look"))],
        tool,
        spec=msgspec.structs.replace(SPEC, max_rounds=2),
    )
    result = await turn.run()
    assert (result.outcome, result.rounds, len(tool.runs)) == ("round_cap", 2, 1)
    assert result.content.startswith("half of it\n\n")
    assert "not finished" in result.content
    assert "2 steps" in result.content
    last = result.entries[-1]
    assert isinstance(last, AssistantEntry)
    assert (last.content, last.tool_calls) == (result.content, ())


async def test_a_hook_hears_of_every_round_that_was_asked_and_how_long_the_model_took() -> None:
    """Also of the one at the cap, whose tools do not run; not of how long the tools took."""
    clock = HandClock()

    def answer(_: Any) -> LLMResponse:
        clock.at += 2.5
        return calls(call("look"))

    async def slow(*_: Any) -> str:
        clock.at += 100
        return "seen"

    meddling = Meddling()
    turn = Turn(answer, RecordingTool("look", behaviour=slow), spec=msgspec.structs.replace(SPEC, max_rounds=2))
    await turn.run(hook=meddling, clock=clock)
    assert [(done.round, done.seconds, len(done.results), done.resumed) for done in meddling.done] == [
        (1, 2.5, 1, False),
        (2, 2.5, 0, False),
    ]
    assert meddling.done[0].runs == {"id-look": ToolRun("ok", 100.0)}


@pytest.mark.parametrize(("wanted", "asked"), [(0, 1), (1, 1), (4096, 4096)])
async def test_a_model_is_asked_for_one_token_at_least(wanted: int, asked: int) -> None:
    """Providers refuse none."""
    seen: list[int] = []

    class Watched(ScriptedModel):
        async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
            seen.append(request.max_tokens)
            return await super().chat(request, on_delta)

    turn = Turn([], spec=msgspec.structs.replace(SPEC, max_tokens=wanted))
    turn.model = Watched(["x"])
    await turn.run()
    assert seen == [asked]


async def test_thoughts_are_neither_shown_nor_kept() -> None:
    """Not in the stream, not in the answer, not in what goes back to the model."""
    reply = calls(call("look"), text="<think>secret\nplan</think>I look.")
    turn = Turn([reply, "<think>more secret</think>seen"], RecordingTool("look"))
    result = await turn.run()
    assert result.content == "seen"
    assert "secret" not in "".join(turn.progress.log)
    assert "secret" not in repr(turn.model.asked[1])
    assert "secret" not in repr(result.entries)


async def test_thoughts_go_back_with_calls_to_their_own_model() -> None:
    """A provider's own reasoning field stays in the transcript, and goes out with the name of its model."""
    first = msgspec.structs.replace(calls(call("look")), reasoning_content="because", asked="kimi")
    turn = Turn([first, LLMResponse(content="yes", reasoning_content="therefore")], RecordingTool("look"))
    result = await turn.run()
    assert [e.reasoning for e in result.entries if isinstance(e, AssistantEntry)] == ["because", "therefore"]
    message = turn.model.asked[1][-2]
    assert (message["reasoning_content"], message["thoughts_of"]) == ("because", "kimi")


async def test_thoughts_of_nobody_stay_here() -> None:
    """A reply that does not say which model wrote it."""
    first = msgspec.structs.replace(calls(call("look")), reasoning_content="because")
    turn = Turn([first, "yes"], RecordingTool("look"))
    await turn.run()
    assert "because" not in repr(turn.model.asked[1])


@pytest.mark.parametrize("empty", ["", "  \n", "<think>only thoughts</think>"])
async def test_an_empty_reply_is_asked_for_once_more(empty: str) -> None:
    """Then there is an honest fallback instead of silence."""
    turn = Turn([empty, "now"])
    assert (await turn.run()).content == "now"
    turn = Turn([empty, empty])
    result = await turn.run()
    assert (result.content, result.outcome, result.rounds) == (NO_ANSWER, "empty", 1)
    assert turn.events == ["checkpoint", "checkpoint"]


async def test_a_reply_cut_by_length_is_continued_and_joined() -> None:
    """What is shown and what is kept is one text; the loop counts one round."""
    cut = LLMResponse(content="one two thr", finish_reason="length", usage=TokenUsage(5, 5))
    turn = Turn(
        [cut, msgspec.structs.replace(cut, content="ee four"), LLMResponse(content=" five", usage=TokenUsage(1, 1))]
    )
    result = await turn.run()
    assert (result.content, result.rounds, result.usage) == ("one two three four five", 1, TokenUsage(11, 11))
    assert turn.progress.visible == "one two three four five"
    assert "<reset>" not in turn.progress.log
    assert turn.seen(2) == [("assistant", "one two three four"), ("user", CONTINUE)]


async def test_a_reply_is_continued_three_times_at_most() -> None:
    """A model that never comes to an end is ended."""
    turn = Turn([LLMResponse(content="x", finish_reason="length")] * 4)
    assert (await turn.run()).content == "xxxx"


@pytest.mark.parametrize("continuations", [0, 1, 5])
async def test_how_often_a_reply_is_continued_can_be_set(continuations: int) -> None:
    """None at all is a choice too."""
    spec = msgspec.structs.replace(SPEC, continuations=continuations)
    turn = Turn([LLMResponse(content="x", finish_reason="length")] * (1 + continuations), spec=spec)
    assert (await turn.run()).content == "x" * (1 + continuations)


async def test_a_thought_cut_by_length_stays_hidden_in_the_continuation() -> None:
    """The tag that closes it comes with the next part."""
    turn = Turn([LLMResponse(content="<think>sec", finish_reason="length"), "ret</think>answer"])
    assert (await turn.run()).content == "answer"
    assert turn.progress.visible == "answer"


async def test_call_ids_are_unique_within_a_turn() -> None:
    """Some providers count from 0 in every reply, others send none; the ledger needs one each."""
    look = [call("look", id="call_0"), call("look", id="call_0"), ToolCallRequest("", "look", {}, "{}")]
    turn = Turn([calls(*look), calls(call("look", id="call_0")), "x"], RecordingTool("look", "idempotent"))
    await turn.run()
    ids = [event.partition(":")[2] for event in turn.events if event.startswith("intent")]
    assert len(ids) == len(set(ids)) == 4
    assert [m["tool_call_id"] for m in turn.model.asked[2] if m["role"] == "tool"] == ids


async def test_progress_is_shown_before_tools_run_and_text_is_reset_for_the_next_round() -> None:
    """People see what is being done, and then the new text instead of the old one."""
    wanted = calls(
        call("look", {"text": "x" * 50}), call("look", {"number": 3}, "2"), call("look", id="3"), text="I look."
    )
    turn = Turn([wanted, "seen"], RecordingTool("look"))
    await turn.run()
    hint = f'look("{"x" * 39}…"), look(3), look()'
    assert turn.progress.log == ["I", " look.", f"<progress I look.\n{hint}>", "<reset>", "seen"]


async def test_a_stream_that_breaks_is_reset_and_asked_for_again() -> None:
    """Text that was shown is void; the checkpoint stands before every call."""
    turn = Turn([Broken(BUSY, ("half", " an")), Broken(BUSY, ("ha",)), "whole answer"])
    assert (await turn.run()).content == "whole answer"
    assert turn.progress.log == ["half", " an", "<reset>", "ha", "<reset>", "whole", " answer"]
    assert turn.events == ["checkpoint"] * 3


async def test_a_hook_learns_that_a_stream_was_reset() -> None:
    """An end comes between the broken text and the new one."""
    meddling = Meddling()
    await Turn([Broken(BUSY, ("half",)), "whole"]).run(hook=meddling)
    assert meddling.deltas == ["half", "<end>", "whole", "<end>"]


async def test_a_continuation_that_breaks_keeps_the_part_before_it() -> None:
    """Only the broken call's text is taken back."""
    turn = Turn([LLMResponse(content="one ", finish_reason="length"), Broken(BUSY, ("tw",)), "two"])
    assert (await turn.run()).content == "one two"
    assert turn.progress.visible == "one two"


@pytest.mark.parametrize(
    "broken",
    [
        [Broken(BUSY, ("x",))] * 3,
        [Broken(ModelError("auth", "no", retryable=False), ("x",))],
        [BUSY],
    ],
)
async def test_a_model_that_stays_away_ends_the_run(broken: list[Broken | BaseException]) -> None:
    """Before any text the model itself has retried; after it, twice is enough; what cannot help is not tried."""
    turn = Turn(broken)
    with pytest.raises(ModelError):
        await turn.run()
    assert len(turn.model.asked) == len(broken)


async def test_a_stop_carries_the_text_that_was_shown() -> None:
    """Between rounds and in the middle of a stream."""
    turn = Turn([calls(call("look"), text="<think>x</think>I look now.")], RecordingTool("look"))
    turn.journal.on("checkpoint", TurnStopped(), skip=2)
    with pytest.raises(TurnStopped) as stopped:
        await turn.run()
    assert stopped.value.partial == "I look now."

    turn = Turn(["a long story about fish"])
    turn.progress.fault_at = ("story", TurnStopped())
    with pytest.raises(TurnStopped) as stopped:
        await turn.run()
    assert stopped.value.partial == "a long story"


@pytest.mark.parametrize("fault", [LeaseLost("gone"), TurnReleased("drain", 1.0)])
@pytest.mark.parametrize("event", ["checkpoint", "assistant", "confirm", "intent:id-send", "secure", "result:id-send"])
async def test_what_the_journal_raises_ends_the_turn_at_once(event: str, fault: BaseException) -> None:
    """After it nothing more is asked, run or written; before it everything was."""
    turn = Turn([calls(call("send")), "never"], RecordingTool("send", "unsafe"))
    turn.journal.on(event, fault)
    with pytest.raises(type(fault)) as raised:
        await turn.run()
    assert raised.value is fault
    steps = ["checkpoint", "assistant", "checkpoint"]
    steps += ["confirm", "intent:id-send", "secure", "run:id-send", "result:id-send"]
    assert turn.events == steps[: steps.index(event)]
    assert len(turn.model.asked) == (0 if event == "checkpoint" else 1)


async def test_a_lost_lease_in_one_of_several_tools_ends_the_others() -> None:
    """The error goes up bare, and no tool is left running."""
    cancelled = asyncio.Event()

    async def hang(*_: Any) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    async def lost(*_: Any) -> str:
        raise LeaseLost("gone")

    turn = Turn([calls(call("a"), call("b"))], RecordingTool("a", behaviour=hang), RecordingTool("b", behaviour=lost))
    with pytest.raises(LeaseLost):
        await turn.run()
    assert cancelled.is_set()


async def test_a_cancelled_turn_leaves_no_tool_running() -> None:
    """A drain that runs out of patience cancels; the intent tells the successor what it must not repeat."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def hang(*_: Any) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    turn = Turn([calls(call("send"))], RecordingTool("send", "unsafe", behaviour=hang))
    task = asyncio.create_task(turn.run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert turn.events[-3:] == ["intent:id-send", "secure", "run:id-send"]


class Meddling(AgentHook):
    """Uses everything that a hook may do."""

    wants_streaming = True

    def __init__(self) -> None:
        self.deltas: list[str] = []
        self.done: list[IterationDone] = []

    async def before_iteration(self, context: Iteration) -> None:
        context.messages = [*context.messages, {"role": "user", "content": f"round {context.round}", "junk": 1}]

    async def on_stream(self, delta: str) -> None:
        self.deltas.append(delta)

    async def on_stream_end(self) -> None:
        self.deltas.append("<end>")

    async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> Mapping[str, str]:
        return {request.id: "not on Sundays" for request in calls if request.name == "send"}

    async def after_iteration(self, result: IterationDone) -> None:
        self.done.append(result)

    async def finalize_content(self, text: str) -> str:
        return text.upper()


@pytest.mark.parametrize("composed", [False, True])
async def test_a_hook_may_add_refuse_listen_and_finish(composed: bool) -> None:
    """Each of its methods has its effect, alone and in company."""
    tool = RecordingTool("send", "unsafe")
    meddling = Meddling()
    turn = Turn([calls(call("send"), call("look")), "<think>x</think>all done"], tool, RecordingTool("look"))
    result = await turn.run(hook=CompositeHook([meddling]) if composed else meddling, progress=NULL_PORTS)
    assert result.content == "ALL DONE"
    last = result.entries[-1]
    assert last.content == "ALL DONE"
    assert tool.runs == []
    assert turn.model.asked[0][-1] == {"role": "user", "content": "round 1"}
    refusal = next(str(m["content"]) for m in turn.model.asked[1] if m["role"] == "tool")
    assert "not on Sundays" in refusal
    assert "confirm" not in turn.events
    assert meddling.deltas == ["<end>", "all", " done", "<end>"]
    assert [(done.round, len(done.calls), [entry.ok for entry in done.results]) for done in meddling.done] == [
        (1, 2, [False, True]),
        (2, 0, []),
    ]


async def test_half_characters_from_a_hook_do_not_end_a_turn() -> None:
    """What it says is stored like everything else."""

    class Odd(AgentHook):
        async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> Mapping[str, str]:
            return {request.id: "no \ud83d" for request in calls}

        async def finalize_content(self, text: str) -> str:
            return f"{text} \ude00"

    turn = Turn([calls(call("look")), "done"], RecordingTool("look"))
    result = await turn.run(hook=Odd())
    assert result.content == "done ?"
    assert "was refused: no ?." in str(turn.seen(1)[1][1])
    msgspec.msgpack.encode(result.entries)


async def test_without_an_audience_the_model_does_not_stream() -> None:
    """Streaming costs; it is for somebody."""
    streamed: list[bool] = []

    class Watched(ScriptedModel):
        async def chat(self, request: ModelRequest, on_delta: OnDelta | None = None) -> LLMResponse:
            streamed.append(on_delta is not None)
            return await super().chat(request, on_delta)

    turn = Turn(["x", "x"])
    turn.model = Watched(["x", "x"])
    await turn.run(progress=NULL_PORTS)
    await turn.run()
    assert streamed == [False, True]


async def test_half_characters_from_a_model_do_not_end_a_turn() -> None:
    """A provider may cut an emoji in two; no codec can write the halves."""
    raw = '{"text": "\ud83d"}'
    odd = calls(ToolCallRequest("i\udc00", "look me", parse_arguments(raw), raw), text="a\ud83d")
    turn = Turn([odd, "b\ude00"], RecordingTool("look"))
    result = await turn.run()
    assert result.content == "b?"
    msgspec.msgpack.encode(result.entries)
    assert turn.model.asked[1][2]["tool_calls"][0]["function"]["name"] == "look_me"
