"""Search engines by name, and how they treat a bad response."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Final, Protocol, cast

import msgspec

from shared.errors import SettingsError, ToolFailed
from worker.documents.untrusted import one_line
from worker.guards.addresses import WebPolicy
from worker.guards.fetch import Fetcher
from worker.guards.response import WebResponse

ENGINES: Final = {
    "duckduckgo": ("worker.search.duckduckgo:DuckDuckGo", "https://html.duckduckgo.com/html/"),
    "searxng": ("worker.search.json_engines:SearXNG", ""),
    "brave": ("worker.search.json_engines:Brave", "https://api.search.brave.com/res/v1/web/search"),
    "tavily": ("worker.search.json_engines:Tavily", "https://api.tavily.com/search"),
}
"""Class of each engine, and its address unless the operator sets another one."""

NEEDS_KEY: Final = frozenset({"brave", "tavily"})
SEARCH_BYTES: Final = 1024 * 1024
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


class SearchHit(msgspec.Struct, frozen=True):
    """One result. All three fields are text of strangers."""

    title: str
    url: str
    text: str = ""


class SearchEngine(Protocol):
    """Finds pages. Raises ToolFailed with a text for the model, which never contains the key."""

    @property
    def name(self) -> str: ...

    async def search(self, query: str, count: int) -> Sequence[SearchHit]:
        """Return at most `count` results, best first; empty if there are none."""


def build_engine(name: str, *, url: str = "", key: str = "", total_s: float = 15.0) -> SearchEngine:
    """Build the engine of that name, importing only that one. It can reach its own server and
    nothing else; that server may be private if the operator names it in `url`. Raises SettingsError
    for an unknown name or a missing address or key."""
    if name not in ENGINES:
        raise SettingsError(f"tools.search_engine: there is no {name!r}; use one of {', '.join(ENGINES)} or off")
    path, default_url = ENGINES[name]
    if not (address := url or default_url):
        raise SettingsError(f"tools.search_url is missing: say where your {name} is, such as 'http://searxng:8080'")
    if name in NEEDS_KEY and not key:
        raise SettingsError(f"tools.search_key is missing: {name} needs one")
    module, _, kind = path.partition(":")
    fetcher = Fetcher(WebPolicy.for_origin(address), body_bytes=SEARCH_BYTES, total_s=total_s)
    return cast(SearchEngine, getattr(import_module(module), kind)(fetcher, address, key))


def check_status(response: WebResponse, engine: str) -> None:
    """Raise ToolFailed, with advice, for a status other than 2xx."""
    if response.ok:
        return
    match response.status:
        case 401 | 403:
            text = "refused us; tell the user that an operator has to check tools.search_key and tools.search_url"
        case 429:
            text = "is asked too often just now; do not search again in this turn, go on with what you have"
        case status if status >= 500:
            text = f"is broken just now (status {status}); try it once more later"
        case status:
            text = f"did not take the search (status {status}); try a shorter query in plain words"
    raise ToolFailed(f"the search engine {engine!r} {text}")


def plain_line(text: str, chars: int) -> str:
    """Return one line of text without the tags and entities that engines leave in it."""
    return one_line(html.unescape(_TAG.sub("", text)), chars)
