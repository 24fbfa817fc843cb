"""No path that a model can write leads out of its workspace; no two sessions share a folder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ToolFailed
from shared.ids import folder_name
from worker.guards.paths import split_path

OUTSIDE = [
    "../x",
    "a/../../x",
    "a/..",
    "..",
    "/etc/passwd",
    "//x",
    " /x",
    "a\0b",
    "a/\0/b",
    "~",
    "~/x",
    "~root/x",
    "..\\x",
    "a\\b",
    "\\\\host\\share",
    "C:\\x",
    "C:/x",
    "c:x",
    "\uff0e\uff0e/x",
    "a\uff0fb",
    "a\uff3cb",
    "\u2025/x",
    "\u2024\u2024/x",
    "a\u2100b",
    "a\u202eb",
    "a\u200bb",
    "a\nb",
    "a\x1b[31m",
    "a\ud800b",
    "a\udc2f\udc2fb",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_what_leads_out_or_looks_like_it_is_outside(path: str) -> None:
    """The error names the path and what to write instead."""
    with pytest.raises(ToolFailed, match="outside the workspace") as raised:
        split_path(path)
    assert repr(path) in str(raised.value)
    assert "relative to the workspace" in str(raised.value)


@pytest.mark.parametrize("path", ["x" * 256, "é" * 128, "a/" * 17 + "b", "x/" * 600, "x" * 10**6])
def test_what_is_too_long_or_too_deep_says_the_number(path: str) -> None:
    """No file system is asked, and the error is short."""
    with pytest.raises(ToolFailed, match="at most") as raised:
        split_path(path)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a", ("a",)),
        ("./a/./b/", ("a", "b")),
        ("a//b", ("a", "b")),
        ("...", ("...",)),
        ("a..b/..c", ("a..b", "..c")),
        ("Größe 2 (neu).md", ("Größe 2 (neu).md",)),
        ("日本語/✓.txt", ("日本語", "✓.txt")),
        ("%2e%2e%2fx", ("%2e%2e%2fx",)),
        ("a~", ("a~",)),
        ("", ()),
        (".", ()),
    ],
)
def test_plain_paths_are_split(path: str, parts: tuple[str, ...]) -> None:
    """Names of all languages are fine."""
    assert split_path(path) == parts


@given(st.text(max_size=60) | st.text("./\\~:a\0\uff0e\u2025", max_size=20))
def test_whatever_is_written_no_part_can_lead_up(path: str) -> None:
    """Either it is refused, or every part is one plain name."""
    try:
        parts = split_path(path)
    except ToolFailed:
        return
    for part in parts:
        assert part not in ("", ".", "..")
        assert not set(part) & set("/\\\0")


def test_sessions_have_their_own_folders_also_where_case_does_not_count() -> None:
    """Also those that differ in case, in signs, or are one another's beginning; all names are short and plain."""
    sessions = [
        "web:ada/a",
        "web:ADA/a",
        "Web:ada/a",
        "web:ada%2Fa",
        "web:ada",
        "web:ad",
        "..",
        "../x",
        "/",
        "x" * 10**5,
        "",
    ]
    names = [folder_name(session) for session in sessions]
    assert len({name.casefold() for name in names}) == len(sessions)
    assert all(len(name) == 40 and set(name) <= set("0123456789abcdef") for name in names)
