"""SearXNG, a search engine that an operator runs: https://docs.searxng.org/dev/search_api.html."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from shared.errors import ToolFailed
from worker.guards.fetch import Fetcher
from worker.search.engine import JSON_TYPES, Hit, decoded


class _Result(msgspec.Struct):
    url: str = ""
    title: str = ""
    content: str | None = None


class _Found(msgspec.Struct):
    results: list[_Result] = []


class SearXNG:
    """Needs `json` among the instance's `search.formats`."""

    name = "searxng"

    def __init__(self, fetcher: Fetcher, url: str, key: str = "") -> None:
        self._fetcher = fetcher
        self._url = url.rstrip("/").removesuffix("/search") + "/search"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        url = f"{self._url}?{urlencode({'q': query, 'format': 'json'})}"
        answer = await self._fetcher.fetch_url(url, types=JSON_TYPES, headers=self._headers, redirects=0)
        if answer.status == 403:
            raise ToolFailed(
                "the search engine 'searxng' gives no JSON; tell the user that an operator has to add 'json' to "
                "search.formats in its settings"
            )
        found = decoded(answer, _Found, self.name)
        return [Hit(one.title, one.url, one.content or "") for one in found.results[:count]]
