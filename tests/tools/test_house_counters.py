from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.house import comments, names, rooms, sentences, size, style
from tools.house.files import House, read_house
from tools.house.graph import back_edges, circles, count_floors
from tools.house.report import render_json, render_lists, render_table
from tools.house.table import Row


def house(root: Path, files: dict[str, str]) -> House:
    """Write a checkout of these files and read it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_house(root)


def test_only_the_packages_of_the_house_are_read(tmp_path: Path) -> None:
    """Docs, tools, caches and hidden folders are not counted."""
    read = house(
        tmp_path,
        {
            "gateway/app.py": "",
            "gateway/static/page.js": "",
            "gateway/__pycache__/app.pyc": "",
            "gateway/.cache/x.py": "",
            "docs/conf.py": "",
            "tools/make.py": "",
            "tests/test_app.py": "",
            "proof/bench.py": "",
        },
    )
    assert [str(source.path) for source in read.product] == ["gateway/app.py", "gateway/static/page.js"]
    assert [str(source.path) for source in read.tests] == ["proof/bench.py", "tests/test_app.py"]


def test_classes_defined_twice_are_listed_with_their_places(tmp_path: Path) -> None:
    """Nested and private classes count; two files of one name do not."""
    read = house(
        tmp_path,
        {
            "gateway/a.py": "class Message: ...\nclass Once: ...\n",
            "worker/a.py": "class Outer:\n    class Message: ...\n    class _Row: ...\n",
            "shared/a.py": "def f():\n    class _Row: ...\n",
        },
    )
    assert names.doubled_classes(read).evidence == (
        "Message x2: gateway/a.py:1, worker/a.py:2",
        "_Row x2: shared/a.py:2, worker/a.py:3",
    )


def test_classes_of_channels_alone_are_a_count_of_their_own(tmp_path: Path) -> None:
    """A platform's own words may repeat, but not outside of the folders of platforms."""
    read = house(
        tmp_path,
        {
            "gateway/channels/slack/wire.py": "class User: ...\nclass File: ...\nclass Base: ...\n",
            "gateway/channels/matrix/deep/wire.py": "class User: ...\n",
            "gateway/channels/base.py": "class Base: ...\n",
            "worker/files.py": "class File: ...\n",
        },
    )
    assert [line.split(" ")[0] for line in names.doubled_channel_classes(read).evidence] == ["User"]
    assert [line.split(" ")[0] for line in names.doubled_classes(read).evidence] == ["Base", "File"]


@pytest.mark.parametrize(
    ("name", "banned"),
    [
        ("told", True),
        ("_told_rows", True),
        ("SaidLine", True),
        ("HTTPSaid", True),
        ("LAST_SAID", True),
        ("forward", False),
        ("afterwards", False),
        ("retold", False),
        ("mistaken", False),
        ("ongoing", False),
        ("graves", False),
    ],
)
def test_a_banned_word_is_a_whole_part_of_an_identifier(name: str, banned: bool) -> None:
    """Parts end at underscores and where a capital begins."""
    assert names.is_banned(name) is banned


PYTHON = '''"""told in a docstring"""
# told in a comment
from library import taken as got
import heard.inside


@going
def read(said, *, ward=None):
    text = "said in a string"
    f"{text} {bubble}"
    self.apart = row.vitals
    call(meant=1)
    match row:
        case Row(grave=1, x=[*told_rest]):
            pass
    long = (
        row
        .said_last
    )
'''


def test_identifiers_are_found_wherever_they_stand(tmp_path: Path) -> None:
    """Names of imports, parameters, keywords, attributes and patterns are read; text is not."""
    read = house(tmp_path, {"gateway/a.py": PYTHON})
    assert names.banned_in_product(read).evidence == (
        "gateway/a.py:11: apart",
        "gateway/a.py:10: bubble",
        "gateway/a.py:7: going",
        "gateway/a.py:14: grave",
        "gateway/a.py:4: heard",
        "gateway/a.py:12: meant",
        "gateway/a.py:8: said",
        "gateway/a.py:18: said_last",
        "gateway/a.py:3: taken",
        "gateway/a.py:14: told_rest",
        "gateway/a.py:11: vitals",
        "gateway/a.py:8: ward",
    )


def test_an_identifier_is_counted_once_a_file_with_all_its_lines(tmp_path: Path) -> None:
    """A rename is one step, however many lines it touches."""
    read = house(tmp_path, {"tests/test_a.py": "told = 1\nprint(told)\n", "tests/test_b.py": "told = 1\n"})
    assert names.banned_in_tests(read).evidence == ("tests/test_a.py:1,2: told", "tests/test_b.py:1: told")


def test_modules_and_folders_have_names_too(tmp_path: Path) -> None:
    """A banned word does not hide in a path."""
    read = house(tmp_path, {"worker/ward.py": "", "shared/lua/told.lua": "", "worker/grave/a.py": ""})
    assert names.banned_in_product(read).evidence == (
        "shared/lua/told.lua: module told",
        "worker/grave: module grave",
        "worker/ward.py: module ward",
    )


LUA = """-- told: a comment
--[[ heard
in two lines ]]
local said = 'taken' -- meant
local text = [[ going ]]
function apart(row) return row.forward end
"""


def test_lua_is_read_for_identifiers_and_comments(tmp_path: Path) -> None:
    """Words in strings and comments of Lua are not names."""
    read = house(tmp_path, {"shared/lua/a.lua": LUA})
    assert names.banned_in_product(read).evidence == ("shared/lua/a.lua:6: apart", "shared/lua/a.lua:4: said")
    assert comments.lua_comment_lines(read).value == 3
    assert comments.lua_line_ends(read).value == 1


def test_names_of_many_functions_are_listed(tmp_path: Path) -> None:
    """Sixteen are too many, but not of the names that say what a class is for."""
    for_all = "".join(f"class C{n}:\n    def {{0}}(self): ...\n" for n in range(16))
    text = "".join(for_all.replace("C", name).format(name) for name in ("take", "run", "__call__"))
    fifteen = "def few(): ...\n" * 15
    read = house(tmp_path, {"gateway/a.py": text + fifteen})
    assert [line.split(":")[0] for line in names.doors(read).evidence] == ["take x16"]


STATEMENTS = """
def refuse(path, text, other):
    a, b = path, text
    c = path
    first, *rest = other
    why = f"{path!r} is not there"
    raise ValueError(f"{why}; write it")

def choose(path, text):
    why = "it is not there"
    if not text:
        why = "it is empty"
    raise ValueError(f"{path}: {why}")
"""


def test_assignments_to_several_names_are_a_share_of_all(tmp_path: Path) -> None:
    """To unpack one value is another thing."""
    count = style.parallel_assignments(house(tmp_path, {"gateway/a.py": STATEMENTS}))
    assert count.evidence == ("gateway/a.py:3",)
    assert count.value == pytest.approx(100 * 1 / 6)


def test_a_message_is_cut_where_its_name_is_used_once(tmp_path: Path) -> None:
    """A name for one of several reasons is not a cut message."""
    assert style.cut_messages(house(tmp_path, {"gateway/a.py": STATEMENTS})).evidence == ("gateway/a.py:6",)


DOCSTRINGS = '''"""What a module is."""


class Row:
    """As it is stored."""

    name: str
    """Who wrote it."""

    def read(self) -> None:
        """Assert that it can be read; of which nothing is a fragment."""
        x = "What is no docstring"


LIMIT = 1
"""Whichever is less."""


async def without() -> None:
    """Withdraw."""
'''


def test_docstrings_are_judged_by_their_first_word(tmp_path: Path) -> None:
    """Modules, classes, functions and attributes have docstrings; only whole words count."""
    count = sentences.indirect_docstrings(house(tmp_path, {"gateway/a.py": DOCSTRINGS}))
    assert [line.partition(": ")[2] for line in count.evidence] == [
        "What a module is.",
        "As it is stored.",
        "Who wrote it.",
        "Whichever is less.",
    ]
    assert count.value == pytest.approx(100 * 4 / 6)


def test_comments_are_counted_by_lines(tmp_path: Path) -> None:
    """A whole line, or the end of one; a hash in a string is neither."""
    read = house(tmp_path, {"gateway/a.py": "# one\nx = '# none'  # end\n    # two\ny = 1  # fmt: skip\n"})
    assert comments.python_comment_lines(read).value == 2
    assert comments.python_line_ends(read).value == 2
    assert comments.formatter_skips(read).evidence == ("gateway/a.py:4",)


def test_rooms_are_what_lies_directly_in_a_package(tmp_path: Path) -> None:
    """Files and folders are rooms; a folder of folders alone is passed through."""
    read = house(
        tmp_path,
        {
            "gateway/__init__.py": "",
            "gateway/__main__.py": "from gateway import app\n",
            "gateway/app.py": "from gateway.channels.slack.api import call\nimport gateway.text.cut\n",
            "gateway/text/__init__.py": "",
            "gateway/text/cut.py": "def f():\n    from gateway.text.tree import leaf\n",
            "gateway/text/tree.py": "import gateway.text.cut\n",
            "gateway/channels/__init__.py": "",
            "gateway/channels/slack/api.py": "from shared import ids\n",
            "gateway/channels/matrix/api.py": "",
            "shared/ids.py": "",
        },
    )
    assert rooms.rooms("gateway")(read).evidence == (
        "gateway/__main__.py",
        "gateway/app.py",
        "gateway/channels/matrix",
        "gateway/channels/slack",
        "gateway/text",
    )
    assert rooms.arrows("gateway")(read).evidence == (
        "gateway/__main__.py -> gateway/app.py",
        "gateway/app.py -> gateway/channels/slack",
        "gateway/app.py -> gateway/text",
    )
    assert rooms.floors("gateway")(read).value == 3
    assert rooms.arrows_up("gateway")(read).value == 0
    assert rooms.file_circles(read).evidence == ("gateway/text/cut.py, gateway/text/tree.py",)


def test_an_import_that_closes_a_circle_of_rooms_goes_up(tmp_path: Path) -> None:
    """Relative imports and those for type checkers are arrows too."""
    read = house(
        tmp_path,
        {
            "worker/a/x.py": "from ..b import y\n",
            "worker/b/__init__.py": "",
            "worker/b/y.py": "if TYPE_CHECKING:\n    from worker.c import Z\n",
            "worker/c.py": "from worker.a.w import V\n",
            "worker/a/w.py": "",
        },
    )
    assert rooms.arrows("worker")(read).value == 3
    assert rooms.arrows_up("worker")(read).value == 1
    assert rooms.file_circles(read).value == 0


def test_a_package_is_found_where_it_once_was(tmp_path: Path) -> None:
    """Older checkouts have the console in another package; an absent one has no rooms."""
    read = house(tmp_path, {"shared/console/main.py": "", "shared/ids.py": ""})
    assert rooms.rooms("console")(read).evidence == ("shared/console/main.py",)
    assert rooms.rooms("worker")(read).value == 0


def test_folders_of_many_loose_files_are_listed(tmp_path: Path) -> None:
    """Fifteen files of code may lie side by side, whatever their language."""
    many = {f"worker/f{n}.py": "" for n in range(15)} | {"worker/__init__.py": "", "worker/a.lua": ""}
    fifteen = {f"shared/f{n}.js": "" for n in range(15)} | {"shared/words.md": ""}
    assert rooms.full_folders(house(tmp_path, many | fifteen)).evidence == ("worker: 16",)


def test_circles_and_floors_of_a_graph() -> None:
    """Two circles that share a node lose one edge each, or one for both if it is shared."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "b"}, "d": {"a"}, "e": set()}
    assert circles(graph) == [["a", "b", "c"]]
    assert back_edges(graph) == [("b", "c")]
    assert count_floors({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == 3
    assert count_floors({}) == 0


def test_lengths_are_measured(tmp_path: Path) -> None:
    """Empty files do not make the median smaller, nor empty lines the share of wide ones."""
    files = {f"worker/f{n:02}.py": "x = 1\n" * n for n in range(1, 21)}
    wide = {"shared/__init__.py": "", "shared/data.css": "a{}\n\n", "tests/test_a.py": "x = 1\n\n"}
    read = house(tmp_path, files | wide)
    assert size.median_length(read).value == 10
    assert size.p95_length(read).value == 19
    assert size.python_lines(read).value == 210
    assert size.product_lines(read).value == 212
    assert size.lines_of_tests(read).value == 2


def test_wide_lines_are_a_share_of_lines_with_text(tmp_path: Path) -> None:
    """A hundred columns are not wide; one more is."""
    read = house(tmp_path, {"worker/a.py": f"# {'x' * 99}\n\n# {'x' * 98}\n"})
    assert size.wide_lines(read).value == 50
    assert size.wide_lines(read).evidence == ("worker/a.py:1",)


def test_constants_of_leases_are_listed(tmp_path: Path) -> None:
    """An import of the constant is not another one."""
    text = "RENEWALS_PER_LEASE: Final = 5\n"
    read = house(tmp_path, {"worker/a.py": text, "worker/b.py": "from worker.a import RENEWALS_PER_LEASE\n"})
    assert names.lease_constants(read).evidence == ("worker/a.py:1",)


def test_a_row_knows_which_side_of_its_limit_is_right() -> None:
    """Comments are wanted; circles are not. A row without a limit accepts all."""
    most = Row(title="circles", count=rooms.file_circles, limit=2)
    least = Row(title="comments", count=comments.python_comment_lines, limit=10, at_least=True)
    assert most.accepts(2)
    assert not most.accepts(3)
    assert least.accepts(10)
    assert not least.accepts(9)
    assert Row(title="floors", count=rooms.floors("gateway")).accepts(99)


def test_the_table_is_printed_in_three_forms(tmp_path: Path) -> None:
    """A table for people, lists of places, and JSON for programs; a checkout without code has one, too."""
    read = house(tmp_path, {"worker/a.py": "told = 1\n"})
    assert "banned identifiers in the product" in render_table(read)
    assert "worker/a.py:1: told" in render_lists(read)
    objects = {one["title"]: one for one in json.loads(render_json(read))}
    assert objects["banned identifiers in the product"]["value"] == 1
    assert objects["banned identifiers in the product"]["reached"] is False
    assert objects["worker: floors"]["limit"] is None
    (tmp_path / "empty").mkdir()
    assert "lines of tests" in render_table(read_house(tmp_path / "empty"))
