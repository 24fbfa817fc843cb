from __future__ import annotations

import msgspec
import pytest

from gateway.channels.feishu.render import TEXT_LIMIT, render_reply
from tests.gateway.text.readers import feishu as shown

J = "\u200b"


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# Head", "**Head**"),
        ("**a** *b* ~~c~~ `d`", "**a** *b* ~~c~~ `d`"),
        ("\\*a\\* <b> & [x] s_c", "&#42;a&#42; &#60;b&#62; &#38; &#91;x&#93; s&#95;c"),
        ("\\# a\n\\- b\n1\\. c", "&#35; a\n&#45; b\n1&#46; c"),
        ('<at id=all></at> <at user_id="x">', '&#60;at id=all&#62;&#60;/at&#62; &#60;at user&#95;id="x"&#62;'),
        ("`<at id=all>`", f"`<{J}at id=all>`"),
        ("```\n<at id=all></at> ```\n```", f"```\n<{J}at id=all><{J}/at> {J}`{J}`{J}`{J}\n```"),
        ("[a](https://h.example/x_(y))", "[a](https://h.example/x_%28y%29) (h.example)"),
        ("[m](mailto:a@b.example)", "m (a@b.example)"),
        ("- a\n  - b\n    1. c", "- a\n    - b\n        1. c"),
        ("> a", "> a"),
    ],
)  # fmt: skip
def test_markdown_becomes_that_of_a_card(markdown: str, text: str) -> None:
    """Signs are numeric entities, for want of escapes; nobody is named."""
    (piece,) = render_reply(markdown)
    assert piece.text == text
    shown(piece.text)


def test_the_plain_text_names_nobody_either() -> None:
    """Feishu reads `<at>` in messages of text, too."""
    (piece,) = render_reply('<at user_id="all">x</at>')
    assert piece.plain == f'<{J}at user_id="all">x<{J}/at>'


@pytest.mark.parametrize("unit", ["漢字 ", '" \\ ', "word\n", "*_ "])
def test_a_piece_fits_into_a_card_as_json(unit: str) -> None:
    """A request with a card has 30 KB, escapes and their escapes counted."""
    for piece in render_reply(unit * 15_000):
        for text in (piece.text, piece.plain):
            assert len(msgspec.json.encode(msgspec.json.encode(text).decode())) <= TEXT_LIMIT
