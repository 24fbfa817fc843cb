"""Search engines with a JSON API: Brave, SearXNG and Tavily.

- https://api-dashboard.search.brave.com/app/documentation/web-search/
- https://docs.searxng.org/dev/search_api.html
- https://docs.tavily.com/documentation/api-reference/endpoint/search
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

import msgspec

from shared.errors import ToolFailed
from worker.guards.fetch import Fetcher
from worker.search.engine import JSON_TYPES, SearchHit, decode_response

_TAVILY_PLAN_SPENT: Final = (432, 433)


class _FoundPage(msgspec.Struct):
    """A result of any of the three. SearXNG and Tavily fill `content`, Brave `description`."""

    url: str = ""
    title: str = ""
    content: str | None = None
    description: str | None = None


class _FoundPages(msgspec.Struct):
    results: list[_FoundPage] = []


class _BraveReply(msgspec.Struct):
    web: _FoundPages | None = None


class Brave:
    """Brave Search. Needs a key."""

    name = "brave"

    def __init__(self, fetcher: Fetcher, url: str, key: str = "") -> None:
        self._fetcher = fetcher
        self._url = url
        self._headers = {"X-Subscription-Token": key, "Accept": "application/json"}

    async def search(self, query: str, count: int) -> Sequence[SearchHit]:
        url = f"{self._url}?{urlencode({'q': query, 'count': count, 'text_decorations': 'false'})}"
        response = await self._fetcher.fetch_url(url, types=JSON_TYPES, headers=self._headers, redirects=0)
        if response.status == 422:  # Brave's status for a wrong key as well as for a wrong query
            raise ToolFailed(
                "the search engine 'brave' refused the query or the key; try plain words, and if that fails too tell "
                "the user that an operator has to check tools.search_key"
            )
        web = decode_response(response, _BraveReply, self.name).web
        return [
            SearchHit(page.title, page.url, page.description or "") for page in (web.results if web else [])[:count]
        ]


class SearXNG:
    """SearXNG, an engine that the operator runs. Needs `json` in its `search.formats`."""

    name = "searxng"

    def __init__(self, fetcher: Fetcher, url: str, key: str = "") -> None:
        self._fetcher = fetcher
        self._url = url.rstrip("/").removesuffix("/search") + "/search"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def search(self, query: str, count: int) -> Sequence[SearchHit]:
        url = f"{self._url}?{urlencode({'q': query, 'format': 'json'})}"
        response = await self._fetcher.fetch_url(url, types=JSON_TYPES, headers=self._headers, redirects=0)
        if response.status == 403:  # SearXNG's status for a format that is switched off
            raise ToolFailed(
                "the search engine 'searxng' gives no JSON; tell the user that an operator has to add 'json' to "
                "search.formats in its settings"
            )
        found = decode_response(response, _FoundPages, self.name)
        return [SearchHit(page.title, page.url, page.content or "") for page in found.results[:count]]


class Tavily:
    """Tavily. Needs a key."""

    name = "tavily"

    def __init__(self, fetcher: Fetcher, url: str, key: str = "") -> None:
        self._fetcher = fetcher
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    async def search(self, query: str, count: int) -> Sequence[SearchHit]:
        body = msgspec.json.encode({"query": query, "max_results": count, "search_depth": "basic"})
        response = await self._fetcher.fetch_url(
            self._url, types=JSON_TYPES, method="POST", headers=self._headers, body=body, redirects=0
        )
        if response.status in _TAVILY_PLAN_SPENT:
            raise ToolFailed(
                "the search engine 'tavily' has no searches left on its plan; tell the user, and go on without a search"
            )
        found = decode_response(response, _FoundPages, self.name)
        return [SearchHit(page.title, page.url, page.content or "") for page in found.results[:count]]
