from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.text.characters import json_bytes, utf8, utf16
from gateway.text.layout import Dress
from gateway.text.leaves import Leaf
from gateway.text.pages import PageFormat, both, paginate
from gateway.text.tree import read


def body(leaf: Leaf) -> str:
    return f"```{leaf.language}\n{leaf.text}\n```" if leaf.kind == "code" else leaf.text


DRESS = Dress(body=body, quote=lambda text: f"<{text}>")


def pieces(markdown: str, limit: int) -> list[str]:
    """What `limit` characters of plain text, and of markup, make of a document."""
    page = PageFormat(write=DRESS.lay_out, size=both(len), limits=(limit, limit), gap=(2, 2))
    found = paginate(read(markdown), page)
    assert all(len(piece.plain) <= limit and len(piece.text) <= limit for piece in found)
    return [piece.text for piece in found]


def test_a_document_that_fits_is_one_piece() -> None:
    """Nothing is parted without need."""
    assert pieces("# a\n\nb\n\n- c", 40) == ["a\n\nb\n\n• c"]


def test_blocks_are_parted_before_lists_are() -> None:
    """Though another item would have had room."""
    assert pieces("0123456789 0123456789\n\n- one\n- two\n- three", 40) == [
        "0123456789 0123456789",
        "• one\n• two\n• three",
    ]


def test_a_list_is_parted_between_its_items_and_between_outer_ones_first() -> None:
    """An item stays together when it can."""
    assert pieces("- item one\n- item two\n- three\n  - inner\n  - inner again\n- four", 42) == [
        "• item one\n• item two",
        "• three\n  • inner\n  • inner again\n• four",
    ]


def test_a_heading_goes_with_what_it_heads() -> None:
    """It is never the last of several."""
    assert pieces("word " * 5 + "\n\n# Head\n\n" + "more " * 5, 40) == [
        "word word word word word",
        "Head\n\nmore more more more more",
    ]


def test_a_block_of_code_is_closed_and_opened_again_with_its_language() -> None:
    """Between two lines, and the next piece keeps its indentation."""
    source = "```python\n" + "".join(f"    line({n})\n" for n in range(6)) + "```"
    assert pieces(source, 45) == [
        "```python\n    line(0)\n    line(1)\n```",
        "```python\n    line(2)\n    line(3)\n```",
        "```python\n    line(4)\n    line(5)\n```",
    ]


def test_a_long_paragraph_is_cut_at_lines_then_sentences_then_words() -> None:
    """And only what has none of them inside a word."""
    assert pieces("first line is here\nsecond line is here too", 30) == [
        "first line is here",
        "second line is here too",
    ]
    assert pieces("It is said now. And it is said again.", 22) == ["It is said now.", "And it is said again."]
    assert pieces("一二三四五。六七八九十。", 8) == ["一二三四五。", "六七八九十。"]
    assert pieces("several words in a row here", 15) == ["several words", "in a row here"]
    assert pieces("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


@pytest.mark.parametrize("character", ["👩\u200d👩\u200d👧\u200d👦", "🇩🇪", "e\u0301", "👍🏽", "क्षि", "각"])
def test_a_character_is_never_cut(character: str) -> None:
    """What people see as one is one, of however many code points."""
    for length in range(9, 14):
        for piece in pieces(character * 12, length):
            assert piece == character * (len(piece) // len(character))


def test_a_character_that_alone_is_too_long_is_cut() -> None:
    """Else it could never be sent."""
    assert "".join(pieces("e" + "\u0301" * 50, 20)) == "e" + "\u0301" * 50


def test_a_link_is_not_cut_and_one_that_does_not_fit_becomes_text() -> None:
    """Half a link leads nowhere."""
    assert pieces("some words and [a link of words](http://x.y) end", 40) == ["some words and", "a link of words end"]
    assert "".join(pieces("[" + "label " * 9 + "](http://host.example/path)", 40)).replace(" ", "") == (
        "label" * 9 + "(http://host.example/path)"
    )


def test_what_goes_on_in_the_next_piece_has_no_mark_of_its_own() -> None:
    """A quote is one again, an item's bullet stands once."""
    assert pieces("> said and said again, and said", 25) == ["<said and said again,>", "<and said>"]
    assert pieces("- one item that is long, too long", 26) == ["• one item that is long,", "too long"]


def test_a_table_that_has_no_page_of_its_own_becomes_text() -> None:
    """Row by row it can be cut."""
    rows = "".join(f"| {n} | some cell |\n" for n in range(4))
    found = pieces(f"| n | cell |\n|---|------|\n{rows}", 48)
    assert found == [
        "```\nn  cell\n─  ─────────\n0  some cell\n```",
        "```\n1  some cell\n2  some cell\n3  some cell\n```",
    ]


def test_work_grows_with_the_document_and_not_faster() -> None:
    """Counted in characters that are rendered, as a machine's speed is nobody's fault."""

    def rendered(markdown: str) -> float:
        shown = 0

        def counting(leaves: Sequence[Leaf]) -> str:
            nonlocal shown
            text = DRESS.lay_out(leaves)
            shown += len(text)
            return text

        page = PageFormat(write=counting, size=both(len), limits=(500, 500), gap=(2, 2))
        paginate(read(markdown), page)
        return shown / len(markdown)

    for unit in ("word ", "- item\n", "para\n\n", "**a** ", "[l](http://h/x) ", "x", "```\ncode\n```\n", "漢字。"):
        assert rendered(unit * 8000) < 8


@pytest.mark.parametrize(
    ("text", "units", "size", "encoded"),
    [("abc", 3, 3, 5), ("é", 1, 2, 4), ("漢", 1, 3, 5), ("🇩🇪", 4, 8, 10), ('"\n\\', 3, 3, 8), ("", 0, 0, 2)],
)
def test_lengths_are_counted_as_platforms_count_them(text: str, units: int, size: int, encoded: int) -> None:
    """UTF-16 code units, bytes, bytes of JSON."""
    assert (utf16(text), utf8(text), json_bytes(text)) == (units, size, encoded)
