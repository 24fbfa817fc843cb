"""Brave Search: https://api-dashboard.search.brave.com/app/documentation/web-search/."""

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
    description: str = ""


class _Web(msgspec.Struct):
    results: list[_Result] = []


class _Found(msgspec.Struct):
    web: _Web | None = None


class Brave:
    """Needs a key."""

    name = "brave"

    def __init__(self, fetcher: Fetcher, url: str, key: str = "") -> None:
        self._fetcher = fetcher
        self._url = url
        self._headers = {"X-Subscription-Token": key, "Accept": "application/json"}

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        url = f"{self._url}?{urlencode({'q': query, 'count': count, 'text_decorations': 'false'})}"
        answer = await self._fetcher.fetch_url(url, types=JSON_TYPES, headers=self._headers, redirects=0)
        if answer.status == 422:  # what Brave says to a wrong key, as well as to a wrong query
            raise ToolFailed(
                "the search engine 'brave' refused the query or the key; try plain words, and if that fails too tell "
                "the user that an operator has to check tools.search_key"
            )
        found = decoded(answer, _Found, self.name)
        return [Hit(one.title, one.url, one.description) for one in (found.web.results if found.web else [])[:count]]
