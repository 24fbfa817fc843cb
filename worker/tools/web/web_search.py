"""Searching the web."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from shared.errors import ToolFailed
from worker.agent.tools.tool import Safety, ToolContext
from worker.documents.untrusted import fence_web_text, one_line
from worker.search.engine import SearchEngine, plain_line

_TITLE_CHARS: Final = 200
_URL_CHARS: Final = 400
_TEXT_CHARS: Final = 400


class WebSearchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query."""

    query: Annotated[str, msgspec.Meta(max_length=400, description="A few words, such as `python 3.14 release date`.")]
    count: Annotated[int, msgspec.Meta(ge=1, le=10, description="How many results.")] = 5


class WebSearch:
    """Returns titles, addresses and the first words of pages, the best first."""

    name = "web_search"
    description = "Search the web. Gives titles, addresses and short extracts; read a page with web_fetch."
    parameters = WebSearchArguments
    safety: Safety = "read_only"
    timeout_s = 30.0

    def __init__(self, engine: SearchEngine) -> None:
        self._engine = engine

    async def run(self, arguments: WebSearchArguments, context: ToolContext) -> str:
        query = arguments.query.strip()
        if not query:
            raise ToolFailed("the query is empty; give a few words to look for")
        hits = await self._engine.search(query, arguments.count)
        shown = [
            f"{number}. {plain_line(hit.title, _TITLE_CHARS) or '(no title)'}\n   {one_line(hit.url, _URL_CHARS)}\n"
            f"   {plain_line(hit.text, _TEXT_CHARS)}".rstrip()
            for number, hit in enumerate((hit for hit in hits if hit.url.startswith(("http://", "https://"))), 1)
        ]
        if not shown:
            return f"Nothing was found for {query!r}. Try fewer or other words."
        return fence_web_text("\n\n".join(shown))
