"""The web tools. Import this only if they are on, because it brings the HTTP library."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from shared.errors import ToolFailed
from shared.settings import ToolsSettings
from worker.agent.tools.tool import Safety, Tool, ToolContext
from worker.documents.reader import PAGE_TYPES, DocumentPageReader
from worker.documents.untrusted import fence_web_text, one_line, strip_hidden
from worker.guards.addresses import WebPolicy
from worker.guards.fetch import Fetcher
from worker.search.engine import SearchEngine, build_engine, plain_line


class WebSearchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A query."""

    query: Annotated[str, Meta(max_length=400, description="A few words, such as `python 3.14 release date`.")]
    count: Annotated[int, Meta(ge=1, le=10, description="How many results.")] = 5


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
        on_web = (hit for hit in hits if hit.url.startswith(("http://", "https://")))
        shown = [
            f"{number}. {plain_line(hit.title, 200) or '(no title)'}\n"
            f"   {one_line(hit.url, 400)}\n   {plain_line(hit.text, 400)}".rstrip()
            for number, hit in enumerate(on_web, 1)
        ]
        if not shown:
            return f"Nothing was found for {query!r}. Try fewer or other words."
        return fence_web_text("\n\n".join(shown))


# Limit of shown text: less than that of a tool's result, so that notes are not cut.
PAGE_BYTES: Final = 8 * 1024
_WAIT_S: Final = 20.0  # for a turn among those who fetch or parse at the same time


class WebFetchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A page, and a range of its text."""

    url: Annotated[str, Meta(description="Such as `https://example.org/news`.")]
    max_chars: Annotated[int, Meta(ge=100, le=PAGE_BYTES, description="How much to show at most.")] = PAGE_BYTES
    offset: Annotated[int, Meta(ge=0, description="How many characters of the text to leave out.")] = 0


class WebFetch:
    """Returns the page's address after redirects, its title and text, and the next offset."""

    name = "web_fetch"
    description = (
        "Read a page of the public web as text. A long one comes in parts: the note at the end "
        "says which `offset` comes next."
    )
    parameters = WebFetchArguments
    safety: Safety = "read_only"

    def __init__(self, fetcher: Fetcher, reader: DocumentPageReader) -> None:
        self._fetcher = fetcher
        self._reader = reader
        self.timeout_s = fetcher.total_s + reader.parse_s + _WAIT_S

    async def run(self, arguments: WebFetchArguments, context: ToolContext) -> str:
        answer = await self._fetcher.fetch_url(arguments.url, types=PAGE_TYPES)
        if not answer.ok:
            raise ToolFailed(f"{one_line(answer.url, 200)!r} answered with status {answer.status}; try another page")
        context.mark_read([answer.host])  # redirects may lead to another one than was asked for
        page = await self._reader.read_page(answer)
        text = strip_hidden(page.text).strip()
        start = arguments.offset
        if start and start >= len(text):
            raise ToolFailed(f"the text of the page has {len(text)} characters; there is nothing at {start}")
        part = text[start : start + arguments.max_chars].encode("utf-8", "replace")[:PAGE_BYTES]
        shown = part.decode("utf-8", "ignore")
        end = start + len(shown)
        notes = []
        if start or end < len(text):
            notes.append(f"characters {start}-{end} of {len(text)}")
        if end < len(text):
            notes.append(f"go on with offset={end}")
        if answer.cut:
            notes.append("the page is longer than what is read of one; its end is missing")
        head = f"URL: {one_line(answer.url, 1000)}\n"
        title = f"Title: {one_line(page.title, 200)}\n" if page.title else ""
        fenced = fence_web_text(f"{head}{title}\n{shown or '(no text)'}")
        return fenced + (f"\n[{'; '.join(notes)}]" if notes else "")


def build_web_tools(settings: ToolsSettings) -> tuple[Tool, ...]:
    """Return web_fetch, and web_search unless it is off. Raises SettingsError."""
    policy = WebPolicy.from_settings(settings.web_allow)
    fetcher = Fetcher(policy, body_bytes=settings.fetch_bytes, total_s=settings.fetch_s)
    fetch = WebFetch(fetcher, DocumentPageReader())
    if settings.search_engine == "off":
        return (fetch,)
    key = settings.search_key.reveal() if settings.search_key else ""
    engine = build_engine(settings.search_engine, url=settings.search_url, key=key)
    return (WebSearch(engine), fetch)
