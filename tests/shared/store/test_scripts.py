"""The parts of `lib/core.lua` that a script is sent with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.store.client.scripts import from_folder, load, script_names

CORE = """-- About the first.
local function first()
  return 1
end

-- Uses first in a comment only.
local function second()
  return 2
end

-- About the third, in
-- two lines.
local function third()
  return second()
end
"""


def sent(tmp_path: Path, body: str) -> str:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "core.lua").write_text(CORE)
    (tmp_path / "own.lua").write_text(f"#!lua\n{body}\n")
    return from_folder("own", f"{tmp_path}/").source


def test_a_part_brings_what_it_uses_and_the_comments_above_it(tmp_path: Path) -> None:
    """Comments directly above a function belong to that function, not to the one before."""
    source = sent(tmp_path, "return third()")
    assert source == "#!lua\n" + CORE[CORE.index("-- Uses") :] + "\nreturn third()\n"


def test_a_word_in_a_comment_brings_no_part(tmp_path: Path) -> None:
    """Otherwise every comment would make scripts slower."""
    assert "local function" not in sent(tmp_path, "-- not first(), second() or third()\nreturn 0")


@pytest.mark.parametrize("name", script_names())
def test_every_function_that_a_script_calls_is_sent_with_it(name: str) -> None:
    """A missing one would fail only where it is called."""
    code = re.sub(r"--.*", "", load(name).source)
    defined = set(re.findall(r"\bfunction ([\w.]+)", code)) | set(re.findall(r"\blocal ([\w]+) = function", code))
    called = set(re.findall(r"(?<![\w.:'\"])([a-z]\w*)\(", re.sub(r"'[^']*'", "''", code)))
    lua = {"tonumber", "tostring", "unpack", "ipairs", "pairs", "pcall", "type", "function", "and", "or", "not", "if"}
    lua |= {"error"}
    assert called - lua - defined <= {"in_grace", "write_leases"}, "handed over as arguments"
