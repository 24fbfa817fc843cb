"""What happened earlier can be found by its words and its date."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.helpers.clock import HandClock
from tests.helpers.scripted_model import call
from tests.helpers.text_files import TextFiles
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.tools.files.grep import COUNTED, SEARCH_S, SHOWN_CHARS, Grep

ENTRIES = [
    "[2026-10-02 09:00] They planned the move to Berlin.\nThe van is booked for the 30th.",
    "[2026-11-03 10:00] The dentist moved the appointment. Straße 5.",
    '[2026-11-21 14:05] A blue car was bought. "Never again", said Ada.',
    "[2026-11-21 18:00] The car is blue, the bicycle red.",
]
HISTORY = "\n\n".join(ENTRIES)
FILES = {"HISTORY.md": HISTORY, "MEMORY.md": "# Person\n- Ada drives a blue car\n", "skills/x/SKILL.md": "wash the car"}


async def found(words: str, files: TextFiles | None = None, **more: Any) -> str:
    context = ToolContext(session="s", turn=1, call_id="c", files=files or TextFiles(FILES))
    outcome = await Toolbox([Grep()], result_limit_bytes=10**6).call(call("grep", {"words": words, **more}), context)
    assert outcome.outcome in ("ok", "failed"), outcome
    return outcome.content


async def test_an_entry_has_all_the_words_in_any_order_and_case() -> None:
    """Entries are shown whole, with their date, also when the words stand in different lines."""
    assert await found("VAN berlin", path="HISTORY.md") == f"HISTORY.md: {ENTRIES[0]}"
    assert "Straße" in await found("strasse", path="HISTORY.md")


async def test_the_newest_entry_comes_first() -> None:
    """A date, or a part of one, is a word like others."""
    got = await found("2026-11", path="HISTORY.md")
    assert got.split("\n\n") == [f"HISTORY.md: {entry}" for entry in reversed(ENTRIES[1:])]
    assert "dentist" in await found("2026-11-03", path="HISTORY.md")


async def test_a_phrase_stands_in_quotes() -> None:
    """Else the words may be anywhere in the entry."""
    assert (await found('"blue car"', path="HISTORY.md")).count("HISTORY.md:") == 1
    assert (await found("blue car", path="HISTORY.md")).count("HISTORY.md:") == 2
    assert "14:05" in await found('2026 "blue car', path="HISTORY.md")


async def test_other_files_are_searched_line_by_line() -> None:
    """All files when none is named; the line number is that of read_file."""
    got = await found("car")
    assert got.split("\n\n")[-2:] == ["MEMORY.md:2: - Ada drives a blue car", "skills/x/SKILL.md:1: wash the car"]
    assert got.startswith("HISTORY.md: ")


async def test_what_is_not_found_is_no_error_and_says_what_to_try() -> None:
    """So is a file that cannot be read, when all are searched; one that was named is an error."""
    assert (await found("zebra")).startswith("Nothing in any file has 'zebra'. Try fewer")
    files = TextFiles(FILES, broken=["skills/x/SKILL.md"])
    assert "MEMORY.md:2" in await found("car", files)
    assert await found("car", files, path="skills/x/SKILL.md") == "Error: there is no file 'skills/x/SKILL.md'"


@pytest.mark.parametrize("words", ["", "  ", '""', '" "'])
async def test_no_words_find_nothing(words: str) -> None:
    """Everything is what read_file is for."""
    assert "there are no words" in await found(words)


async def test_there_is_a_limit_and_a_count_of_the_rest() -> None:
    """The newest are those that are shown; a long one is shown around what was found."""
    many = TextFiles({"HISTORY.md": "\n\n".join(f"[{day}] tea" for day in range(30))})
    got = await found("tea", many, limit=2)
    assert got == "HISTORY.md: [29] tea\n\nHISTORY.md: [28] tea\n\n[28 more; use more words to narrow it]"
    long = TextFiles({"a": "x" * 5000 + "needle" + "y" * 5000})
    got = await found("needle", long)
    assert "xneedley" in got
    assert len(got) < SHOWN_CHARS + 20


@pytest.mark.parametrize("words", ["(a+)+$", ".*.*.*.*.*b", "a" * 190 + "b", "[", "\\"])
async def test_words_are_no_pattern_and_cannot_run_for_long(words: str) -> None:
    """Security row 28: nothing that a model writes makes the search slow, on the biggest HISTORY.md there can be."""
    big = TextFiles({"HISTORY.md": "a" * 1024 * 1024})
    started = time.process_time()
    assert (await found(words, big)).startswith("Nothing in")
    assert time.process_time() - started < 2
    assert "HISTORY.md" in await found(words, TextFiles({"HISTORY.md": f"see {words} here"}))


async def test_a_folder_is_searched_with_all_that_is_in_it() -> None:
    """As list_dir names it, with or without a slash."""
    files = TextFiles({"notes/a.md": "car", "notes/deep/b.md": "car", "notes.md": "car"})
    for folder in ("notes", "./notes/"):
        assert await found("car", files, path=folder) == "notes/a.md:1: car\n\nnotes/deep/b.md:1: car"
    assert await found("car", files, path="notes.md") == "notes.md:1: car"


async def test_a_search_ends_in_its_time_and_says_what_it_left_out() -> None:
    """Files behind a slow volume do not hold a turn; what was found so far is shown."""
    clock = HandClock()

    class Slow(TextFiles):
        async def read(self, path: str) -> str:
            clock.at += SEARCH_S * 0.6
            return await super().read(path)

    context = ToolContext(session="s", turn=1, call_id="c", clock=clock, files=Slow({f"{n}": "car" for n in range(9)}))
    for words, says in (("car", "0:1: car\n\n1:1: car\n\n["), ("zebra", "Nothing in any file has 'zebra'.")):
        outcome = await Toolbox([Grep()]).call(call("grep", {"words": words}), context)
        assert outcome.content.startswith(says)
        assert outcome.content.endswith("7 of 9 files were not searched; name one, or a folder]")


async def test_a_word_that_is_everywhere_does_not_fill_the_memory() -> None:
    """After a thousand places no further file is read."""
    files = TextFiles({f"{n}": "car\n" * (COUNTED + 50) for n in range(3)})
    got = await found("car", files, limit=1)
    assert got.endswith(
        f"[{COUNTED - 1} more; use more words to narrow it; 2 of 3 files were not searched; name one, or a folder]"
    )
