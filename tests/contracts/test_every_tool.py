"""One suite for every Tool: what the loop and the providers rely on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pytest

from tests.helpers.text_files import TextFiles
from worker.agent.model import ToolCallRequest
from worker.agent.schema import names_of
from worker.agent.tool import NO_FILES, FileEntry, Files, Safety, Tool, Toolbox, ToolContext
from worker.tools.registry import TOOLS, build_tools

GOOD: dict[str, dict[str, Any]] = {
    "calculate": {"expression": "1 + 1"},
    "current_time": {"timezone": "UTC"},
    "roll_dice": {"count": 2},
    "read_file": {"path": "MEMORY.md", "offset": 1, "limit": 10},
    "write_file": {"path": "MEMORY.md", "content": "- Ada likes coffee"},
    "edit_file": {"path": "MEMORY.md", "old_text": "tea", "new_text": "coffee"},
    "list_dir": {"path": "skills"},
    "glob": {"pattern": "**/*.md"},
    "grep": {"words": "likes", "path": "MEMORY.md", "limit": 5},
}
"""Arguments with which each tool works. A new tool gets a line here."""

FILES = {
    "MEMORY.md": "- Ada likes tea\n",
    "HISTORY.md": "[2026-11-21 14:05] They met.",
    "skills/recap/SKILL.md": "Sum up.",
}
HARMLESS = sorted(tool.name for tool in build_tools() if tool.safety != "unsafe")


def context(files: Files | None = None) -> ToolContext:
    """The call of a turn, with files of its own."""
    given = TextFiles(FILES) if files is None else files
    return ToolContext(session="web:ada/main", turn=1, call_id="c1", channel="web", chat_id="ada/main", files=given)


@pytest.fixture(params=sorted(TOOLS))
def tool(request: pytest.FixtureRequest) -> Tool:
    (built,) = build_tools([request.param])
    assert built.name == request.param
    return built


def request_of(tool: Tool, arguments: dict[str, Any]) -> ToolCallRequest:
    return ToolCallRequest("c1", tool.name, arguments, msgspec.json.encode(arguments).decode())


def test_it_says_what_it_is(tool: Tool) -> None:
    """A name that every provider takes, a description, a class, a time."""
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,63}", tool.name)
    assert 20 <= len(tool.description) <= 500
    assert tool.safety in get_args(Safety)
    assert 0 < tool.timeout_s <= 600


def test_every_parameter_is_described_in_a_schema_of_one_object(tool: Tool) -> None:
    """The description is all that a model knows; unknown parameters are refused by name."""
    (spec,) = Toolbox([tool]).specs()
    assert spec.parameters["type"] == "object"
    assert spec.parameters["additionalProperties"] is False
    assert "$ref" not in msgspec.json.encode(spec).decode()
    for name, field in spec.parameters["properties"].items():
        assert field.get("description"), f"the parameter {name!r} of {tool.name!r} has no description"


async def test_it_works(tool: Tool) -> None:
    """Good arguments give text."""
    outcome = await Toolbox([tool]).call(request_of(tool, GOOD[tool.name]), context())
    assert outcome.ok, outcome.content
    assert outcome.content


async def test_an_unknown_parameter_is_named(tool: Tool) -> None:
    """A model that invents one learns what there is."""
    outcome = await Toolbox([tool]).call(request_of(tool, GOOD[tool.name] | {"colour": "red"}), context())
    assert outcome.outcome == "bad_arguments"
    assert "colour" in outcome.content


async def test_wrong_kinds_never_raise(tool: Tool) -> None:
    """Whatever JSON stands in a parameter, the answer is a result or an error that begins with `Error: `."""
    values: list[Any] = [None, True, -1, 10**30, 1.5, "", "x" * 10_000, "\x00", [], [[]], {}, {"a": {}}]
    for field in names_of(tool.parameters):
        for value in values:
            outcome = await Toolbox([tool]).call(request_of(tool, GOOD[tool.name] | {field: value}), context())
            assert outcome.ok or outcome.content.startswith("Error: ")
            assert outcome.outcome in ("ok", "failed", "bad_arguments"), outcome


async def test_one_tool_serves_many_turns_at_once(tool: Tool) -> None:
    """It keeps nothing of a call."""
    box = Toolbox([tool])
    outcomes = await asyncio.gather(*(box.call(request_of(tool, GOOD[tool.name]), context()) for _ in range(20)))
    assert all(outcome.ok for outcome in outcomes)


async def test_without_files_it_works_or_says_why(tool: Tool) -> None:
    """An agent that has no files, such as a subagent, gets an error that it can read."""
    outcome = await Toolbox([tool]).call(request_of(tool, GOOD[tool.name]), context(NO_FILES))
    assert outcome.ok or outcome.outcome == "failed"
    assert outcome.content


@pytest.mark.parametrize("tool", HARMLESS, indirect=True)
async def test_a_second_call_changes_nothing_more(tool: Tool) -> None:
    """A turn that goes on elsewhere calls an unfinished tool again: the files are the same as after one call."""
    once, twice = TextFiles(FILES), TextFiles(FILES)
    for files, times in ((once, 1), (twice, 2)):
        for _ in range(times):
            assert (await Toolbox([tool]).call(request_of(tool, GOOD[tool.name]), context(files))).ok
    assert twice.texts == once.texts
    assert tool.safety == "idempotent" or once.texts == FILES


class NeverAnswering(TextFiles):
    """Files on a volume that is away."""

    async def content(self, path: str) -> str | bytes:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def read(self, path: str) -> str:
        return str(await self.content(path))

    async def replace(self, path: str, text: str, *, was: str | None) -> None:
        await self.content(path)

    async def entries(self) -> Sequence[FileEntry]:
        await self.content("")
        return ()

    async def names(self) -> Sequence[str]:
        return [entry.path for entry in await self.entries()]


async def test_a_cancelled_call_leaves_nothing_running(tool: Tool) -> None:
    """Neither a task nor a thread that works on: the turn belongs to another worker by then."""
    before = asyncio.all_tasks()
    running = asyncio.create_task(
        Toolbox([tool]).call(request_of(tool, GOOD[tool.name]), context(NeverAnswering(FILES)))
    )
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert asyncio.all_tasks() == before
    await asyncio.wait_for(asyncio.get_running_loop().shutdown_default_executor(), timeout=5)


async def test_no_result_is_over_its_limit(tool: Tool) -> None:
    """Also with huge files behind it: what is left out is said."""
    limit_bytes = 10_000
    huge = TextFiles(
        dict.fromkeys(FILES, "- Ada likes tea and é\n" * 20_000) | {f"skills/{n:05}.md": "" for n in range(3000)}
    )
    outcome = await Toolbox([tool], result_limit_bytes=limit_bytes).call(
        request_of(tool, GOOD[tool.name]), context(huge)
    )
    assert len(outcome.content.encode()) <= limit_bytes + 200
