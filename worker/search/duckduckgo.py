"""DuckDuckGo's HTML page for browsers without scripts: it offers no API. This uses the guarded
fetcher and not a scraping library: such a library is synchronous, cannot be cancelled, connects
past every address check, and poses as a browser. If DuckDuckGo asks for a human (a CAPTCHA), the
model reads that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

from shared.errors import ToolFailed
from worker.guards.fetch import Fetcher
from worker.search.engine import SearchHit, check_status

_ADVICE: Final = "tell the user that an operator can set another one in tools.search_engine"


class DuckDuckGo:
    """DuckDuckGo. Needs no key."""

    name = "duckduckgo"

    def __init__(self, fetcher: Fetcher, url: str, key: str = "") -> None:
        self._fetcher = fetcher
        self._url = url

    async def search(self, query: str, count: int) -> Sequence[SearchHit]:
        response = await self._fetcher.fetch_url(
            self._url,
            types=("text/html",),
            method="POST",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            body=urlencode({"q": query, "b": "", "kl": ""}).encode(),
            redirects=0,
        )
        page = response.body.decode("utf-8", "replace")
        # The CAPTCHA page comes with 202 or 403, and sometimes with 200: its markup decides then.
        if response.status in (202, 403) or "anomaly-modal" in page:
            raise ToolFailed(
                "the search engine 'duckduckgo' asks for a human just now; "
                f"do not search again in this turn, and {_ADVICE}"
            )
        check_status(response, self.name)
        results = _ResultPageParser()
        await asyncio.to_thread(results.feed, page)
        if not results.hits and "no-results" not in page:
            raise ToolFailed(
                f"the search engine 'duckduckgo' gave a page that cannot be read; go on without a search, and {_ADVICE}"
            )
        return results.hits[:count]


class _ResultPageParser(HTMLParser):
    """Collects links of class `result__a`, each with the `result__snippet` that follows it. Leaves
    out advertisements, which link to DuckDuckGo itself."""

    def __init__(self) -> None:
        super().__init__()
        self.hits: list[SearchHit] = []
        self._inside = ""
        self._url = ""
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        for name in ("result__a", "result__snippet"):
            if name in (attributes.get("class") or "").split():
                self._inside = name
                self._text = []
                if name == "result__a":
                    self._url = _link_target(attributes.get("href") or "")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if not self._inside or tag not in ("a", "div"):
            return
        text = "".join(self._text)
        if self._inside == "result__a" and self._url:
            self.hits.append(SearchHit(text, self._url))
        elif self._inside == "result__snippet" and self._url and self.hits:
            # An advertisement has set `_url` to "": its snippet must not replace the last hit's.
            self.hits[-1] = SearchHit(self.hits[-1].title, self.hits[-1].url, text)
        self._inside = ""


def _link_target(href: str) -> str:
    """Return the address behind DuckDuckGo's redirect link; empty for an advertisement."""
    parts = urlsplit(href)
    if parts.netloc.removeprefix("www.") in ("", "duckduckgo.com"):
        if parts.path.startswith("/l/"):
            return parse_qs(parts.query).get("uddg", [""])[0]
        return ""
    return href
