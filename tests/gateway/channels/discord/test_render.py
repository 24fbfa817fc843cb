from __future__ import annotations

import pytest

from gateway.channels.discord.render import TEXT_LIMIT, render_reply
from tests.gateway.text.readers import discord as shown

J = "\u200b"


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# A\n\n### B\n\n#### C", "# A\n\n### B\n\n**C**"),
        ("**a** *b* ~~c~~ `d` ***e***", "**a** _b_ ~~c~~ `d` _**e**_"),
        ("\\*a\\* snake_case ||spoiler|| [x]", "\\*a\\* snake\\_case \\|\\|spoiler\\|\\| \\[x]"),
        ("\\# a\n\\- b\n1\\. c\n\\> d", "\\# a\n\\- b\n1\\. c\n\\> d"),
        ("@everyone @here", f"@{J}everyone @{J}here"),
        ("<@123456789012345678> <@&12> <#34>", f"\\<@{J}123456789012345678> \\<@{J}&12> \\<#{J}34>"),
        ("`@everyone <@!12>`", f"`@{J}everyone <@{J}!12>`"),
        ("```py\n@here\n```", f"```py\n@{J}here\n```"),
        ("```\na ``` b\n```", f"```\na {J}`{J}`` b\n```"),
        ("``a`b`` ```` ``` ````", "``a`b`` ```` ``` ````"),
        ("[a](https://h.example/x)", "[a](<https://h.example/x>) (h.example)"),
        ("[h.example](https://evil.example/)", "h.example (<https://evil.example/>)"),
        ("https://h.example/x_y", "<https://h.example/x_y>"),
        ("https://h.example/@everyone", "<https://h.example/%40everyone>"),
        ("[m](mailto:a@b.example)", "m (a@b.example)"),
        ("![i](https://h.example/i.png)", "[i](<https://h.example/i.png>) (h.example)"),
        ("- a\n  - b\n\n1. c", "- a\n  - b\n\n1. c"),
        ("> a\n> - b", "> a\n>\n> - b"),
        ("a*b*c", f"a{J}_b_{J}c"),
        ("*a***b**", f"_a_{J}**b**"),
    ],
)  # fmt: skip
def test_markdown_becomes_discords_own(markdown: str, text: str) -> None:
    """Escaped where Discord would read more than was meant; names nobody, and shows no previews."""
    (piece,) = render_reply(markdown)
    assert piece.text == text
    shown(piece.text)


def test_the_plain_text_names_nobody_either() -> None:
    """Discord has no plain messages: a name in one would be a name."""
    (piece,) = render_reply("@everyone <@123456789012345678>")
    assert piece.plain == f"@{J}everyone <@{J}123456789012345678>"


def test_escapes_count() -> None:
    """A message has 2000 characters, however many of them are backslashes."""
    pieces = render_reply("\\*\\_" * 3000)
    assert all(len(piece.text) <= TEXT_LIMIT for piece in pieces)
    assert "".join(shown(piece.text) for piece in pieces) == "*_" * 3000
