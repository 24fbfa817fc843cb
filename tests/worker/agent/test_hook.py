"""Hooks watch a turn and change a little of it; they never end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from shared.settings import AgentSettings
from tests.helpers.scripted_model import call
from worker.agent.composite_hook import CALL_LIMIT_S, CompositeHook
from worker.agent.hook import AgentHook, Iteration, IterationDone
from worker.agent.model.model import TokenUsage, ToolCallRequest

CONTEXT = Iteration("s", 1, 1, [])
DONE = IterationDone(session="s", turn=1, round=1, model="m", finish_reason="stop", usage=TokenUsage(), seconds=0.0)


class Noting(AgentHook):
    """Writes down what it hears."""

    def __init__(self, name: str, notes: list[str], *, streaming: bool = False) -> None:
        self.name, self.notes, self.wants_streaming = name, notes, streaming

    async def before_iteration(self, context: Iteration) -> None:
        self.notes.append(f"{self.name} before")

    async def on_stream(self, delta: str) -> None:
        self.notes.append(f"{self.name} {delta}")

    async def on_stream_end(self) -> None:
        self.notes.append(f"{self.name} end")

    async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> Mapping[str, str]:
        return {calls[0].id: self.name}

    async def after_iteration(self, result: IterationDone) -> None:
        self.notes.append(f"{self.name} after")

    async def finalize_content(self, text: str) -> str:
        return f"{text} {self.name}"


class Broken(AgentHook):
    """Breaks everywhere."""

    wants_streaming = True

    def __init__(self, fault: Any) -> None:
        self.fault = fault

    async def _break(self) -> Any:
        if isinstance(self.fault, BaseException):
            raise self.fault
        return self.fault

    async def before_iteration(self, context: Iteration) -> None:
        await self._break()

    async def on_stream(self, delta: str) -> None:
        await self._break()

    async def on_stream_end(self) -> None:
        await self._break()

    async def before_execute_tools(self, calls: Sequence[ToolCallRequest]) -> Any:
        return await self._break()

    async def after_iteration(self, result: IterationDone) -> None:
        await self._break()

    async def finalize_content(self, text: str) -> Any:
        return await self._break()


async def every_event(hook: AgentHook) -> tuple[Mapping[str, str], str]:
    await hook.before_iteration(CONTEXT)
    await hook.on_stream("delta")
    await hook.on_stream_end()
    refused = await hook.before_execute_tools([call("look", id="1")])
    await hook.after_iteration(DONE)
    return refused, await hook.finalize_content("text")


async def test_hooks_are_called_in_the_order_given() -> None:
    """The first refusal of a call counts; the final text goes through all."""
    notes: list[str] = []
    both = CompositeHook([Noting("a", notes), Noting("b", notes, streaming=True)])
    assert await every_event(both) == ({"1": "a"}, "text a b")
    assert notes == ["a before", "b before", "b delta", "b end", "a after", "b after"]


def test_streaming_is_wanted_when_one_member_wants_it() -> None:
    """Only then the model is asked to stream for the hooks."""
    assert CompositeHook([AgentHook(), Noting("a", [], streaming=True)]).wants_streaming
    assert not CompositeHook([AgentHook(), Noting("a", [])]).wants_streaming
    assert not CompositeHook().wants_streaming


@pytest.mark.parametrize("fault", [ValueError("broken"), asyncio.CancelledError()])
async def test_a_hook_that_raises_is_reported_and_the_others_go_on(fault: BaseException) -> None:
    """A third party's bug is a line in the log."""
    notes: list[str] = []
    seen: list[str] = []
    hook = CompositeHook([Broken(fault), Noting("b", notes)], report=lambda where, exc: seen.append(where))
    assert await every_event(hook) == ({"1": "b"}, "text b")
    assert notes == ["b before", "b after"]
    events = [where.partition(".")[2] for where in seen]
    assert events == [
        "before_iteration",
        "on_stream",
        "on_stream_end",
        "before_execute_tools",
        "after_iteration",
        "finalize_content",
    ]
    assert seen[0] == "hook Broken.before_iteration"


async def test_an_answer_of_the_wrong_kind_is_reported_and_ignored() -> None:
    """The text of a turn stays text."""
    seen: list[BaseException] = []
    hook = CompositeHook([Broken(5)], report=lambda where, exc: seen.append(exc))
    assert await every_event(hook) == ({}, "text")
    assert [type(exc) for exc in seen] == [TypeError, TypeError]


@pytest.mark.parametrize("answer", [{"1": 5}, {5: "no"}, ["1"], "no", {"1": None}])
async def test_a_refusal_that_is_no_text_refuses_nothing(answer: Any) -> None:
    """What cannot be told to the model is a bug of the hook."""
    seen: list[BaseException] = []
    hook = CompositeHook([Broken(answer), Noting("b", [])], report=lambda where, exc: seen.append(exc))
    assert await hook.before_execute_tools([call("look", id="1")]) == {"1": "b"}
    assert len(seen) == 1


MESSAGES: list[dict[str, Any]] = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]


class Changing(AgentHook):
    """Does something to the messages of a round."""

    def __init__(self, change: Callable[[Iteration], None]) -> None:
        self.change = change

    async def before_iteration(self, context: Iteration) -> None:
        self.change(context)


def put(messages: Any) -> Callable[[Iteration], None]:
    return lambda context: setattr(context, "messages", messages)


def spoil(context: Iteration) -> None:
    context.messages[1]["content"] = "spoilt"
    context.messages.append({"role": "user", "content": "half"})
    raise ValueError("broken")


@pytest.mark.parametrize(
    "change",
    [
        spoil,
        put(None),
        put("messages"),
        put([5]),
        put([{"content": "no role"}]),
        put([{"role": 5}]),
        put([{"role": "user", "content": 5}]),
        put([{"role": "user", "content": [5]}]),
        put([{"role": "user", "content": "half a character \ud800"}]),
        put([{"role": "user", "content": "x", "tool_calls": [object()]}]),
        lambda context: context.messages[0].pop("role"),
    ],
)
async def test_what_a_broken_hook_did_to_the_messages_is_undone(change: Any) -> None:
    """Those before it count, those behind it go on from there, and the turn has messages that can be sent."""
    seen: list[str] = []
    adds = Changing(lambda context: context.messages.append({"role": "user", "content": "added"}))
    hook = CompositeHook([adds, Changing(change), adds], report=lambda where, exc: seen.append(where))
    context = Iteration("s", 1, 1, [dict(message) for message in MESSAGES])
    await hook.before_iteration(context)
    assert context.messages == [*MESSAGES, *[{"role": "user", "content": "added"}] * 2]
    assert seen == ["hook Changing.before_iteration"]


async def test_for_hooks_that_only_look_no_message_is_copied() -> None:
    """A long conversation would be copied in every round, once for each of them."""

    class Looks(AgentHook):
        changes_messages = False

        def __init__(self) -> None:
            self.seen: list[Any] = []

        async def before_iteration(self, context: Iteration) -> None:
            self.seen.append(context.messages)

    looks = Looks()
    hook = CompositeHook([AgentHook(), looks, looks])
    messages = [dict(message) for message in MESSAGES]
    context = Iteration("s", 1, 1, messages)
    await hook.before_iteration(context)
    assert [seen is messages for seen in (*looks.seen, context.messages)] == [True, True, True]
    assert not hook.changes_messages
    assert not CompositeHook([AgentHook()]).changes_messages
    assert CompositeHook([looks, Changing(lambda _: None)]).changes_messages


async def test_a_hook_that_is_too_slow_for_the_messages_changes_none() -> None:
    """Whatever it had done until then."""

    class Slow(AgentHook):
        async def before_iteration(self, context: Iteration) -> None:
            context.messages.clear()
            await asyncio.Event().wait()

    context = Iteration("s", 1, 1, list(MESSAGES))
    await CompositeHook([Slow()], call_limit_s=0.01).before_iteration(context)
    assert context.messages == MESSAGES


async def test_a_hook_that_is_too_slow_for_a_delta_hears_no_more_for_a_while() -> None:
    """A reply has hundreds of deltas; the turn waits for one of them, and the other hooks hear all."""
    waited = 0

    class Slow(AgentHook):
        wants_streaming = True

        async def on_stream(self, delta: str) -> None:
            nonlocal waited
            waited += 1
            await asyncio.Event().wait()

    notes: list[str] = []
    hook = CompositeHook([Slow(), Noting("b", notes, streaming=True)], call_limit_s=0.01)
    for delta in "abc":
        await hook.on_stream(delta)
    assert waited == 1
    assert notes == ["b a", "b b", "b c"]


def test_the_limit_of_a_call_is_a_second() -> None:
    """As it is documented."""
    assert CALL_LIMIT_S == 1.0
    assert AgentSettings().hook_s == CALL_LIMIT_S


@pytest.mark.parametrize(
    "event", ["before_iteration", "on_stream", "on_stream_end", "before_execute_tools", "after_iteration"]
)
async def test_every_call_has_its_limit(event: str) -> None:
    """None of them can hold a turn."""

    class Hanging(AgentHook):
        wants_streaming = True

    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    hanging = Hanging()
    setattr(hanging, event, hang)
    seen: list[str] = []
    notes: list[str] = []
    hooks = [hanging, Noting("b", notes, streaming=True)]
    hook = CompositeHook(hooks, report=lambda where, exc: seen.append(f"{where} {exc!r}"), call_limit_s=0.01)
    assert (await every_event(hook))[1] == "text b"
    assert seen == [f"hook Hanging.{event} TimeoutError()"]
    assert notes == ["b before", "b delta", "b end", "b after"]


async def test_a_hook_that_hangs_is_passed_over() -> None:
    """A call has a limit; the turn does not wait longer."""

    class Hanging(AgentHook):
        async def finalize_content(self, text: str) -> str:
            await asyncio.Event().wait()
            return "never"

    seen: list[BaseException] = []
    hook = CompositeHook([Hanging()], report=lambda where, exc: seen.append(exc), call_limit_s=0.01)
    assert await hook.finalize_content("text") == "text"
    assert [type(exc) for exc in seen] == [TimeoutError]


async def test_cancelling_the_turn_goes_through_a_hook() -> None:
    """A drain is not taken for a hook's bug."""
    inside = asyncio.Event()

    class Hanging(AgentHook):
        async def before_iteration(self, context: Iteration) -> None:
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(CompositeHook([Hanging()]).before_iteration(CONTEXT))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
