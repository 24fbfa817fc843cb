"""The message that another one answers, as text before the new words. When it is long it is
shortened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

QUOTE_CHARS: Final = 1000
AUTHOR_CHARS: Final = 64
SOMEBODY: Final = "somebody"


class Quote(Struct, frozen=True):
    """A message that is answered. `familiar`: the person or the bot wrote it, in this very chat."""

    text: str
    author: str = ""
    familiar: bool = False


def with_quote(text: str, quote: Quote | None) -> str:
    """Return the new words below the quote. A command stays alone, or it would be none any more."""
    if quote is None or not quote.text.strip() or text.lstrip().startswith("/"):
        return text
    return "\n\n".join(filter(None, [_quote_block(quote), text]))


def is_strange(quote: Quote | None) -> bool:
    """Return whether the quote has words of others."""
    return quote is not None and bool(quote.text.strip()) and not quote.familiar


def forwarded_from(author: str, text: str) -> str:
    """Return a forwarded text below the name of its author."""
    return "\n".join(filter(None, [f"[forwarded from {author_name(author)}]", text]))


def author_name(name: str) -> str:
    """Return a name that people gave themselves as a few words of one line that end no bracket."""
    visible = "".join(char if char.isprintable() and char not in "[]" else " " for char in name)
    return " ".join(visible.split())[:AUTHOR_CHARS] or SOMEBODY


def lines_of(*lines: str | None) -> str:
    """Return those lines that have text."""
    return "\n".join(_with_text(lines))


def _with_text(lines: Iterable[str | None]) -> list[str]:
    return [line.strip() for line in lines if line and line.strip()]


def _quote_block(quote: Quote) -> str:
    text = quote.text.strip()
    if len(text) > QUOTE_CHARS:
        text = f"{text[:QUOTE_CHARS].rstrip()}…"
    shown = "\n".join(f"> {line}".rstrip() for line in text.splitlines())
    return f"[quoted from {author_name(quote.author)}]\n{shown}"
