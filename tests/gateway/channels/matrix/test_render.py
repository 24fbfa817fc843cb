from __future__ import annotations

import msgspec
import pytest

from gateway.channels.matrix.render import render_reply
from tests.gateway.text.readers import matrix as shown

_HEAD = "<table>\n<thead><tr><th>a</th></tr></thead>\n"


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("**a *b*** ~~c~~ `d`", "<p><strong>a <em>b</em></strong> <del>c</del> <code>d</code></p>"),
        ("## H\n\na\nb", "<h2>H</h2>\n<p>a<br>b</p>"),
        ("3. a\n4. b", '<ol start="3">\n<li>a</li>\n<li>b</li>\n</ol>'),
        ("- a\n\n  b", "<ul>\n<li><p>a</p>\n<p>b</p></li>\n</ul>"),
        ("> a\n>\n> > b", "<blockquote>\n<p>a</p>\n<blockquote>\n<p>b</p>\n</blockquote>\n</blockquote>"),
        ("```py\nx < 1\n```", '<pre><code class="language-py">x &lt; 1</code></pre>'),
        ("[a](https://h.example)", '<p><a href="https://h.example">a</a> (h.example)</p>'),
        ("<img src=x> <mx-reply>", "<p>&lt;img src=x&gt; &lt;mx-reply&gt;</p>"),
        ("|a|\n|-|", "<table>\n<thead><tr><th>a</th></tr></thead>\n</table>"),
        ("|a|\n|-|\n|1|", f"{_HEAD}<tbody>\n<tr><td>1</td></tr>\n</tbody>\n</table>"),
    ],
)  # fmt: skip
def test_markdown_becomes_the_html_that_matrix_allows(markdown: str, html: str) -> None:
    """The tags and attributes of the specification, and no image."""
    (piece,) = render_reply(markdown)
    assert piece.text == html
    shown(piece.text)


@pytest.mark.parametrize("unit", ["漢字 ", '" \\ < ', "word\n\n", "- *a*\n", "x"])
def test_an_edit_of_a_piece_fits_into_an_event(unit: str) -> None:
    """An edit holds both forms twice, and encryption makes four bytes of three; an event has 65,536."""
    for piece in render_reply(unit * (25_000 // len(unit))):
        content = {"body": piece.plain, "formatted_body": piece.text, "format": "org.matrix.custom.html"}
        edit = {
            **content,
            "m.new_content": content,
            "m.relates_to": {"event_id": "$" + "x" * 255, "rel_type": "m.replace"},
        }
        assert len(msgspec.json.encode(edit)) * 4 / 3 < 60_000


def test_a_list_that_goes_on_in_the_next_event_counts_on() -> None:
    """The number of an item is its own."""
    first, second, *_ = render_reply("".join(f"{n}. item number {n} of many items\n" for n in range(1, 600)))
    count = first.text.count("<li>")
    assert second.text.startswith(f'<ol start="{count + 1}">\n<li>item number {count + 1} ')
