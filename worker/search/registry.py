"""Which engine a name stands for."""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from shared.errors import SettingsError
from worker.guards.addresses import WebPolicy
from worker.guards.fetch import Fetcher
from worker.search.engine import SearchEngine

ENGINES: Final = {
    "duckduckgo": ("worker.search.duckduckgo:DuckDuckGo", "https://html.duckduckgo.com/html/"),
    "searxng": ("worker.search.searxng:SearXNG", ""),
    "brave": ("worker.search.brave:Brave", "https://api.search.brave.com/res/v1/web/search"),
    "tavily": ("worker.search.tavily:Tavily", "https://api.tavily.com/search"),
}
"""Where each engine's code is, and where it is asked when the operator names no other place."""

NEEDS_KEY: Final = frozenset({"brave", "tavily"})
SEARCH_BYTES: Final = 1024 * 1024


def build_engine(name: str, *, url: str = "", key: str = "", total_s: float = 15.0) -> SearchEngine:
    """The engine of that name; imports only that one. It reaches the one server that it is for,
    which may be private when the operator says so in `url`. Raises SettingsError for what does not
    fit together."""
    if name not in ENGINES:
        raise SettingsError(f"tools.search_engine: there is no {name!r}; use one of {', '.join(ENGINES)} or off")
    path, usual = ENGINES[name]
    if not (where := url or usual):
        raise SettingsError(f"tools.search_url is missing: say where your {name} is, such as 'http://searxng:8080'")
    if name in NEEDS_KEY and not key:
        raise SettingsError(f"tools.search_key is missing: {name} needs one")
    module, _, kind = path.partition(":")
    fetcher = Fetcher(WebPolicy.for_origin(where), body_bytes=SEARCH_BYTES, total_s=total_s)
    return cast(SearchEngine, getattr(import_module(module), kind)(fetcher, where, key))
