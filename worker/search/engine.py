"""Search engines by name, how they treat a bad response, and those with a JSON API.

- https://api-dashboard.search.brave.com/app/documentation/web-search/
- https://docs.searxng.org/dev/search_api.html
- https://docs.tavily.com/documentation/api-reference/endpoint/search
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Final, Protocol, cast
from urllib.parse import urlencode

import msgspec

from shared.errors import SettingsError, ToolFailed
from worker.documents.untrusted import one_line
from worker.guards.addresses import WebPolicy
from worker.guards.fetch import Fetcher
from worker.guards.response import WebResponse

ENGINES: Final = {
    "duckduckgo": ("worker.search.duckduckgo:DuckDuckGo", "https://html.duckduckgo.com/html/"),
    "searxng": ("worker.search.engine:SearXNG", ""),
    "brave": ("worker.search.engine:Brave", "https://api.search.brave.com/res/v1/web/search"),
    "tavily": ("worker.search.engine:Tavily", "https://api.tavily.com/search"),
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
        wrong = f"tools.search_engine: there is no {name!r}"
        raise SettingsError(f"{wrong}; use one of {', '.join(ENGINES)} or off")
    path, default_url = ENGINES[name]
    if not (address := url or default_url):
        where = f"say where your {name} is, such as 'http://searxng:8080'"
        raise SettingsError(f"tools.search_url is missing: {where}")
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


class _FoundPage(msgspec.Struct):
    """A result of any of the three. SearXNG and Tavily fill `content`, Brave `description`."""

    url: str = ""
    title: str = ""
    content: str | None = None
    description: str | None = None


class _FoundPages(msgspec.Struct):
    """A response: Brave has its results in `web`."""

    results: list[_FoundPage] = []
    web: _FoundPages | None = None


class JsonEngine:
    """An engine that answers one request in JSON. `refusals` are its own statuses in words."""

    name: ClassVar[str]
    refusals: ClassVar[Mapping[int, str]]

    def __init__(self, fetcher: Fetcher, url: str, key: str = "") -> None:
        self._fetcher = fetcher
        self._url = url
        self._key = key

    async def _ask(self, url: str, count: int, **request: Any) -> Sequence[SearchHit]:
        types = ("application/json", "*+json")
        response = await self._fetcher.fetch_url(url, types=types, redirects=0, **request)
        if refusal := self.refusals.get(response.status):
            raise ToolFailed(f"the search engine {self.name!r} {refusal}")
        check_status(response, self.name)
        try:
            found = msgspec.json.decode(response.body, type=_FoundPages)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise ToolFailed(
                f"the search engine {self.name!r} gave an answer of another shape than it should; "
                "go on without a search, or open a page that you know"
            ) from None
        pages = (found.web or found).results[:count]
        return [SearchHit(page.title, page.url, page.content or page.description or "") for page in pages]


class Brave(JsonEngine):
    """Brave Search. Needs a key."""

    name = "brave"
    refusals: ClassVar = {  # its status for a wrong key as well as for a wrong query
        422: "refused the query or the key; try plain words, and if that fails too tell the user that an "
        "operator has to check tools.search_key"
    }

    async def search(self, query: str, count: int) -> Sequence[SearchHit]:
        asked = urlencode({"q": query, "count": count, "text_decorations": "false"})
        headers = {"X-Subscription-Token": self._key, "Accept": "application/json"}
        return await self._ask(f"{self._url}?{asked}", count, headers=headers)


class SearXNG(JsonEngine):
    """SearXNG, an engine that the operator runs. Needs `json` in its `search.formats`."""

    name = "searxng"
    refusals: ClassVar = {  # its status for a format that is switched off
        403: "gives no JSON; tell the user that an operator has to add 'json' to search.formats in its settings"
    }

    async def search(self, query: str, count: int) -> Sequence[SearchHit]:
        url = self._url.rstrip("/").removesuffix("/search") + "/search"
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        return await self._ask(f"{url}?{urlencode({'q': query, 'format': 'json'})}", count, headers=headers)


class Tavily(JsonEngine):
    """Tavily. Needs a key."""

    name = "tavily"
    refusals: ClassVar = dict.fromkeys(
        (432, 433), "has no searches left on its plan; tell the user, and go on without a search"
    )

    async def search(self, query: str, count: int) -> Sequence[SearchHit]:
        body = msgspec.json.encode({"query": query, "max_results": count, "search_depth": "basic"})
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        return await self._ask(self._url, count, method="POST", headers=headers, body=body)
