from __future__ import annotations

import pytest

from gateway.channels.whatsapp.render import TEXT_LIMIT, render_reply
from tests.gateway.text.readers import whatsapp as shown

J = "\u200b"


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# Head", "*Head*"),
        ("**a** *b* ~~c~~ `d`", "*a* _b_ ~c~ ```d```"),
        ("```py\nx\n  y\n```", "```x\n  y```"),
        ("```\n`a` ``` b`\n```", f"```{J}`{J}a` {J}`{J}`` b{J}`{J}```"),
        ("[a](https://h.example/x)", "a (https://h.example/x)"),
        ("**[a](https://h.example/x)**", "*a* (https://h.example/x)"),
        ("https://h.example/x", "https://h.example/x"),
        ("[me](mailto:a@b.example) <a@b.example>", "me (a@b.example) a@b.example"),
        ("\\*a\\* `` ` ``", f"*{J}a* ```{J}`{J}```"),
        ("\\> a", f"{J}> a"),
        ("> a\n> b", "> a\n> b"),
        ("- a\n- b", "• a\n• b"),
        ("|a|b|\n|-|-|\n|1|2|", "```a  b\n─  ─\n1  2```"),
    ],
)  # fmt: skip
def test_markdown_becomes_what_whatsapp_marks_up(markdown: str, text: str) -> None:
    """A link has no label: its address follows."""
    (piece,) = render_reply(markdown)
    assert piece.text == text
    shown(piece.text)


def test_a_long_reply_fits() -> None:
    """Marks and joints counted."""
    for piece in render_reply("**a** `b` " * 3000):
        assert len(piece.text) <= TEXT_LIMIT
