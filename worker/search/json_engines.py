"""Search engines with a JSON API: Brave, SearXNG and Tavily.

- https://api-dashboard.search.brave.com/app/documentation/web-search/
- https://docs.searxng.org/dev/search_api.html
- https://docs.tavily.com/documentation/api-reference/endpoint/search
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlencode

import msgspec

from shared.errors import ToolFailed
from shared.guards.fetch import Fetcher
from worker.search.engine import SearchHit, check_status


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
