from __future__ import annotations

import pytest

from gateway.channels.telegram.render import ENTITIES_LIMIT, RAW_LIMIT, TEXT_LIMIT, render_reply
from tests.gateway.text.readers import telegram as shown


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# Head `c`", "<b>Head </b><code>c</code>"),
        ("**a *b*** ~~c~~", "<b>a <i>b</i></b> <s>c</s>"),
        ("a < b & c > d \"e\"", "a &lt; b &amp; c &gt; d &quot;e&quot;"),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("```c++\nx < y\n```", '<pre><code class="language-c++">x &lt; y</code></pre>'),
        ("```\nx\n```", "<pre>x</pre>"),
        ("- a\n  1. b\n- c", "• a\n  1. b\n• c"),
        ("> a\n>\n> > b", "<blockquote>a\n\nb</blockquote>"),
        ("> a\n>\n> ```\n> b\n> ```", "<blockquote>a</blockquote>\n\n<pre>b</pre>"),
        ("[a](https://h.example/?x=1&y=2)", '<a href="https://h.example/?x=1&amp;y=2">a</a> (h.example)'),
        ("[`a`](https://h.example)", '<a href="https://h.example">a</a> (h.example)'),
        ("[a](tg://user?id=1)", "a (tg://user?id=1)"),
        ("![i](https://h.example/i.png)", '<a href="https://h.example/i.png">i</a> (h.example)'),
        ("<b>x</b><script>", "&lt;b&gt;x&lt;/b&gt;&lt;script&gt;"),
        ("**`a`**", "<code>a</code>"),
        ("a\n\n---\n\nb", "a\n\n──────────\n\nb"),
    ],
)  # fmt: skip
def test_markdown_becomes_the_html_that_telegram_knows(markdown: str, text: str) -> None:
    """Its own few tags; no entity in code, no quote in a quote."""
    (piece,) = render_reply(markdown)
    assert piece.text == text
    shown(piece.text)


def test_the_limit_is_counted_behind_the_tags_and_in_utf16() -> None:
    """Tags and escapes cost nothing of it, an emoji two."""
    full = "**&** " * 30 + "word " * 763
    assert len(render_reply(full)) == 1
    assert len(render_reply("<" * TEXT_LIMIT)) == 1
    assert [len(piece.text) for piece in render_reply("👍" * 3000)] == [TEXT_LIMIT // 2, 3000 - TEXT_LIMIT // 2]


def test_no_message_has_more_entities_than_telegram_keeps() -> None:
    """The addresses of links behind the hundredth would be gone."""
    pieces = render_reply(" ".join(f"[l{n}](https://h.example/{n})" for n in range(250)))
    assert len(pieces) == 3
    assert all(piece.text.count("</a>") <= ENTITIES_LIMIT for piece in pieces)
    assert sum(piece.text.count("</a>") for piece in pieces) == 250


def test_no_message_is_longer_with_its_tags_than_telegram_reads() -> None:
    """Long addresses do not count for the text, but for the request."""
    pieces = render_reply(" ".join(f"[l{n}](https://h.example/{'p' * 1000}{n})" for n in range(60)))
    assert len(pieces) > 1
    assert all(len(piece.text.encode()) <= RAW_LIMIT for piece in pieces)
