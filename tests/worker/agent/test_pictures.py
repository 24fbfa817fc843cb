"""Pictures of files: seen in the turn that looked at them, within bounds, and in no later one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from shared.errors import ModelError, ToolFailed
from shared.messages.transcript import AssistantEntry, LedgerEntry, ToolCall, ToolEntry
from tests.helpers.scripted_model import Replies, ScriptedModel, call, calls
from tests.helpers.turn_borders import AnyArguments, MemoryJournal, RecordingTool
from tests.worker.agent.turns import SPEC
from worker.agent.limits import IMAGE_TOKENS, Budget
from worker.agent.loop import run_agent
from worker.agent.model.compact import Compacted
from worker.agent.model.context_window import MARK, REFUSED, TURN_PICTURES
from worker.agent.model.model import Image, image_part
from worker.agent.tools.tool import ToolContext, ToolResult
from worker.agent.tools.toolbox import Toolbox
from worker.agent.turn import AgentResult

BLIND = ModelError("bad_request", "no pictures", retryable=False)


class Wall:
    """Pictures by their paths; a path without one is refused."""

    def __init__(self, *paths: str) -> None:
        self.pictures = {path: Image("image/png", path.encode()) for path in paths}
        self.looked_at: list[str] = []

    async def picture(self, path: str) -> Image:
        self.looked_at.append(path)
        if path not in self.pictures:
            raise ToolFailed(f"there is no file {path!r}")
        return self.pictures[path]


async def looked(arguments: AnyArguments, _: ToolContext) -> ToolResult:
    return ToolResult(f"({arguments.text!r} is a picture)", (arguments.text,))


class Looking:
    """A turn with a tool that looks at pictures."""

    def __init__(self, wall: Wall, replies: Replies, *resume: LedgerEntry, **spec: Any) -> None:
        self.model = ScriptedModel(replies)
        self.journal = MemoryJournal()
        self.spec = replace(SPEC, pictures=wall, resume=resume, **spec)

    async def run(self, **more: Any) -> AgentResult:
        tools = Toolbox([RecordingTool("look", "read_only", behaviour=looked)])
        return await run_agent(replace(self.spec, **more), self.model, tools, self.journal)

    def shown(self, nth: int = -1) -> list[Any]:
        """What hangs on the walls in the nth call, without the question."""
        contents = [m["content"] for m in self.model.asked[nth] if m["role"] == "user"][1:]
        return [content for content in contents if MARK in str(content)]


def look(*paths: str) -> Any:
    return calls(*(call("look", {"text": path}, id=f"c-{path}") for path in paths))


async def test_a_picture_stands_behind_all_results_of_its_reply() -> None:
    """In a message of the user, because providers take none in a tool's; the results stay together."""
    turn = Looking(Wall("a.png", "b.png"), [look("a.png", "b.png"), "two pictures"])
    assert (await turn.run()).content == "two pictures"
    asked = turn.model.asked[-1]
    assert [m["role"] for m in asked[2:]] == ["assistant", "tool", "tool", "user"]
    assert [m["content"] for m in asked[3:5]] == ["('a.png' is a picture)", "('b.png' is a picture)"]
    *pictures, text = asked[-1]["content"]
    assert pictures == [image_part(Image("image/png", b"a.png")), image_part(Image("image/png", b"b.png"))]
    assert text == {"type": "text", "text": f"{MARK}\n'a.png', 'b.png'"}


async def test_it_is_read_once_and_stays_for_the_turn() -> None:
    """What was sent before is the same bytes in every round, so that a cache hits."""
    wall = Wall("a.png")
    turn = Looking(wall, [look("a.png"), calls(call("look", {"text": "b.png"})), "done"])
    await turn.run()
    second, third = turn.model.asked[1:]
    assert third[: len(second)] == second
    assert wall.looked_at == ["a.png", "b.png"]


async def test_history_and_the_ledger_have_no_picture() -> None:
    """The ledger names it, for a successor; history does not even do that."""
    turn = Looking(Wall("a.png"), [look("a.png"), "done"])
    result = await turn.run()
    [kept] = [entry for entry in result.entries if isinstance(entry, ToolEntry)]
    assert (kept.content, kept.images) == ("('a.png' is a picture)", ())
    [written] = [entry for entry in turn.journal.entries if isinstance(entry, ToolEntry)]
    assert written.images == ("a.png",)


async def test_a_resumed_turn_shows_them_again() -> None:
    """Also those of earlier rounds, each behind the results of its own reply."""
    wall = Wall("a.png", "b.png")
    ledger: list[LedgerEntry] = [
        AssistantEntry(content=None, turn=7, tool_calls=(ToolCall("1", "look", '{"text":"a.png"}'),)),
        ToolEntry(call_id="1", name="look", content="seen", turn=7, images=("a.png",)),
        AssistantEntry(content=None, turn=7, tool_calls=(ToolCall("2", "look", '{"text":"b.png"}'),)),
    ]
    turn = Looking(wall, ["done"], *ledger)
    await turn.run()
    assert [m["role"] for m in turn.model.asked[0][2:]] == ["assistant", "tool", "user", "assistant", "tool", "user"]
    assert [len(content) for content in turn.shown()] == [2, 2]
    assert wall.looked_at == ["a.png", "b.png"]


async def test_only_so_many_are_shown_in_a_turn() -> None:
    """What is beyond is said; the call itself has worked."""
    paths = [f"{n}.png" for n in range(TURN_PICTURES + 1)]
    wall = Wall(*paths)
    turn = Looking(wall, [look(*paths), "done"])
    await turn.run()
    [[*pictures, text]] = turn.shown()
    assert len(pictures) == TURN_PICTURES
    assert f"'{TURN_PICTURES}.png' (not shown: {TURN_PICTURES} pictures" in text["text"]
    assert wall.looked_at == paths[:-1]


async def test_a_picture_that_is_gone_by_then_is_named() -> None:
    """As after a removal between two attempts."""
    turn = Looking(Wall(), [look("a.png"), "done"])
    assert (await turn.run()).content == "done"
    assert turn.shown() == [f"{MARK}\n'a.png' (not shown: there is no file 'a.png')"]


async def test_a_model_that_takes_no_pictures_is_asked_again_without() -> None:
    """Looking at a file must not end a turn; and it is not tried again in this one."""
    turn = Looking(Wall("a.png", "b.png"), [look("a.png"), BLIND, look("b.png"), "blind"])
    assert (await turn.run()).content == "blind"
    assert isinstance(turn.shown(1)[0], list)
    assert turn.shown(2) == [f"{MARK}\n'a.png': {REFUSED}"]
    assert "'b.png' (not shown" in turn.shown(3)[1]


async def test_a_refusal_of_something_else_goes_up() -> None:
    """Without pictures there is nothing to leave out."""
    with pytest.raises(ModelError):
        await Looking(Wall(), [BLIND]).run()


@pytest.mark.parametrize(("room", "compacted"), [(TURN_PICTURES * IMAGE_TOKENS, True), (20_000, False)])
async def test_they_count_when_a_prompt_is_measured(room: int, compacted: bool) -> None:
    """A prompt that would fit without them is compacted."""
    asked: list[int] = []

    async def compact(messages: Sequence[Any], *, task: Any, keep: int, aim_tokens: int) -> Compacted:
        asked.append(len(messages))
        return Compacted([*messages])

    paths = [f"{n}.png" for n in range(TURN_PICTURES)]
    budget = Budget(context_tokens=room + 2048, max_output_tokens=1024, compact_at=1.0)
    assert budget.prompt_tokens == room
    turn = Looking(
        Wall(*paths), [look(*paths), "done"], context_tokens=room + 2048, max_tokens=1024, compact_at=1.0
    )  # fmt: skip
    await turn.run(compact=compact)
    assert bool(asked) is compacted


async def test_a_path_that_no_codec_can_write_ends_no_turn() -> None:
    """A plugin may answer anything."""

    async def odd(arguments: AnyArguments, _: ToolContext) -> ToolResult:
        return ToolResult("seen", ("\ud800.png",))

    model = ScriptedModel([look("x"), "done"])
    tools = Toolbox([RecordingTool("look", "read_only", behaviour=odd)])
    result = await run_agent(replace(SPEC, pictures=Wall()), model, tools, MemoryJournal())
    assert result.content == "done"
    assert "'?.png' (not shown" in str(model.asked[-1][-1]["content"])
