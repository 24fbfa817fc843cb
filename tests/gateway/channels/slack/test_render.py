from __future__ import annotations

import pytest

from gateway.channels.slack.render import TEXT_LIMIT, escape_mrkdwn, render_reply
from tests.gateway.text.readers import slack as shown

J = "\u200b"


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# Head", "*Head*"),
        ("**a** *b* ~~c~~ `d` ***e***", "*a* _b_ ~c~ `d` _*e*_"),
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        ("<!channel> <@U012345> <#C1|x>", "&lt;!channel&gt; &lt;@U012345&gt; &lt;#C1|x&gt;"),
        ("`<!here>`", "`&lt;!here&gt;`"),
        ("```py\n<!here> ``` x\n```", f"```\n&lt;!here&gt; {J}`{J}`` x\n```"),
        ("[a](https://h.example/?x=1&y=2)", "<https://h.example/?x=1&amp;y=2|a> (h.example)"),
        ("**[a|b](https://h.example)**", "*<https://h.example|a¦b>* (h.example)"),
        ("https://h.example/x", "<https://h.example/x>"),
        ("<a@b.example>", "<mailto:a@b.example|a@b.example>"),
        ("a**b**c 这是**重点**。", f"a{J}*b*{J}c 这是{J}*重点*。"),
        ("\\*a\\* \\`b\\` snake_case 2 * 3", f"*{J}a* `{J}b`{J} snake_case 2 * 3"),
        ("\\> no quote", f"{J}&gt; no quote"),
        ("> a\n> b", "&gt; a\n&gt; b"),
        ("**a\nb**", "*a*\n*b*"),
        ("``a`b``", f"a`{J}b"),
        ("1. a\n2. b", "1. a\n2. b"),
    ],
)  # fmt: skip
def test_markdown_becomes_mrkdwn(markdown: str, text: str) -> None:
    """Marks stand at words and within a line; nobody is named, whatever a text says."""
    (piece,) = render_reply(markdown)
    assert piece.text == text
    shown(piece.text)


def test_the_plain_text_names_nobody_either() -> None:
    """Slack reads references in every message, marked up or not."""
    (piece,) = render_reply("<!channel> & [l](https://h.example/?a=1&b=2)")
    assert piece.plain == "&lt;!channel&gt; &amp; l (https://h.example/?a=1&amp;b=2)"
    assert escape_mrkdwn("<@U1>") == "&lt;@U1&gt;"


def test_an_edit_has_room_for_a_piece() -> None:
    """chat.update takes 4000 characters, escapes counted."""
    pieces = render_reply("<" * 5000 + " word" * 2000)
    assert len(pieces) > 8
    assert all(len(piece.text) <= TEXT_LIMIT and len(piece.plain) <= TEXT_LIMIT for piece in pieces)
