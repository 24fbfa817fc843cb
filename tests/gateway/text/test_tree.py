from __future__ import annotations

import threading
import time

import pytest

from gateway.text.leaves import Leaf, Link, Run, slice_runs, text_of
from gateway.text.tree import read
from tests.gateway.costly import COSTLY, costly


def only(markdown: str) -> Leaf:
    """The one leaf of a document."""
    (leaf,) = read(markdown)
    return leaf


def test_a_paragraph_is_runs_of_one_look_each() -> None:
    """Styles from the outermost inwards; a line end of the text is one of the message."""
    assert only("a **b *c* d** `e*f*` ~~g~~\nh\\*").runs == (
        Run("a "), Run("b ", ("bold",)), Run("c", ("bold", "italic")), Run(" d", ("bold",)), Run(" "),
        Run("e*f*", code=True), Run(" "), Run("g", ("strike",)), Run("\nh*"),
    )  # fmt: skip


def test_a_leaf_knows_the_lists_and_quotes_around_it() -> None:
    """Which item it opens, with which number, and what it shares with the leaf before."""
    first, nested, second, quoted = read("3. a\n   - b\n4. c\n\n> d")
    assert [(step.kind, step.number, step.opens) for step in first.path] == [("item", 3, True)]
    assert [(step.kind, step.number, step.opens) for step in nested.path] == [("item", 3, False), ("item", None, True)]
    assert nested.path[0].id == first.path[0].id
    assert (second.path[0].number, second.path[0].list) == (4, first.path[0].list)
    assert [step.kind for step in quoted.path] == ["quote"]


def test_an_item_that_begins_with_nothing_is_opened_by_what_comes_next() -> None:
    """The mark of an item is never lost with an empty block."""
    leaf = only("- ```\n  ```\n  text")
    assert [step.opens for step in leaf.path] == [True]


@pytest.mark.parametrize("fence", ["```py\nx\n\n  y\n```", "```py\nx\n\n  y", "~~~ py title\nx\n\n  y\n~~~\n"])
def test_code_keeps_its_language_and_its_indentation(fence: str) -> None:
    """Also when nobody closed it."""
    leaf = only(fence)
    assert (leaf.kind, leaf.language, leaf.text) == ("code", "py", "x\n\n  y")


@pytest.mark.parametrize("info", ["<b>", 'x"onclick=', "x" * 33, "é"])
def test_a_language_that_is_no_name_is_left_out(info: str) -> None:
    """It becomes an attribute, or the first line of a block."""
    assert only(f"```{info}\ncode\n```").language == ""


@pytest.mark.parametrize(
    ("markdown", "link"),
    [
        ("[your bank](https://evil.example/x)", ("your bank", "evil.example", False)),
        ("[https://good.org](https://evil.org/)", ("https://good.org", "evil.org", False)),
        ("[good.org](http://good.org@evil.org/)", ("good.org", "evil.org", False)),
        ("[a.example/b](https://a.example/b?c)", ("a.example/b", "", False)),
        ("https://a.example/b", ("https://a.example/b", "", True)),
        ("<a@b.example>", ("a@b.example", "", True)),
        ("![plan](http://evil.example/x.png?d=data)", ("plan", "evil.example", False)),
        ("![](http://evil.example/x.png)", ("http://evil.example/x.png", "", False)),
        ("[\u200b](http://evil.example/)", ("http://evil.example/", "", False)),
        ("[![badge](http://a/b.png)](http://c)", ("badge", "c", False)),
    ],
)
def test_a_link_says_where_it_leads(markdown: str, link: tuple[str, str, bool]) -> None:
    """An image is a link as well; an address that shows itself needs no host."""
    (run,) = only(markdown).runs
    assert isinstance(run.link, Link)
    label, host, bare = link
    assert (run.text, run.link.host) == (label, host)
    assert run.link.bare or not bare


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("[x](tg://user?id=1)", "x (tg://user?id=1)"),
        ("[x](docs/a.md)", "x (docs/a.md)"),
        ("[docs/a.md](docs/a.md)", "docs/a.md"),
        ("setup.py, example.com, me@example.com", "setup.py, example.com, me@example.com"),
        ("<script>x</script><!-- y -->", "<script>x</script><!-- y -->"),
        ("\x1b[31mred\x1b[0m \x07b\u202eell\u2066 &#x202e;x", "red bell x"),
        ("half \ud83d", "half \ufffd"),
        ("a\r\nb\rc\u2028d", "a\nb\nc\nd"),
    ],
)
def test_what_must_not_work_in_a_chat_is_text_or_gone(markdown: str, text: str) -> None:
    """Scripts, apps, files, HTML, terminal codes, switches of the direction of writing."""
    leaf = only(markdown)
    assert leaf.text == text
    assert all(run.link is None for run in leaf.runs)


@pytest.mark.parametrize("depth", [*range(44, 56), 30_000])
@pytest.mark.parametrize("mark", ["> ", "- "])
def test_deep_nesting_loses_no_text(mark: str, depth: int) -> None:
    """What is nested too deeply is shown as it is."""
    assert only(mark * depth + "leaf").text.endswith("leaf")


def test_thousands_of_brackets_are_text() -> None:
    """Each may begin a link; looking for its end is the one thing that takes long."""
    text = "![" * 2000
    assert only(text).text == text
    assert [leaf.text for leaf in read("[a](http://b)\n\n" + text)] == ["a", text]


def test_two_threads_may_read_at_once() -> None:
    """Rendering long replies beside the event loop is the gateway's business."""
    found: list[list[Leaf]] = []
    readers = [threading.Thread(target=lambda: found.append(read("http://a.b *c*"))) for _ in range(4)]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
    assert found == [read("http://a.b *c*")] * 4


def test_a_part_of_some_runs_is_those_characters() -> None:
    """Every start and every end."""
    runs = only("ab**cd**`ef`gh").runs
    text = text_of(runs)
    for start in range(len(text) + 1):
        assert text_of(slice_runs(runs, start)) == text[start:]
        for stop in range(start, len(text) + 1):
            part = slice_runs(runs, start, stop)
            assert text_of(part) == text[start:stop]
            assert all(run.text for run in part)


@pytest.mark.parametrize("name", COSTLY)
def test_a_text_that_is_made_to_take_long_is_shown_as_it_is(name: str) -> None:
    """A gateway renders the replies of everybody on a platform, and each again while it is written."""
    text = costly(name, 48_000)
    began = time.process_time()
    leaves = read(text)
    assert time.process_time() - began < 1  # 0.05 s on a quiet machine
    assert "".join(leaf.text for leaf in leaves).startswith(text[:40].replace("\\(", "("))  # an escaped bracket


def test_a_large_table_and_a_long_list_are_rendered() -> None:
    """The limits are far beyond what is written to be read."""
    (table,) = read("|a|b|c|d|e|f|g|h|\n|" + "-|" * 8 + "\n" + "|1|2|3|4|5|6|7|8|\n" * 1_000)
    assert len(table.rows) == 1_001
    assert len(read("- [a](http://pond.example/b)\n" * 900)) == 900
