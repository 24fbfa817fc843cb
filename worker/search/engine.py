"""What a search engine is, and what all of them do with a bad answer."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from shared.errors import ToolFailed
from worker.documents.untrusted import one_line
from worker.guards.fetch import WebResponse

T = TypeVar("T")

JSON_TYPES: Final = ("application/json", "*+json")
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


class Hit(msgspec.Struct, frozen=True):
    """One result. All three come from strangers."""

    title: str
    url: str
    text: str = ""


class SearchEngine(Protocol):
    """Finds pages. Raises ToolFailed, with a text for the model and without any key, for what keeps
    it from that."""

    @property
    def name(self) -> str: ...

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        """At most `count` results, the best first; none when there are none."""
        ...


def decoded(answer: WebResponse, type: type[T], engine: str) -> T:
    """The JSON of an answer as a Struct. Raises ToolFailed."""
    checked(answer, engine)
    try:
        return msgspec.json.decode(answer.body, type=type)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ToolFailed(
            f"the search engine {engine!r} gave an answer of another shape than it should; go on without a search, "
            "or open a page that you know"
        ) from None


def checked(answer: WebResponse, engine: str) -> None:
    """Raise ToolFailed, saying what to do, when an engine did not answer with a 2xx."""
    if answer.ok:
        return
    match answer.status:
        case 401 | 403:
            text = "refused us; tell the user that an operator has to check tools.search_key and tools.search_url"
        case 429:
            text = "is asked too often just now; do not search again in this turn, go on with what you have"
        case status if status >= 500:
            text = f"is broken just now (status {status}); try it once more later"
        case status:
            text = f"did not take the search (status {status}); try a shorter query in plain words"
    raise ToolFailed(f"the search engine {engine!r} {text}")


def plain(text: str, chars: int) -> str:
    """One line of text without the tags and entities that engines leave in it."""
    return one_line(html.unescape(_TAG.sub("", text)), chars)
