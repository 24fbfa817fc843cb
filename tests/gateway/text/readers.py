"""What each platform would show of a message, read by rules written down a second time. Raises AssertionError for
markup that the platform would refuse, show raw, or read as something that nobody meant."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urlsplit

JOINT: Final = "\u200b"


def is_web_address(address: str) -> bool:
    return urlsplit(address).scheme.lower() in ("http", "https", "mailto") and not re.search(r"[\s<>\"|`]", address)


class _Tags(HTMLParser):
    """Tags that are allowed, closed in order, with allowed attributes."""

    def __init__(self, allowed: Mapping[str, set[str]], alone: set[str]) -> None:
        super().__init__(convert_charrefs=False)
        self.allowed, self.alone = allowed, alone
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.allowed, tag
        for name, value in attrs:
            assert name in self.allowed[tag], (tag, name)
            assert name != "href" or is_web_address(value or ""), value
        if tag in ("br", "hr", "p", "li", "tr", "td", "th", "pre", "ul", "ol"):
            self.text.append("\n")
        if tag == "hr":
            self.text.append("─")
        if tag not in self.alone:
            self.open.append(tag)
        self.check(tag)

    def check(self, tag: str) -> None:
        """What may be inside of what."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert not set("<>&") & set(data), data
        self.text.append(data)

    def handle_entityref(self, name: str) -> None:
        assert name in ("lt", "gt", "amp", "quot"), name
        self.text.append(html.unescape(f"&{name};"))

    def handle_charref(self, name: str) -> None:
        raise AssertionError(name)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def shown(self, source: str) -> str:
        self.feed(source)
        self.close()
        assert not self.open, self.open
        return "".join(self.text)


class _TelegramTags(_Tags):
    def __init__(self) -> None:
        bare: dict[str, set[str]] = {tag: set() for tag in ("b", "i", "u", "s", "pre", "blockquote")}
        super().__init__(bare | {"a": {"href"}, "code": {"class"}}, set())
        self.count = 0

    def check(self, tag: str) -> None:
        self.count += 1
        outer = self.open[:-1]
        assert "code" not in outer
        assert "pre" not in outer or (tag == "code" and outer[-1] == "pre")
        assert tag != "blockquote" or not outer
        assert tag not in ("pre", "code") or set(outer) <= {"blockquote", "pre"}
        assert tag != "a" or "a" not in outer


def telegram(text: str) -> str:
    reader = _TelegramTags()
    shown = reader.shown(text)
    assert len(shown.encode("utf-16-le")) // 2 <= 4096
    assert len(text.encode()) <= 35_000
    assert reader.count <= 100
    return shown


def matrix(text: str) -> str:
    plain = "del h1 h2 h3 h4 h5 h6 blockquote p ul li strong em hr br table thead tbody tr th td pre"
    allowed: dict[str, set[str]] = {tag: set() for tag in plain.split()}
    return _Tags(allowed | {"a": {"href"}, "code": {"class"}, "ol": {"start"}}, {"br", "hr"}).shown(text)


def email(text: str) -> str:
    plain = "del h1 h2 h3 h4 h5 h6 p ul li strong em hr br thead tbody tr"
    allowed: dict[str, set[str]] = {tag: set() for tag in plain.split()}
    styled = {
        "a": {"href"}, "code": {"class"}, "ol": {"start"}, "pre": {"style"}, "blockquote": {"style"},
        "table": {"border", "cellpadding", "style"}, "th": {"align"}, "td": {"align"},
    }  # fmt: skip
    assert "url(" not in "".join(re.findall(r'style="([^"]*)"', text))
    return _Tags(allowed | styled, {"br", "hr"}).shown(text)


_FENCED = re.compile(r"(?m)^```([A-Za-z0-9_+#.-]*)\n(.*?)\n```$", re.DOTALL)


def _blocks(text: str, inline: Callable[[str], str]) -> str:
    """Blocks of code as they are, and what is between them as `inline` reads it."""
    shown, at = [], 0
    for block in _FENCED.finditer(text):
        assert "```" not in block[2]
        shown += [inline(text[at : block.start()]), block[2]]
        at = block.end()
    return "".join([*shown, inline(text[at:])]).replace(JOINT, "")


def _hide(text: str, hidden: list[str]) -> str:
    hidden.append(text)
    return f"\x00{len(hidden) - 1}\x00"


def slack(text: str) -> str:
    assert len(text.encode("utf-16-le")) // 2 <= 4000
    for entity in re.findall(r"&[^;]{0,4};?", text):
        assert entity.startswith(("&amp;", "&lt;", "&gt;")), entity

    def unmarked(found: re.Match[str]) -> str:
        address, bar, label = found[1].partition("|")
        assert is_web_address(html.unescape(address)), found[0]
        assert not bar or label.strip()
        return label or address

    def inline(part: str) -> str:
        shown = re.sub(r"<([^<>\n]*)>", unmarked, part)
        assert not set("<>") & set(shown), shown
        assert "```" not in shown, shown
        return shown

    return html.unescape(_blocks(text, inline))


def whatsapp(text: str) -> str:
    assert len(text.encode("utf-16-le")) // 2 <= 4096
    assert text.count("```") % 2 == 0, text
    return text.replace(JOINT, "")


def discord(text: str) -> str:
    assert len(text.encode("utf-16-le")) // 2 <= 2000
    assert not re.search(r"@(?:everyone|here)", text, re.IGNORECASE), text
    assert not re.search(r"<[@#][!&]?\d", text), text

    def inline(part: str) -> str:
        hidden: list[str] = []

        # Escapes and code, whichever comes first; then addresses.
        part = re.sub(
            r"\\([^0-9A-Za-z\s])|(`+)(?!`)(.*?[^`])\2(?!`)",
            lambda m: _hide(m[1] or m[3], hidden),
            part,
            flags=re.DOTALL,
        )
        assert "`" not in part, part
        for address in re.findall(r"<([^<>\s]*)>", part):
            assert is_web_address(address), address
        part = re.sub(r"\[([^\[\]]*)\]\(<([^<>\s]+)>\)", r"\1", part)
        part = re.sub(r"<([^<>\s]*)>", r"\1", part)
        assert not set("<[|") & set(part), part
        _assert_marks_in_pairs(part)
        while "\x00" in part:
            part = re.sub("\x00(\\d+)\x00", lambda m: hidden[int(m[1])], part)
        return part

    return _blocks(text, inline)


def _assert_marks_in_pairs(text: str) -> None:
    for mark in (r"\*+", "~~"):
        assert len(re.findall(mark, text)) % 2 == 0, text


def feishu(text: str) -> str:
    assert len(text.encode()) <= 28_000
    assert not re.search(r"</?at\b", text, re.IGNORECASE), text

    def inline(part: str) -> str:
        hidden: list[str] = []
        part = re.sub(r"(?<!`)`([^`\n]+)`(?!`)", lambda m: _hide(m[1], hidden), part)
        assert "`" not in part, part
        assert "<" not in part, part

        def unmarked(found: re.Match[str]) -> str:
            assert is_web_address(found[2]), found[0]
            return found[1]

        part = re.sub(r"\[([^\[\]]*)\]\(([^()\s]+)\)", unmarked, part)
        assert not set("[]\\") & set(part), part
        for entity in re.findall(r"&[^;]{0,4};?", re.sub("https?://\\S*", "", part)):
            assert re.fullmatch(r"&#\d{2,3};", entity), entity
        _assert_marks_in_pairs(part)
        return re.sub("\x00(\\d+)\x00", lambda m: hidden[int(m[1])], html.unescape(part))

    return _blocks(text, inline)


READERS: Final[dict[str, Callable[[str], str]]] = {
    "telegram": telegram,
    "slack": slack,
    "discord": discord,
    "feishu": feishu,
    "whatsapp": whatsapp,
    "email": email,
    "matrix": matrix,
}
