"""Web pages as text that a model can read."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Final

import msgspec

from shared.errors import ToolFailed
from worker.documents.reader import run_parser
from worker.guards.response import WebResponse

HTML_TYPES: Final = ("text/html", "application/xhtml+xml")
# Content types that can be read.
PAGE_TYPES: Final = (*HTML_TYPES, "text/*", "application/json", "*+json", "application/xml", "*+xml")
PARSE_S: Final = 15.0  # time limit for parsing one page, including the start of the process
PARSE_MEMORY_BYTES: Final = 1024**3
PARSE_AT_ONCE: Final = 2

_OUTPUT_BYTES: Final = 64 * 1024 * 1024
_META: Final = re.compile(rb"""<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}["']?([a-z0-9_-]{1,40})""", re.IGNORECASE)
_META_BYTES: Final = 1024
# Only these are decoded: Python has more codecs, but some take quadratic time and others are not
# character sets of pages at all.
_CHARSETS: Final = re.compile(
    r"utf-?8|utf-?16(le|be)?|(us-)?ascii|iso-?8859-?\d{1,2}|latin-?1|windows-125\d|cp125\d|koi8-[ru]|mac-?roman|"
    r"shift[_-]jis|euc-jp|iso-2022-jp|gb2312|gbk|gb18030|big5|euc-kr|tis-620|windows-874"
)
# Browsers read these labels as windows-1252 (WHATWG Encoding Standard), and pages count on it.
_READ_AS: Final = {"iso-8859-1": "cp1252", "latin1": "cp1252", "ascii": "cp1252", "us-ascii": "cp1252"}


class WebPage(msgspec.Struct, frozen=True):
    """A page. Its title may be empty; HTML becomes markdown, everything else is kept."""

    title: str
    text: str


class DocumentPageReader:
    """Turns responses into pages. HTML is parsed by at most PARSE_AT_ONCE processes, each with an
    empty environment and limits of memory and time: a thread could not be stopped, and would hold
    the interpreter lock against the event loop."""

    def __init__(self, *, parse_s: float = PARSE_S, memory_bytes: int = PARSE_MEMORY_BYTES) -> None:
        self.parse_s = parse_s
        self._memory_bytes = memory_bytes
        self._slots = asyncio.Semaphore(PARSE_AT_ONCE)

    async def read_page(self, response: WebResponse) -> WebPage:
        """Return the page in a response. Raises ToolFailed for HTML that cannot be parsed."""
        text = decode_body(response)
        if response.type not in HTML_TYPES:
            return WebPage("", text)
        async with self._slots:
            try:
                _, out = await run_parser(
                    "html",
                    text.encode("utf-8", "replace"),
                    max(1, round(self.parse_s)),
                    self._memory_bytes,
                    wall_s=self.parse_s,
                    output_bytes=_OUTPUT_BYTES,
                    url=response.url,
                )
            except TimeoutError:
                why = f"the page cannot be read within {self.parse_s:g} s"
                raise ToolFailed(f"{why}; try another one") from None
        try:
            return msgspec.json.decode(out, type=WebPage)
        except (msgspec.DecodeError, UnicodeError):
            why = "the page is too big or too broken to be read"
            raise ToolFailed(f"{why}; try another one") from None


def decode_body(response: WebResponse) -> str:
    """Decode the body by the charset of the header, else of the page itself, else as UTF-8. Never
    fails."""
    names = [response.charset]
    if response.type in HTML_TYPES and (found := _META.search(response.body[:_META_BYTES])):
        names.append(found[1].decode())
    for name in (name.strip().lower() for name in names):
        if _CHARSETS.fullmatch(name):
            with contextlib.suppress(LookupError):
                return response.body.decode(_READ_AS.get(name, name), "replace")
    return response.body.decode("utf-8-sig", "replace")
