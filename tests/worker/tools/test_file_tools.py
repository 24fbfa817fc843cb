"""Reading, writing, changing and listing files, whatever stands behind them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.media_files import png, webp
from tests.helpers.scripted_model import call
from tests.helpers.text_files import TextFiles
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.documents.images import IMAGE_LIMIT_BYTES
from worker.tools.files.glob import LISTED
from worker.tools.files.read_file import PAGE_BYTES
from worker.tools.registry import build_tools

BOX = Toolbox(build_tools(["read_file", "write_file", "edit_file", "list_dir"]))


async def did(files: TextFiles, name: str, **arguments: Any) -> str:
    """What a model reads after a call."""
    outcome = await BOX.call(call(name, arguments), ToolContext(session="s", turn=1, call_id="c", files=files))
    assert outcome.outcome in ("ok", "failed"), outcome
    return outcome.content


async def test_a_short_file_is_read_whole_and_without_a_note() -> None:
    """What is read can be given to edit_file as it is."""
    assert await did(TextFiles({"a": "one\ntwo\n"}), "read_file", path="a") == "one\ntwo"
    assert await did(TextFiles({"a": ""}), "read_file", path="a") == "('a' is empty)"


async def test_a_part_of_a_file_says_which_and_what_comes_next() -> None:
    """The model can go on, and knows when it is at the end."""
    files = TextFiles({"a": "1\n2\n3\n4\n5"})
    assert await did(files, "read_file", path="a", limit=2) == "1\n2\n\n[lines 1-2 of 5; go on with offset=3]"
    assert await did(files, "read_file", path="a", offset=4) == "4\n5\n\n[lines 4-5 of 5]"
    assert "has 5 lines; there is no line 6" in await did(files, "read_file", path="a", offset=6)


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=3000), max_size=30))
async def test_the_pages_of_a_file_are_its_text(lines: list[str]) -> None:
    """Every line comes once, and no page is over what a result may have."""
    files = TextFiles({"a": "\n".join([*lines, "end"])})
    seen: list[str] = []
    offset = 1
    while True:
        text = await did(files, "read_file", path="a", offset=offset)
        assert len(text.encode()) <= PAGE_BYTES + 200
        page, mark, note = text.rpartition("\n\n[")
        page = page if mark and note.startswith("line") else text
        if "is cut" in note:
            return  # a single line over the limit: shown up to there, and named
        seen += page.split("\n")
        if "go on with offset=" not in note:
            break
        offset = int(note.partition("offset=")[2].rstrip("]"))
    assert seen == [*lines, "end"]


async def test_a_line_longer_than_a_page_is_cut_and_named_and_the_next_can_be_reached() -> None:
    """Nothing is left out silently."""
    files = TextFiles({"a": "é" * PAGE_BYTES + "\nnext"})
    assert (await did(files, "read_file", path="a")).endswith(
        "éé\n\n[line 1 is cut; lines 1-1 of 2; go on with offset=2]"
    )
    assert await did(files, "read_file", path="a", offset=2) == "next\n\n[lines 2-2 of 2]"


async def test_a_file_is_written_whole() -> None:
    """What it held before is gone."""
    files = TextFiles({"a": "old"})
    assert await did(files, "write_file", path="a", content="x\ny") == "a now has 2 lines."
    assert files.texts == {"a": "x\ny"}


async def test_one_piece_is_replaced_and_the_rest_stays() -> None:
    """Exactly one place; an empty new text removes it."""
    files = TextFiles({"a": "- tea\n- fish\n- Berlin\n"})
    assert await did(files, "edit_file", path="a", old_text="- fish", new_text="- no fish") == "a is changed."
    await did(files, "edit_file", path="a", old_text="- Berlin\n", new_text="")
    assert files.texts == {"a": "- tea\n- no fish\n"}


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("- tea\n", "tea", "coffee", "- coffee\n"),
        ("- tea\n", "- tea", "- tea\n- fish", "- tea\n- fish\n"),
        ("- tea\n", "- tea\n", "", ""),
        ("a", "a", "a a", "a a"),
        ("aba", "b", "bab", "ababa"),
    ],
)
async def test_a_change_made_again_changes_nothing(text: str, old: str, new: str, after: str) -> None:
    """A worker may be lost between the change and its record; the next one makes the same call."""
    files = TextFiles({"a": text})
    assert await did(files, "edit_file", path="a", old_text=old, new_text=new) == "a is changed."
    assert files.texts["a"] == after
    assert (await did(files, "edit_file", path="a", old_text=old, new_text=new)).startswith("Nothing to do: ")
    assert files.texts["a"] == after


@pytest.mark.parametrize(
    ("old", "says"),
    [
        ("coffee", "'coffee' is not in 'a'. Read the file and copy"),
        ("e", "'e' is 2 times in 'a'. Take more"),
        ("", "old_text is empty"),
    ],
)
async def test_text_that_is_missing_or_ambiguous_is_named(old: str, says: str) -> None:
    """Nothing is changed by guessing."""
    files = TextFiles({"a": "tea tee x"})
    files.texts["a"] = "tea pie"
    assert says in await did(files, "edit_file", path="a", old_text=old, new_text="juice")
    assert files.texts == {"a": "tea pie"}


async def test_a_file_that_changed_in_between_is_not_overwritten() -> None:
    """The change is made to the text that was read, or not at all."""

    class Busy(TextFiles):
        async def read(self, path: str) -> str:
            text = await super().read(path)
            self.texts[path] = "other"
            return text

    files = Busy({"a": "tea"})
    assert "was changed" in await did(files, "edit_file", path="a", old_text="tea", new_text="juice")
    assert files.texts == {"a": "other"}


async def test_a_folder_is_listed_one_level_deep() -> None:
    """Folders end in a slash; an unknown one is answered with those there are."""
    files = TextFiles({"MEMORY.md": "", "skills/b/SKILL.md": "", "skills/a/SKILL.md": "", "skills/a/x/y.txt": ""})
    assert await did(files, "list_dir") == "MEMORY.md (0 bytes)\nskills/"
    assert await did(files, "list_dir", path="./skills/") == "a/\nb/"
    assert await did(files, "list_dir", path="skills/a") == "SKILL.md (0 bytes)\nx/"
    got = await did(files, "list_dir", path="../etc")
    assert "there is no folder '../etc'. Folders: skills/a, skills/a/x, skills/b" in got


async def test_a_big_folder_is_listed_up_to_a_number() -> None:
    """The rest is counted."""
    files = TextFiles({f"{n:04}": "é" for n in range(LISTED + 5)})
    got = await did(files, "list_dir")
    assert got.startswith("0000 (2 bytes)\n0001 (2 bytes)\n")
    assert got.endswith(f"{LISTED - 1:04} (2 bytes)\n\n[5 more; use glob to narrow it]")


async def test_the_line_ends_of_windows_stay_as_they_are() -> None:
    """They are not seen, so the model cannot copy them."""
    files = TextFiles({"a": "one\r\ntwo\r\nthree\r\n"})
    assert await did(files, "edit_file", path="a", old_text="one\ntwo", new_text="1\n2") == "a is changed."
    assert files.texts["a"] == "1\r\n2\r\nthree\r\n"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (png(), f"is a picture: image/png, {len(png())} bytes. You see it in this turn"),
        (webp(), "is a picture: image/webp"),
        (b"\x89PNG\r\n\x1a\n\0", "file refused: it is a damaged picture"),
        (b"BM" + b"\0" * 60, "file refused: it is none of PNG, JPEG, GIF and WebP"),
        (png(100_000, 100_000), "file refused: it has 100,000 x 100,000 pixels; at most 50,000,000 can be shown"),
        (png() + b"\0" * IMAGE_LIMIT_BYTES, "file refused: it has 5,2"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + b"x", "old Office format; save it as .docx"),
        (b"PK\x03\x04\0", "is not text: it is a zip archive, 5 bytes"),
        (b"a\0", "is not text: it is a binary file, 2 bytes"),
    ],
)
async def test_a_file_that_is_not_text_is_described(data: bytes, says: str) -> None:
    """By its content, whatever its name."""

    class Binary(TextFiles):
        async def content(self, path: str) -> str | bytes:
            return data

    got = await did(Binary({}), "read_file", path="letter.txt")
    assert "'letter.txt'" in got
    assert says in got
