"""Colours code: spans with a class for each kind of word. The page's style sheet has the
colours."""

from __future__ import annotations

import html
from functools import cache
from typing import Final

from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class, get_all_lexers
from pygments.token import Token, _TokenType
from pygments.util import ClassNotFound

CODE_CHARS: Final = 24 * 1024
"""Longer code stays uncoloured: its markup would be larger than a page should load."""

_CLASSES: Final = {
    Token.Comment: "c",
    Token.Comment.Preproc: "k",
    Token.Generic.Deleted: "d",
    Token.Generic.Heading: "f",
    Token.Generic.Inserted: "i",
    Token.Generic.Prompt: "c",
    Token.Generic.Subheading: "f",
    Token.Keyword: "k",
    Token.Keyword.Constant: "n",
    Token.Literal: "n",
    Token.Literal.String: "s",
    Token.Name.Attribute: "f",
    Token.Name.Builtin: "b",
    Token.Name.Class: "f",
    Token.Name.Decorator: "b",
    Token.Name.Exception: "b",
    Token.Name.Function: "f",
    Token.Name.Tag: "k",
    Token.Name.Variable: "b",
    Token.Operator.Word: "k",
}
"""The class of a kind of word, and of the kinds below it."""


def highlight(code: str, language: str, _attributes: str = "") -> str:
    """Return `code` as HTML, coloured as this language; '' when the language is unknown."""
    lexer = _lexer(language.lower())
    if lexer is None or len(code) > CODE_CHARS:
        return ""
    parts: list[tuple[str, list[str]]] = []  # neighbours of one class are one span
    for kind, text in lexer.get_tokens(code):
        name = _class_of(kind)
        if parts and (parts[-1][0] == name or not text.strip()):
            parts[-1][1].append(text)
        else:
            parts.append((name, [text]))
    return "".join(_span(name, "".join(texts)) for name, texts in parts)


def _span(name: str, text: str) -> str:
    escaped = html.escape(text, quote=False)
    return f'<span class="hl-{name}">{escaped}</span>' if name else escaped


@cache
def _class_of(kind: _TokenType) -> str:
    return next((_CLASSES[one] for one in reversed(kind.split()) if one in _CLASSES), "")


@cache
def _names() -> dict[str, str]:
    # Without the lexers of other packages: looking for those reads every installed distribution.
    return {alias: name for name, aliases, *_ in get_all_lexers(plugins=False) for alias in aliases}


@cache
def _lexer(language: str) -> Lexer | None:
    name = _names().get(language)
    found = find_lexer_class(name) if name else None
    try:
        return found(stripnl=False, ensurenl=False) if found else None
    except ClassNotFound:
        return None
