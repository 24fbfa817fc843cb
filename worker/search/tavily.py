"""Tavily: https://docs.tavily.com/documentation/api-reference/endpoint/search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shared.errors import ToolFailed
from worker.guards.fetch import Fetcher
from worker.search.engine import JSON_TYPES, Hit, decoded

_SPENT: Final = (432, 433)


class _Result(msgspec.Struct):
    url: str = ""
    title: str = ""
    content: str = ""


class _Found(msgspec.Struct):
    results: list[_Result] = []


class Tavily:
    """Needs a key."""

    name = "tavily"

    def __init__(self, fetcher: Fetcher, url: str, key: str = "") -> None:
        self._fetcher = fetcher
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        body = msgspec.json.encode({"query": query, "max_results": count, "search_depth": "basic"})
        answer = await self._fetcher.fetch_url(
            self._url, types=JSON_TYPES, method="POST", headers=self._headers, body=body, redirects=0
        )
        if answer.status in _SPENT:
            raise ToolFailed(
                "the search engine 'tavily' has no searches left on its plan; tell the user, and go on without a search"
            )
        found = decoded(answer, _Found, self.name)
        return [Hit(one.title, one.url, one.content) for one in found.results[:count]]
