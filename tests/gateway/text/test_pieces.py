from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.text.characters import is_blank
from gateway.text.pages import NOTHING
from gateway.text.tree import LIMIT_CHARS
from tests.gateway.text.readers import READERS
from tests.gateway.text.shown import assert_same_plain_text, expected_letters, letters, renderer

_MARKS = st.sampled_from(
    ["<", ">", "&", '"', "`", "```\n", "```py\n", "[", "](", ")", "![", "*", "**", "_", "~~", "|", "\\", "\n", "\n\n",
     "    ", "> ", "- ", "1. ", "# ", "---\n", "http://a.b/c ", "[l](https://h.example/x) ", "<https://auto.example>",
     "[a]: http://b.c\n", "![alt](http://i.example/x.png)", "mailto:a@b.example ", "|a|b|\n|-|:-:|\n|c|d|\n",
     "&lt;", "&#60;", "&#x202e;", "@everyone ", "<@123456789012345678>", "<!channel>", "<at id=all>", "\x1b[31m",
     "\u202e", "\ud83d", "\u200b", "\t", "x_y", "(", "a", "word ", " ", "$", "👩\u200d👩\u200d👧", "🇩🇪", "e\u0301",
     "שלום ", "漢字。"]
)  # fmt: skip

documents = st.lists(st.one_of(_MARKS, st.text(max_size=6)), max_size=40).map("".join)

_SETTINGS = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", READERS)
@_SETTINGS
@given(documents)
def test_whatever_a_reply_says_its_pieces_are_well_formed_and_say_it_all(name: str, text: str) -> None:
    """Markup that is allowed, closed and escaped; plain text that is the same; no letter lost or invented."""
    pieces = renderer(name)(text)
    shown = [READERS[name](piece.text) for piece in pieces]
    assert not any(is_blank(each) for each in shown) or pieces == [NOTHING]
    assert_same_plain_text(pieces, text, name)
    if len(pieces) == 1 and pieces != [NOTHING]:
        assert letters("".join(shown)) == expected_letters(text, name)


_LONG = st.builds(
    lambda parts, times: "".join(part * many for part, many in zip(parts, times, strict=False)),
    st.lists(st.one_of(_MARKS, documents), min_size=1, max_size=6),
    st.lists(st.sampled_from([1, 3, 50, 700]), min_size=6, max_size=6),
)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(_LONG)
@example("x" * 9000)
@example("👩\u200d👩\u200d👧" * 3000)
@example("e" + "\u0301" * 9000)
@example("```python\n" + "x = 1  # <&>\n" * 900 + "```")
@example("```\n" + "`" * 2000 + "y" * 5000)
@example("> - " * 20 + "leaf " * 3000)
@example("[" + "label " * 900 + "](https://host.example/" + "p" * 3000 + ")")
@example("|" + "head|" * 30 + "\n|" + "-|" * 30 + "\n" + ("|" + "cell|" * 30 + "\n") * 60)
@example("**" + "bold " * 2000 + "**")
@example("- item\n" * 900)
@example("*a* `b` " * 800)
@example("https://host.example/" + "&" * 3000)
@example("a\n" * 3000)
@example("# " + "heading " * 800)
def test_every_piece_of_a_long_reply_is_well_formed_by_itself(name: str, text: str) -> None:
    """Each fits, is closed, shows something, and together they say what the reply says."""
    pieces = renderer(name)(text)
    for piece in pieces:
        assert not is_blank(READERS[name](piece.text)), piece
        assert not is_blank(piece.plain)
    assert_same_plain_text(pieces, text, name)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "text", ["", " \n\t", "```\n```", "```python\n", "#", "- ", "\u200b", "\x1b[31m", "[x]: http://y.example", "\u3164"]
)
def test_a_reply_in_which_nothing_can_be_seen_is_an_ellipsis(name: str, text: str) -> None:
    """A platform refuses an empty message, and a message that was refused is a dead letter."""
    assert renderer(name)(text) == [NOTHING]


@pytest.mark.parametrize("text", ["👍", "\U0001fae9", "\U00014647", "\u0301", "."])
def test_a_sign_that_is_newer_than_this_python_can_be_seen(text: str) -> None:
    """An emoji of next year is no empty message."""
    assert not is_blank(text)


@pytest.mark.parametrize("name", READERS)
def test_a_reply_beyond_the_limit_is_shown_as_it_is(name: str) -> None:
    """Parsing is work, and a reply can be as large as a model likes."""
    text = ("**<b>** `x` word\n" * 9 + "\n") * (LIMIT_CHARS // 100)
    pieces = renderer(name)(text)
    for piece in pieces:
        READERS[name](piece.text)
    shown = "".join(READERS[name](piece.text) for piece in pieces)
    assert letters(shown) == letters(text)
