"""The text of a turn, while it is being said, for whoever asks for it."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from shared.messages.transcript import UserEntry
from tests.helpers.scripted_model import Broken, Replies, ScriptedModel, call, calls
from tests.helpers.turn_borders import MemoryJournal, RecordingTool
from tests.worker.agent.turns import BUSY, SPEC
from worker.agent.composite_hook import CompositeHook
from worker.agent.loop import run_agent
from worker.agent.tools.toolbox import Toolbox
from worker.hooks.streaming import StreamingHook

Deltas = list[tuple[str, int, str | None]]


def listening(deltas: Deltas) -> StreamingHook:
    async def deliver(session: str, turn: int, text: str | None) -> None:
        await asyncio.sleep(0)
        deltas.append((session, turn, text))

    return StreamingHook(deliver)


async def run(hook: CompositeHook | StreamingHook, replies: Replies, session: str = "s", turn: int = 7) -> None:
    spec = replace(SPEC, session=session, entry=UserEntry(content="q", turn=turn), hook=hook)
    await run_agent(spec, ScriptedModel(replies), Toolbox([RecordingTool("look")]), MemoryJournal())


async def test_every_delta_and_every_end_is_handed_on() -> None:
    """Without thoughts; an end stands behind the text of each round. Nobody else has to watch."""
    deltas: Deltas = []
    await run(listening(deltas), [calls(call("look"), text="I look."), "<think>hm</think>it is up"])
    assert [text for _, _, text in deltas] == ["I", " look.", None, "it", " is", " up", None]
    assert {(session, turn) for session, turn, _ in deltas} == {("s", 7)}


async def test_a_text_that_is_reset_ends_too() -> None:
    """What follows is the whole text anew."""
    deltas: Deltas = []
    await run(listening(deltas), [Broken(BUSY, ("half",)), "whole"])
    assert [text for _, _, text in deltas] == ["half", None, "whole", None]


async def test_turns_that_share_a_hook_are_kept_separate() -> None:
    """A worker has one set of hooks and many turns at once."""
    deltas: Deltas = []
    hook = CompositeHook([listening(deltas)])
    assert hook.wants_streaming
    async with asyncio.TaskGroup() as group:
        for n in range(20):
            group.create_task(run(hook, [f"a {n}", "never"], session=f"s{n}", turn=n))
    assert len(deltas) == 20 * 3
    for n in range(20):
        assert [one for one in deltas if one[0] == f"s{n}"] == [(f"s{n}", n, text) for text in ("a", f" {n}", None)]


async def test_a_listener_that_breaks_does_not_end_the_turn() -> None:
    """It is a hook like every other."""

    async def broken(*_: object) -> None:
        raise ConnectionError("gone")

    seen: list[str] = []
    hook = CompositeHook([StreamingHook(broken)], report=lambda where, exc: seen.append(where))
    await run(hook, ["one two"])
    assert seen == ["hook StreamingHook.on_stream"] * 2 + ["hook StreamingHook.on_stream_end"]
