"""Text files of other encodings, as uploads and in a workspace, and mails of other character sets."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.channels.email.body import read_mail
from shared.media.store import MediaStore
from shared.settings import MediaSettings
from tests.helpers.scripted_model import call
from worker.agent.tools.tool import ToolContext
from worker.agent.tools.toolbox import Toolbox
from worker.guards.workspace import Workspace, Workspaces
from worker.tools.registry import build_tools
from worker.turn.files import TurnFiles

REPORTS: Final = Path("tests/data/reports")
FILES: Final = {
    "f-gbk.txt": ("中文测试内容，公司", "GB18030"),
    "f-cp1252.csv": ("Name;Größe\nJörg;5", "windows-1252"),
    "f-utf16.csv": ("a;b\n1;2", "UTF-16"),
}
BOX: Final = Toolbox(build_tools(["read_file", "write_file", "edit_file", "grep", "glob", "list_dir"]))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace on a volume of this test."""
    spaces = Workspaces(tmp_path / "volume")
    yield spaces.workspace_of("web:owner/a")
    spaces.close()


async def did(workspace: Workspace, name: str, **arguments: Any) -> str:
    """What the model reads after a call."""
    context = ToolContext(session="s", turn=1, call_id="c", files=TurnFiles(None, workspace=workspace))
    return (await BOX.call(call(name, arguments), context)).content


@pytest.mark.parametrize("name", FILES)
async def test_a_text_of_another_encoding_is_read_searched_and_changed(workspace: Workspace, name: str) -> None:
    """The guess is named, and a change keeps the encoding."""
    text, encoding = FILES[name]
    data = (REPORTS / name).read_bytes()
    await workspace.write_file(name, data)
    assert await did(workspace, "read_file", path=name) == f"{text}\n\n[read as {encoding}]"
    found = await did(workspace, "grep", words=text[:2])
    assert f"{name}:1: {text.splitlines()[0]}" in found
    assert f"{name!r} was read as {encoding}" in found
    changed = await did(workspace, "edit_file", path=name, old_text=text[-1], new_text=text[-1] * 2)
    assert changed == f"{name} is changed; it is still saved as {encoding}."
    assert await did(workspace, "read_file", path=name) == f"{text}{text[-1]}\n\n[read as {encoding}]"
    assert (await workspace.read_file(name)).startswith(data.rstrip(b"\n\0")[:-2])


@pytest.mark.parametrize("name", FILES)
def test_a_text_of_another_encoding_may_be_sent(tmp_path: Path, name: str) -> None:
    """An upload is a text, whatever it was saved as."""
    store = MediaStore(MediaSettings(dir=tmp_path))
    assert store.check((REPORTS / name).read_bytes()).suffix == "txt"


async def test_a_change_that_an_encoding_cannot_hold_says_why(workspace: Workspace) -> None:
    """Nothing is written; the model learns what to do."""
    await workspace.write_file("a.csv", "Größe".encode("cp1252"))
    refused = await did(workspace, "edit_file", path="a.csv", old_text="Größe", new_text="尺寸")
    assert "'a.csv' is not changed: it is saved as windows-1252, which has no '尺'" in refused
    assert "write_file, which saves it as UTF-8" in refused
    assert await workspace.read_file("a.csv") == "Größe".encode("cp1252")


async def test_a_change_after_which_the_guess_would_fail_is_refused(workspace: Workspace) -> None:
    """What was read rightly once must not be read wrongly from then on."""
    data = "Größe".encode("cp1252")
    await workspace.write_file("a.csv", data)
    refused = await did(workspace, "edit_file", path="a.csv", old_text="Größe", new_text="ÂÒÏ")
    assert "could not be recognised any more after this change" in refused
    assert await workspace.read_file("a.csv") == data


async def test_a_file_cut_within_a_character_is_read_and_not_changed(workspace: Workspace) -> None:
    """A change would make the broken byte a sign of its own."""
    await workspace.write_file("a.txt", "测试内容，公司".encode()[:-1])
    assert (await did(workspace, "read_file", path="a.txt")).endswith("[read as UTF-8 with 1 broken byte]")
    assert "would lose a part" in await did(workspace, "edit_file", path="a.txt", old_text="测试", new_text="x")


async def test_a_mark_at_the_beginning_is_kept_and_not_shown(workspace: Workspace) -> None:
    """UTF-8 of Windows; what is read can be given to edit_file."""
    await workspace.write_file("a.txt", "Größe\r\n".encode("utf-8-sig"))
    assert await did(workspace, "read_file", path="a.txt") == "Größe\r"
    await did(workspace, "edit_file", path="a.txt", old_text="Größe", new_text="Maß")
    assert await workspace.read_file("a.txt") == "Maß\r\n".encode("utf-8-sig")


@pytest.mark.parametrize(("form", "asked"), [("NFD", "NFC"), ("NFC", "NFD")])
async def test_a_name_in_either_form_of_unicode_is_one_name(workspace: Workspace, form: Any, asked: Any) -> None:
    """macOS writes letter and accent apart; models and people write them as one."""
    saved = unicodedata.normalize(form, "Größe/Café.txt")
    path = unicodedata.normalize(asked, "Größe/Café.txt")
    folder = await workspace.create()
    (folder / saved).parent.mkdir()
    (folder / saved).write_text("one")
    assert await did(workspace, "read_file", path=path) == "one"
    assert await did(workspace, "edit_file", path=path, old_text="one", new_text="two") == f"{path} is changed."
    await did(workspace, "write_file", path=path, content="three")
    assert [(one.name, one.read_text()) for one in folder.rglob("*.txt")] == [(saved.rpartition("/")[2], "three")]
    assert saved in await did(workspace, "glob", pattern=path)
    assert saved in await did(workspace, "grep", words="three", path=path.partition("/")[0])
    listed = await did(workspace, "list_dir", path=path.partition("/")[0])
    assert listed == f"{saved.rpartition('/')[2]} (5 bytes)"


def test_a_mail_in_hebrew_by_its_old_label() -> None:
    """`iso-8859-8-i` is a label of mail programs, which Python does not have."""
    assert read_mail((REPORTS / "c-mail-charset.eml").read_bytes()).text.strip() == "שלום"


BEFORE: Final = {
    "test_a_text_of_another_encoding_is_read_searched_and_changed": 0,
    "test_a_text_of_another_encoding_may_be_sent": 0,
    "test_a_change_that_an_encoding_cannot_hold_says_why": 0,
    "test_a_change_after_which_the_guess_would_fail_is_refused": 0,
    "test_a_file_cut_within_a_character_is_read_and_not_changed": 0,
    "test_a_mark_at_the_beginning_is_kept_and_not_shown": 0,
    "test_a_name_in_either_form_of_unicode_is_one_name": 0,
    "test_a_mail_in_hebrew_by_its_old_label": 0,
}
