"""The web tools, assembled. Import this only if they are on, because it brings the HTTP library."""

from __future__ import annotations

from collections.abc import Sequence

from worker.agent.tools.tool import Tool
from worker.documents.page_reader import PageReader
from worker.guards.addresses import WebPolicy
from worker.guards.fetch import FETCH_BYTES, FETCH_S, Fetcher
from worker.search.engine import build_engine
from worker.tools.web.web_fetch import WebFetch
from worker.tools.web.web_search import WebSearch


def build_web_tools(
    *,
    engine: str = "duckduckgo",
    url: str = "",
    key: str = "",
    fetch_bytes: int = FETCH_BYTES,
    fetch_s: float = FETCH_S,
    allow: Sequence[str] = (),
) -> tuple[Tool, ...]:
    """Return web_fetch, and web_search unless `engine` is `off`. Raises SettingsError for settings
    that do not fit."""
    fetcher = Fetcher(WebPolicy.from_settings(allow), body_bytes=fetch_bytes, total_s=fetch_s)
    fetch = WebFetch(fetcher, PageReader())
    if engine == "off":
        return (fetch,)
    return (WebSearch(build_engine(engine, url=url, key=key)), fetch)
