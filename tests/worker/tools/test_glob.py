"""Files are found by a pattern of their names, in no more time than it takes to look at them."""

from __future__ import annotations

import time

import pytest

from tests.helpers.scripted_model import call
from tests.helpers.text_files import TextFiles
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.tools.files.glob import SHOWN, Glob

FILES = TextFiles(dict.fromkeys(["MEMORY.md", "a.txt", "notes/a.md", "notes/b[1].md", "notes/deep/er/a.md"], ""))


async def found(pattern: str, files: TextFiles = FILES) -> str:
    context = ToolContext(session="s", turn=1, call_id="c", files=files)
    outcome = await Toolbox([Glob()], result_limit_bytes=10**6).call(call("glob", {"pattern": pattern}), context)
    assert outcome.ok, outcome
    return outcome.content.replace(" (0 bytes)", "")


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.txt", "a.txt"),
        ("a.*", "a.txt notes/a.md notes/deep/er/a.md"),
        ("notes/*.md", "notes/a.md notes/b[1].md"),
        ("notes/**/a.md", "notes/a.md notes/deep/er/a.md"),
        ("**/er/*", "notes/deep/er/a.md"),
        ("**/**/a.??", "notes/a.md notes/deep/er/a.md"),
        ("./notes/deep/**", "notes/deep/er/a.md"),
        ("b[1].md", "notes/b[1].md"),
        ("**", "MEMORY.md a.txt notes/a.md notes/b[1].md notes/deep/er/a.md"),
    ],
)
async def test_three_signs_and_nothing_else_has_a_meaning(pattern: str, paths: str) -> None:
    """A `*` stays in one name; brackets are brackets."""
    assert await found(pattern) == paths.replace(" ", "\n")


@pytest.mark.parametrize("pattern", ["nothing", "notes", "?", "", "/", "../*", "notes/*/a.md", "a.txt/**/x"])
async def test_what_is_not_found_is_no_error(pattern: str) -> None:
    """It is answered with what to try."""
    assert (await found(pattern)).startswith(f"No file is named like {pattern!r}")


async def test_no_pattern_makes_it_slow() -> None:
    """Security row 28: a name is matched in at most name times pattern steps, a path in name times parts."""
    files = TextFiles({f"{n}/" + "/".join(["a" * 200] * 4): "" for n in range(500)})
    for pattern in ("*a" * 99 + "b", "**/*a/" * 33 + "b", "?*" * 99 + "b", "(a+)+$"):
        started = time.process_time()
        assert (await found(pattern[:200], files)).startswith("No file")
        assert time.process_time() - started < 2
    assert await found("*a*a*a", TextFiles({"aXaYa": ""})) == "aXaYa"


async def test_there_is_a_limit_and_a_count_of_the_rest() -> None:
    """The result stays readable."""
    got = await found("*", TextFiles({f"{n:04}": "" for n in range(SHOWN + 3)}))
    assert got.endswith(f"{SHOWN - 1:04}\n\n[3 more; use a narrower pattern]")
