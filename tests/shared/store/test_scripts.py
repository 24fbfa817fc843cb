"""The scripts: what is sent with each, and the names of its keys and arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient
from shared.store.client.scripts import LIBRARY, Script, from_folder, load, script_names
from tests.helpers.processes import ROOT

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
    for part in LIBRARY:
        (tmp_path / "lib" / f"{part}.lua").write_text(CORE if part == "base" else "")
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


STEP: Final = Script("turns/x", "", args=("name", "record"), keys=("leases", "session", "DEAD", "child"))


def test_keys_and_arguments_are_given_by_name() -> None:
    """Those of a session, a queue or a channel are made from its name."""
    words = STEP.words({"record": b"x", "child": "shoal:c"}, keys.Whose(session="web:a", queue="turns"))
    named = keys.leases("turns"), keys.session("web:a"), keys.DEAD, "shoal:c"
    assert words == (4, *named, "web:a", b"x")


def test_an_empty_key_is_no_key() -> None:
    """Its place is taken by a name that is on the same server of a cluster."""
    words = STEP.words({"record": b"x", "child": ""}, keys.Whose("web:a", "turns"), on_cluster=(keys.META,))
    assert words[4:6] == (keys.NO_KEY, keys.META)
    assert words[0] == 5


@pytest.mark.parametrize(
    ("values", "whose", "error"),
    [
        ({"child": "c"}, keys.Whose("web:a", "turns"), "the script turns/x needs record"),
        ({"record": b"x"}, keys.Whose("web:a", "turns"), "the key child of a script must be given"),
        ({"record": b"x", "child": "c"}, keys.Whose("web:a"), "the key leases of a script must be given"),
        ({"record": b"x", "child": "c", "recrod": 1}, keys.Whose("web:a", "turns"), "turns/x knows no recrod"),
    ],
)
def test_what_is_missing_or_unknown_is_an_error(values: dict[str, str | bytes], whose: keys.Whose, error: str) -> None:
    """A script would take the next argument in its place."""
    with pytest.raises(TypeError, match=error):
        STEP.words(values, whose)


@pytest.mark.parametrize("name", script_names())
def test_a_script_says_the_names_of_its_keys_and_arguments_once(name: str) -> None:
    """Nothing in it is known by its number, and each name is used."""
    script = load(name)
    code = re.sub(r"--.*", "", script.source)
    assert not re.search(r"(?:KEYS|ARGV)\[|#(?:KEYS|ARGV)", code)
    assert code.count("unpack(KEYS)") == bool(script.keys)
    assert code.count("unpack(ARGV)") == bool(script.args)
    unused = {one for one in (*script.keys, *script.args) if len(re.findall(rf"\b{one}\b", code)) < 2}
    assert unused <= {"SCHEDULES", "schedules"}, "which say what a function of the library works on"
    assert len({*script.keys, *script.args}) == len(script.keys) + len(script.args)


def calls_by_name() -> Iterator[tuple[str, ast.Call]]:
    """Every call of a script in the product whose keywords stand there."""
    for top in ("shared", "worker", "gateway", "console"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(func=ast.Attribute(attr="run" | "_run"), args=[ast.Constant(value=str(name)), *_]):
                        if name in script_names():
                            yield name, node


def test_every_call_names_what_its_script_takes() -> None:
    """A call that is wrong would fail only when somebody needs it."""
    context = {"session": "name", "channel": "channel", "queue": "", "retry_for_s": ""}
    # What the classes of deliveries and of locks add to each of their calls.
    added = {"delivery": {"name", "channel", "lease"}, "listeners": {"lock"}}
    seen = set()
    for name, call in calls_by_name():
        script, given = load(name), {str(keyword.arg) for keyword in call.keywords}
        values, makes = given - context.keys(), {context[one] for one in given & context.keys()}
        makes |= added.get(name.partition("/")[0], set())
        assert values <= {*script.keys, *script.args}, name
        assert {*script.args} <= values | makes, name
        assert {*script.keys} <= values | makes | keys.BY_NAME.keys(), name
        seen.add(name)
    assert len(seen) > 50


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65535, 65536, 300_000])
async def test_a_text_of_every_size_arrives_in_lua(client: RedisClient, size: int) -> None:
    """Whatever bytes it has: the head of a text has four forms."""
    echo = "local all = cmsgpack.unpack(ARGV[1]) return {all[1], all[2].a, all[2].b[1], all[3] == nil and 1 or 0}"
    record = bytes(range(256)) * (size // 256) + b"\xff" * (size % 256)
    packed = pack((record, {"a": "ä", "b": [record]}, None))
    assert await client.command("EVAL", echo, "0", packed) == [record, "ä".encode(), record, 1]
