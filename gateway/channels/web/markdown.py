"""Renders Markdown as HTML that is safe in a page. Pure; `renderer.py` keeps its time within
limits.

Colours of code and formulas take libraries that the gateway does not import: only the process of
the renderer does, where a text that takes too long can be ended."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.texmath import texmath_plugin

from gateway.text.leaves import is_link, unshown_host

RENDER_LIMIT_BYTES: Final = 64 * 1024  # longer text is shown unrendered
QUICK_LIMIT: Final = 2 * 1024
"""Characters that may be rendered on the event loop."""

_QUICK_WORK: Final = 40_000
# Beginnings of links, cells, quotes, formulas and list items
_MARKS: Final = re.compile(r"[\[|>$]|[-+*.)][ \t]|://")
_EXTRAS: Final = re.compile(r"(?:```|~~~)[`~ \t]*[^\s`~]|\$[^$]+\$|\\[(\[]")
_MAX_NESTING: Final = 50
_LANGUAGE: Final = re.compile(r"language-[\w+#.-]{1,32}")
_PICTURE: Final = re.compile(r"data:image/(?:gif|jpeg|png|webp);base64,[A-Za-z0-9+/]+=*")
_CLASSES: Final = {
    "code": _LANGUAGE,
    "li": re.compile("task"),
    "ol": re.compile("notes"),
    "p": re.compile("formula"),
    "span": re.compile("hl-[a-z]"),
}
_USUAL_LANGUAGES: Final = (
    "python",
    "bash",
    "json",
    "javascript",
    "typescript",
    "html",
    "css",
    "sql",
    "yaml",
    "go",
    "rust",
)
_FOLD: Final = re.compile(r"<details(?: open)?>(?:\s*<summary>([^\n]{0,500}?)</summary>)?\s*")
_BOLD: Final = re.compile(r"</?(?:b|strong|em|i|code)>")
_TASK: Final = re.compile(r"\[([ xX])\] ")
_ALIGN: Final = {"text-align:left": "left", "text-align:center": "center", "text-align:right": "right"}


_MATH_TAGS: Final = """
    math menclose mfrac mi mn mo mover mpadded mphantom mroot mrow mspace msqrt mstyle msub msubsup msup mtable mtd
    mtext mtr munder munderover
"""
_MATH: Final = set(_MATH_TAGS.split())
_MATH_ATTRIBUTES: Final = """
    accent columnalign columnlines columnspacing depth display displaystyle fence form height linethickness lspace
    mathsize mathvariant maxsize minsize movablelimits notation rowlines rowspacing rspace scriptlevel separator
    stretchy symmetric voffset width
"""
_MATH_VALUE: Final = re.compile(r"[\w +.%-]{1,80}")


def _allow_attribute(tag: str, attribute: str, value: str) -> str | None:
    match attribute:
        case "href":
            allowed = is_link(value)
        case "class":
            allowed = _CLASSES[tag].fullmatch(value) is not None
        case "src":
            allowed = _PICTURE.fullmatch(value) is not None
        case "align":
            allowed = value in _ALIGN.values()
        case "title" | "alt" | "start":
            allowed = True
        case _ if tag in _MATH:
            allowed = _MATH_VALUE.fullmatch(value) is not None
        case _:
            allowed = True
    return value if allowed else None


_FOLDED: Final = {"details", "summary"}
_BLOCKS: Final = {"blockquote", "br", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul"}
_TABLES: Final = {"table", "tbody", "td", "th", "thead", "tr"}
_clean = nh3.Cleaner(
    tags={*_BLOCKS, *_FOLDED, *_TABLES, *_MATH, "a", "code", "em", "img", "s", "span", "strong", "sup"},
    attributes={
        **{tag: set(_MATH_ATTRIBUTES.split()) for tag in _MATH},
        **{tag: {"class"} for tag in ("code", "li", "p", "span")},
        "a": {"href", "title"},
        "img": {"alt", "src"},
        "ol": {"class", "start"},
        "td": {"align"},
        "th": {"align"},
    },
    attribute_filter=_allow_attribute,
    url_schemes={"http", "https", "mailto", "data"},  # the filter allows `data:` for pictures alone
    link_rel="noopener noreferrer nofollow",
    set_tag_attribute_values={"a": {"target": "_blank"}},
).clean


class _HtmlRenderer(RendererHTML):
    """Renders an image as a link, because loading it would tell its host who reads the reply and
    when; one that is in the text itself is shown. A link whose label hides its host shows the host
    after it. Notes have no links, because several replies on a page have a note 1."""

    def link_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        opened = next(at for at in range(idx, -1, -1) if tokens[at].type == "link_open")
        label = self.renderInlineAsText(tokens[opened + 1 : idx], options, env)
        return f"</a>{_host_note(label, str(tokens[opened].attrs.get('href', '')))}"

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        source = html.escape(str(token.attrs.get("src", "")))
        label = self.renderInlineAsText(token.children, options, env) if token.children else ""
        if _PICTURE.fullmatch(source):
            return f'<img src="{source}" alt="{html.escape(label)}">'
        where = _host_note(label, str(token.attrs.get("src", ""))) if label else ""
        return f'<a href="{source}">{html.escape(label) or source}</a>{where}'


def _note_number(self: RendererHTML, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
    return f"<sup>[{int(tokens[idx].meta['id']) + 1}]</sup>"


def _formula_source(tex: str, *, block: bool) -> str:
    """Show a formula as it was written."""
    return f"<code>{html.escape(tex, quote=False)}</code>"


@cache
def _parser(extras: bool) -> MarkdownIt:
    # For one thread: its link finder keeps state.
    rules: dict[str, Any] = {"html": False, "linkify": True, "breaks": True, "maxNesting": _MAX_NESTING}
    formula = _formula_source
    if extras:
        from gateway.channels.web.formulas import mathml as formula
        from gateway.channels.web.highlight import highlight

        rules["highlight"] = highlight
    made = MarkdownIt("commonmark", rules, renderer_cls=_HtmlRenderer)
    made.enable(["table", "strikethrough", "linkify"])
    # Only links with a scheme: `setup.py` and `a.sh` are not hosts in a chat about code.
    assert made.linkify is not None
    made.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
    made.use(footnote_plugin, inline=False)
    # Prices are no formulas: `$5 and $6`.
    made.use(dollarmath_plugin, allow_labels=False, allow_space=False, allow_digits=False, double_inline=True)
    made.use(texmath_plugin, delimiters="brackets")

    def inline(self: RendererHTML, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return formula(tokens[idx].content.strip(), block=False)

    def block(self: RendererHTML, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f'<p class="formula">{formula(tokens[idx].content.strip(), block=True)}</p>\n'

    def nothing(self: RendererHTML, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return ""

    def constant(text: str) -> Any:
        return lambda self, tokens, idx, options, env: text

    shown = {
        "math_inline": inline,
        "math_single": inline,
        "math_inline_double": inline,
        "math_block": block,
        "math_block_eqno": block,
        "footnote_ref": _note_number,
        "footnote_anchor": nothing,
        "footnote_block_open": constant('<hr>\n<ol class="notes">\n'),
        "footnote_block_close": constant("</ol>\n"),
        "footnote_open": constant("<li>"),
        "footnote_close": constant("</li>\n"),
    }
    for kind, rule in shown.items():
        made.add_render_rule(kind, rule)
    return made


def is_quick(text: str) -> bool:
    """Return whether `render` takes only milliseconds. The time of a hostile text grows with the
    marks that may begin something, each of which is looked at up to the end of the text or for
    every line, and that of a table with its rows and columns."""
    if len(text) > QUICK_LIMIT:
        return False
    return len(_MARKS.findall(text)) * (len(text) + 25 * text.count("\n")) <= _QUICK_WORK


def has_extras(text: str) -> bool:
    """Return whether `text` may have code to colour, or formulas."""
    return _EXTRAS.search(text) is not None


def render(text: str, *, extras: bool = False) -> str:
    """Return `text` as HTML; with `extras` code is coloured and formulas are MathML. A hostile text
    of 16 kB takes many seconds."""
    env: dict[str, Any] = {}
    parser = _parser(extras)
    tokens = parser.parse(text, env)
    for token in tokens:
        if token.level >= _MAX_NESTING - 2:
            return preformatted(text)  # deeper blocks would lose their text
        if token.type in ("th_open", "td_open") and "style" in token.attrs:
            token.attrs = {"align": _ALIGN.get(str(token.attrs["style"]), "left")}
        _unlink_linked_images(token.children or ())
    _mark_tasks(tokens)
    _fold_details(tokens)
    return _clean(parser.renderer.render(tokens, parser.options, env))


def render_utf8(text: bytes) -> bytes:
    """Render a text in a process of its own (`ParserProcess`)."""
    if not text:  # before the first fork: what this imports, every fork then has
        text = "".join(f"```{name}\nx = 1\n```\n" for name in _USUAL_LANGUAGES).encode() + b"$x$"
    return render(text.decode(), extras=True).encode()


def _host_note(label: str, target: str) -> str:
    """Return ` (host)`, or nothing when the label is an address of that host."""
    host = unshown_host(label, target)
    return f" ({html.escape(host)})" if host else ""


def _mark_tasks(tokens: Sequence[Token]) -> None:
    """Make `[ ]` and `[x]` at the beginning of a list item a box, which screen readers read as
    well."""
    for item, paragraph, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        words = inline.children or ()
        if (item.type, paragraph.type) != ("list_item_open", "paragraph_open") or not words:
            continue
        if words[0].type == "text" and (task := _TASK.match(words[0].content)):
            item.attrSet("class", "task")
            words[0].content = ("☐ " if task[1] == " " else "☑ ") + words[0].content[task.end() :]


def _fold_details(tokens: list[Token]) -> None:
    """Make `<details>` with its `<summary>`, and the `</details>` that ends it, elements, where each
    is a paragraph of its own in the same list item, quote or text. Anything else stays the text
    that it is, and so does every attribute: no other HTML of a reply is ever taken."""
    begun: list[tuple[int, str]] = []
    for at, token in enumerate(tokens):
        while begun and token.level < tokens[begun[-1][0]].level - 1:
            begun.pop()  # the list item or quote that it began in has ended
        if token.type != "inline" or tokens[at - 1].type != "paragraph_open":
            continue
        if fold := _FOLD.fullmatch(token.content):
            title = html.escape(_BOLD.sub("", fold[1] or "").strip() or "Details", quote=False)
            begun.append((at, f"<details>\n<summary>{title}</summary>\n"))
        elif token.content.strip() == "</details>" and begun and tokens[begun[-1][0]].level == token.level:
            opened, shown = begun.pop()
            _replace_paragraph(tokens, opened, shown)
            _replace_paragraph(tokens, at, "</details>\n")


def _replace_paragraph(tokens: list[Token], at: int, shown: str) -> None:
    """Put HTML in the place of the paragraph whose text is token number `at`."""
    level = tokens[at - 1].level
    blank = (Token("html_block", "", 0, content=text, level=level) for text in ("", shown, ""))
    tokens[at - 1 : at + 2] = blank


def _unlink_linked_images(tokens: Sequence[Token]) -> None:
    """Replace images inside links by their labels: HTML has no link inside a link."""
    depth = 0
    for token in tokens:
        depth += (token.type == "link_open") - (token.type == "link_close")
        if token.type == "image" and depth:
            token.type, token.content = "text", token.content or str(token.attrs.get("src", ""))


def preformatted(text: str) -> str:
    """Return `text` as it is, escaped."""
    return f"<pre>{html.escape(text, quote=False)}</pre>"
