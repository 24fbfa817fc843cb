"""DuckDuckGo's page for browsers without scripts. It has no API: this reads what the page has for
people.

Plain HTTP through the guard rather than a scraping library: the library is synchronous, cannot be
stopped, connects by itself past every check, and poses as a browser. DuckDuckGo may ask for a human
instead; then the model is told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlencode, urlsplit

from shared.errors import ToolFailed
from worker.guards.fetch import Fetcher
from worker.search.engine import Hit, checked


class DuckDuckGo:
    """Needs no key."""

    name = "duckduckgo"

    def __init__(self, fetcher: Fetcher, url: str, key: str = "") -> None:
        self._fetcher = fetcher
        self._url = url

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        answer = await self._fetcher.fetch_url(
            self._url,
            types=("text/html",),
            method="POST",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            body=urlencode({"q": query, "b": "", "kl": ""}).encode(),
            redirects=0,
        )
        page = answer.body.decode("utf-8", "replace")
        if answer.status in (202, 403) or "anomaly-modal" in page:
            raise ToolFailed(
                "the search engine 'duckduckgo' asks for a human just now; do not search again in this turn, and tell "
                "the user that an operator can set another one in tools.search_engine"
            )
        checked(answer, self.name)
        results = _Results()
        await asyncio.to_thread(results.feed, page)
        if not results.hits and "no-results" not in page:
            raise ToolFailed(
                "the search engine 'duckduckgo' gave a page that cannot be read; go on without a search, and tell the "
                "user that an operator can set another one in tools.search_engine"
            )
        return results.hits[:count]


class _Results(HTMLParser):
    """Collects links of class `result__a`, and behind each the text of `result__snippet`.
    Advertisements, which lead to DuckDuckGo itself, are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.hits: list[Hit] = []
        self._inside = ""
        self._url = ""
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for name in ("result__a", "result__snippet"):
            if name in (given.get("class") or "").split():
                self._inside, self._text = name, []
                if name == "result__a":
                    self._url = _target(given.get("href") or "")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if not self._inside or tag not in ("a", "div"):
            return
        text = "".join(self._text)
        if self._inside == "result__a" and self._url:
            self.hits.append(Hit(text, self._url))
        elif self._inside == "result__snippet" and self._url and self.hits:
            self.hits[-1] = Hit(self.hits[-1].title, self.hits[-1].url, text)
        self._inside = ""


def _target(href: str) -> str:
    """Where a link leads in the end; empty for an advertisement."""
    parts = urlsplit(href)
    if parts.netloc.removeprefix("www.") in ("", "duckduckgo.com"):
        if parts.path.startswith("/l/"):
            return parse_qs(parts.query).get("uddg", [""])[0]
        return ""
    return href
