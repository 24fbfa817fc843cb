"""Nothing a tool does can end a turn."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import LeaseLost, ToolFailed, TurnStopped
from shared.redaction import redact
from tests.helpers.scripted_model import call
from tests.helpers.turn_borders import AnyArguments, RecordingTool
from worker.agent.model.model import ToolCallRequest
from worker.agent.ports import Files, NullPorts
from worker.agent.tools.schema import object_schema
from worker.agent.tools.text import EXCEPTION_CHARS, cut, describe_exception
from worker.agent.tools.tool import ToolContext, ToolOutcome, ignore_report
from worker.agent.tools.toolbox import Toolbox

CONTEXT = ToolContext(session="s", turn=1, call_id="1")


async def outcome_of(behaviour: Any, *, timeout_s: float = 5.0, limit_bytes: int = 10_240) -> ToolOutcome:
    tool = RecordingTool("probe", behaviour=behaviour, timeout_s=timeout_s)
    return await Toolbox([tool], result_limit_bytes=limit_bytes).call(call("probe"), CONTEXT)


async def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    """The model can correct itself."""
    got = await Toolbox([RecordingTool("look"), RecordingTool("see")]).call(call("lock"), CONTEXT)
    assert got.outcome == "unknown_tool"
    assert "'lock'" in got.content
    assert "look, see" in got.content


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"number": "many"}, "$.number"), ({"text": 5}, "$.text"), ({"number": []}, "$.number"), (None, "JSON object")],
)
async def test_bad_arguments_are_answered_with_the_field(arguments: dict[str, Any] | None, says: str) -> None:
    """The error names what is wrong; the tool does not run."""
    tool = RecordingTool("probe")
    got = await Toolbox([tool]).call(ToolCallRequest("1", "probe", arguments, "raw"), CONTEXT)
    assert (got.outcome, tool.runs) == ("bad_arguments", [])
    assert says in got.content
    assert got.content.startswith("Error: ")


async def test_numbers_written_as_text_are_accepted() -> None:
    """Models often quote a number; that is no reason to ask again."""
    tool = RecordingTool("probe")
    assert (await Toolbox([tool]).call(call("probe", {"number": "7"}), CONTEXT)).ok
    assert tool.runs == [AnyArguments(number=7)]


async def test_what_a_tool_says_went_wrong_reaches_the_model() -> None:
    """ToolFailed is a message to the model."""

    async def fail(*_: Any) -> str:
        raise ToolFailed("no file 'a.txt'; list the folder first")

    assert await outcome_of(fail) == ToolOutcome("Error: no file 'a.txt'; list the folder first", "failed")


async def test_a_bug_in_a_tool_is_reported_and_the_model_reads_its_text_without_secrets() -> None:
    """So that it can correct itself. The log gets the exception, too."""
    seen: list[tuple[str, BaseException]] = []

    async def broken(*_: Any) -> str:
        raise ValueError("no such\n  day: 31 June; asked with correct-horse-battery.")

    redact("correct-horse-battery")
    box = Toolbox([RecordingTool("probe", behaviour=broken)], report=lambda where, exc: seen.append((where, exc)))
    got = await box.call(call("probe"), CONTEXT)
    assert got.outcome == "error"
    text = "'probe' broke with ValueError: no such day: 31 June; asked with ***. Try other arguments"
    assert got.content == f"Error: {text}, or go on without it."
    assert [(where, type(exc)) for where, exc in seen] == [("tool probe", ValueError)]


class Mute(Exception):
    """An exception that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError


def test_the_text_of_an_exception_has_a_limit_and_no_half_secret() -> None:
    """Also where the limit cuts through one, and where spaces are folded."""
    redact("correct horse battery")
    text = describe_exception(ValueError("x" * 480 + "correct horse battery" + "y" * 10**6))
    assert len(text) == EXCEPTION_CHARS
    assert "horse" not in text
    assert "correct" not in describe_exception(ValueError("x" + " " * 9_990 + "correct horse battery"))
    assert (describe_exception(KeyError()), describe_exception(Mute())) == ("KeyError", "Mute")


async def test_a_tool_that_takes_too_long_is_stopped() -> None:
    """Its time is its own; a TimeoutError from inside is a bug and no time-out."""
    ended = asyncio.Event()

    async def hang(*_: Any) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async def inner_timeout(*_: Any) -> str:
        raise TimeoutError

    got = await outcome_of(hang, timeout_s=0.01)
    assert got.outcome == "timeout"
    assert "0.01 s" in got.content
    assert ended.is_set()
    assert (await outcome_of(inner_timeout)).outcome == "error"


async def test_cancellation_from_outside_goes_through_and_one_from_inside_does_not() -> None:
    """A drain can end a tool; a tool cannot end a turn by cancelling itself."""

    async def cancels_itself(*_: Any) -> str:
        raise asyncio.CancelledError

    assert (await outcome_of(cancels_itself)).outcome == "error"
    started = asyncio.Event()

    async def hang(*_: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    task = asyncio.create_task(outcome_of(hang))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("fault", [LeaseLost("lost"), TurnStopped()])
async def test_what_ends_the_turn_goes_up(fault: BaseException) -> None:
    """A tool that writes to the store may learn that the turn is not ours any more."""

    async def lost(*_: Any) -> str:
        raise fault

    with pytest.raises(type(fault)):
        await outcome_of(lost)


async def test_a_result_is_text_that_can_be_stored() -> None:
    """Half characters are replaced; something that is no text is a bug of the tool."""

    async def half(*_: Any) -> str:
        return "a\ud800b"

    async def number(*_: Any) -> int:
        return 5

    assert (await outcome_of(half)).content == "a?b"
    assert (await outcome_of(number)).outcome == "error"


async def test_a_long_result_is_cut_and_says_so() -> None:
    """The model must know that there was more, and how much."""

    async def long(*_: Any) -> str:
        return "x" * 15_000

    got = await outcome_of(long, limit_bytes=10_000)
    assert got.content.startswith("x" * 10_000 + "\n\n[cut: 5,000 of 15,000 bytes")
    assert got.ok


class Shelf(NullPorts):
    """Files that keep what is written, or fail."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.kept: dict[str, str] = {}
        self.fault = fault

    async def replace(self, path: str, text: str, *, was: str | None) -> None:
        assert was is None
        if self.fault is not None:
            raise self.fault
        self.kept[path] = text


async def long_outcome(files: Files, text: str, *, id: str = "1", report: Any = ignore_report) -> ToolOutcome:
    async def long(*_: Any) -> str:
        return text

    box = Toolbox([RecordingTool("probe", behaviour=long)], result_limit_bytes=1_000, report=report)
    return await box.call(call("probe"), msgspec.structs.replace(CONTEXT, turn=7, call_id=id, files=files))


async def test_the_whole_of_a_long_result_is_kept_where_the_note_says() -> None:
    """The model can read the rest; ids that are no file names make one all the same."""
    shelf, text = Shelf(), "é" * 900
    got = await long_outcome(shelf, text, id="../call:1")
    assert shelf.kept == {"results/7-___call_1.txt": text}
    assert got.ok
    assert got.content == (
        "é" * 500 + "\n\n[cut: 800 of 1,800 bytes are left out; the whole is in the file 'results/7-___call_1.txt']"
    )


async def test_a_result_within_the_limit_is_not_kept() -> None:
    """It is whole in the conversation."""
    shelf = Shelf()
    assert (await long_outcome(shelf, "x" * 1_000)).content == "x" * 1_000
    assert shelf.kept == {}


async def test_files_that_take_no_result_leave_its_beginning() -> None:
    """The note promises nothing then; a bug there is reported, and is no bug of the tool."""
    for fault, reported in ((ToolFailed("read-only"), 0), (OSError("disk"), 1)):
        seen: list[str] = []
        got = await long_outcome(Shelf(fault), "x" * 1_500, report=lambda where, exc, seen=seen: seen.append(where))
        assert got.ok
        assert got.content.endswith("[cut: 500 of 1,500 bytes are left out; ask for a smaller part]")
        assert len(seen) == reported


async def test_a_lease_lost_while_a_result_is_kept_goes_up() -> None:
    """Nothing more is written for a turn that is not ours."""
    with pytest.raises(LeaseLost):
        await long_outcome(Shelf(LeaseLost("gone")), "x" * 1_500)


async def test_an_error_text_is_cut_like_a_result() -> None:
    """Whoever wrote it: the tool, or a model whose arguments came back."""

    async def fail(*_: Any) -> str:
        raise ToolFailed("x" * 15_000)

    for got in (
        await outcome_of(fail, limit_bytes=300),
        await Toolbox([RecordingTool("n" * 500)], result_limit_bytes=300).call(call("lock"), CONTEXT),
    ):
        assert got.content.startswith("Error: ")
        assert "[cut: " in got.content
        assert len(got.content) < 400


@given(st.text(), st.integers(0, 40))
def test_a_cut_never_splits_a_character(text: str, limit: int) -> None:
    """The kept part is the beginning of the text, whole characters only."""
    got = cut(text, limit)
    if len(text.encode()) <= limit:
        assert got == text
        return
    kept, mark, note = got.rpartition("\n\n[cut: ")
    assert mark
    assert text.startswith(kept)
    assert limit - 3 <= len(kept.encode()) <= limit
    assert f"of {len(text.encode()):,} bytes" in note


def test_two_tools_of_one_name_are_refused() -> None:
    """Nothing from outside can stand in for a built-in tool."""
    with pytest.raises(ValueError, match="'look'"):
        Toolbox([RecordingTool("look"), RecordingTool("look")])


class Inner(msgspec.Struct):
    """Inside."""

    title: Annotated[str, msgspec.Meta(description="A field that is called title.")]


class Outer(msgspec.Struct):
    """Outside."""

    first: Inner
    many: list[Inner] = []
    maybe: Inner | None = None


class Loop(msgspec.Struct):
    """Never ends."""

    more: Loop | None = None


def test_a_schema_has_no_references_and_keeps_fields_called_title() -> None:
    """Some providers know no $ref."""
    schema = object_schema(Outer)
    assert "$" not in msgspec.json.encode(schema).decode()
    assert schema["properties"]["first"]["properties"]["title"] == {
        "type": "string",
        "description": "A field that is called title.",
    }
    assert schema["properties"]["many"]["items"]["required"] == ["title"]
    assert "title" not in schema


def test_a_shape_that_contains_itself_is_refused() -> None:
    """It could not be written down."""
    with pytest.raises(ValueError, match="Loop"):
        object_schema(Loop)


def test_specs_are_the_same_bytes_in_every_process() -> None:
    """A cache of prompts is shared by the whole fleet."""
    script = (
        "import msgspec; from worker.agent.tools.toolbox import Toolbox; from worker.tools.registry import build_tools;"
        "print(msgspec.json.encode(Toolbox(build_tools()).specs()).decode())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert '"calculate"' in outputs.pop()
