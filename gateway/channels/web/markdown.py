"""Renders replies as HTML that is safe in a page."""

from __future__ import annotations

import asyncio
import html
import re
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from gateway.text.leaves import is_link, unshown_host

RENDER_LIMIT_BYTES: Final = 64 * 1024  # longer text is shown unrendered
QUICK_LIMIT: Final = 2 * 1024
"""Characters that may be rendered on the event loop: a few milliseconds."""

_CACHED_CHARS: Final = 4 * 1024 * 1024
_MAX_NESTING: Final = 50
_LANGUAGE: Final = re.compile(r"language-[\w+#.-]{1,32}")
_ALIGN: Final = {"text-align:left": "left", "text-align:center": "center", "text-align:right": "right"}


def _allow_attribute(tag: str, attribute: str, value: str) -> str | None:
    match attribute:
        case "href":
            allowed = is_link(value)
        case "class":
            allowed = tag == "code" and _LANGUAGE.fullmatch(value) is not None
        case "align":
            allowed = value in _ALIGN.values()
        case _:
            allowed = True
    return value if allowed else None


_BLOCKS: Final = {"blockquote", "br", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul"}
_TABLES: Final = {"table", "tbody", "td", "th", "thead", "tr"}
_clean = nh3.Cleaner(
    tags={*_BLOCKS, *_TABLES, "a", "code", "em", "s", "strong"},
    attributes={"a": {"href", "title"}, "code": {"class"}, "ol": {"start"}, "td": {"align"}, "th": {"align"}},
    attribute_filter=_allow_attribute,
    url_schemes={"http", "https", "mailto"},
    link_rel="noopener noreferrer nofollow",
    set_tag_attribute_values={"a": {"target": "_blank"}},
).clean


class _HtmlRenderer(RendererHTML):
    """Renders an image as a link, because loading it would tell its host who reads the reply and
    when. A link whose label hides its host shows the host after it."""

    def link_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        opened = next(at for at in range(idx, -1, -1) if tokens[at].type == "link_open")
        label = self.renderInlineAsText(tokens[opened + 1 : idx], options, env)
        return f"</a>{_host_note(label, str(tokens[opened].attrs.get('href', '')))}"

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        source = html.escape(str(token.attrs.get("src", "")))
        label = self.renderInlineAsText(token.children, options, env) if token.children else ""
        where = _host_note(label, str(token.attrs.get("src", ""))) if label else ""
        return f'<a href="{source}">{html.escape(label) or source}</a>{where}'


class _MarkdownParser:
    """A parser for one thread: its link finder keeps state."""

    def __init__(self) -> None:
        rules = {"html": False, "linkify": True, "breaks": True, "maxNesting": _MAX_NESTING}
        self._parser = MarkdownIt("commonmark", rules, renderer_cls=_HtmlRenderer)
        self._parser.enable(["table", "strikethrough", "linkify"])
        # Only links with a scheme: `setup.py` and `a.sh` are not hosts in a chat about code.
        assert self._parser.linkify is not None
        self._parser.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})

    def html(self, text: str) -> str:
        if len(text.encode()) > RENDER_LIMIT_BYTES:
            return _preformatted(text)
        env: dict[str, Any] = {}
        tokens = self._parser.parse(text, env)
        for token in tokens:
            if token.level >= _MAX_NESTING - 2:
                return _preformatted(text)  # deeper blocks would lose their text
            if token.type in ("th_open", "td_open") and "style" in token.attrs:
                token.attrs = {"align": _ALIGN.get(str(token.attrs["style"]), "left")}
            _unlink_linked_images(token.children or ())
        return _clean(self._parser.renderer.render(tokens, self._parser.options, env))


def _host_note(label: str, target: str) -> str:
    """Return ` (host)`, or nothing when the label is an address of that host."""
    host = unshown_host(label, target)
    return f" ({html.escape(host)})" if host else ""


def _unlink_linked_images(tokens: Sequence[Token]) -> None:
    """Replace images inside links by their labels: HTML has no link inside a link."""
    depth = 0
    for token in tokens:
        depth += (token.type == "link_open") - (token.type == "link_close")
        if token.type == "image" and depth:
            token.type, token.content = "text", token.content or str(token.attrs.get("src", ""))


def _preformatted(text: str) -> str:
    return f"<pre>{html.escape(text, quote=False)}</pre>"


class MarkdownRenderer:
    """Renders replies, and caches 4 MB of them: several sockets show the same, and again later."""

    def __init__(self) -> None:
        self._loop_parser = _MarkdownParser()
        self._thread_parser = _MarkdownParser()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="markdown")
        self._cache: OrderedDict[str, str] = OrderedDict()
        self._cached_chars = 0

    def is_quick(self, text: str) -> bool:
        """Return whether `html` takes only a few milliseconds."""
        return len(text) <= QUICK_LIMIT or text in self._cache

    def html(self, text: str) -> str:
        """Return `text` as safe HTML. Blocks the event loop for about 3 ms per kilobyte."""
        return self._cached(text) or self._add_to_cache(text, self._loop_parser.html(text))

    async def html_soon(self, text: str) -> str:
        """Return `text` as safe HTML, rendered in a thread, one text after another."""
        known = self._cached(text)
        if known is not None:
            return known
        rendered = await asyncio.get_running_loop().run_in_executor(self._thread, self._thread_parser.html, text)
        return self._add_to_cache(text, rendered)

    def close(self) -> None:
        """End the thread. What it still renders is dropped."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _cached(self, text: str) -> str | None:
        rendered = self._cache.get(text)
        if rendered is not None:
            self._cache.move_to_end(text)
        return rendered

    def _add_to_cache(self, text: str, rendered: str) -> str:
        if text not in self._cache:
            self._cache[text] = rendered
            self._cached_chars += len(text) + len(rendered)
            while self._cached_chars > _CACHED_CHARS:
                old, dropped = self._cache.popitem(last=False)
                self._cached_chars -= len(old) + len(dropped)
        return rendered
