"""Documents and pages as text, each parsed in a process of its own, which gets no secrets."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from pathlib import Path
from typing import Final

import msgspec

from shared.errors import ToolFailed
from shared.process.child import end_process, start_process
from worker.documents import kinds
from worker.guards.response import WebResponse

AT_ONCE: Final = 2
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

_TOP: Final = Path(__file__).parents[2]
_READ_LIMIT_BYTES: Final = kinds.TEXT_LIMIT_CHARS * 4 + 1024


class DocumentReader:
    """Reads AT_ONCE documents at a time, each with `cpu_s` of processor time and `memory_bytes`."""

    def __init__(self, *, cpu_s: int = kinds.CPU_S, memory_bytes: int = kinds.MEMORY_BYTES) -> None:
        self._cpu_s = cpu_s
        self._memory_bytes = memory_bytes
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read_document(self, path: str, kind: kinds.Document, data: bytes) -> str:
        """Return the text of a document; errors call it `path`. Raises ToolFailed, `file refused:
        <reason>`: too big, damaged, locked or a bomb. Cancelled, it leaves no process running."""
        if len(data) > kinds.FILE_LIMIT_BYTES:
            raise _refusal(path, f"it has {len(data):,} bytes; at most {kinds.FILE_LIMIT_BYTES:,} are read")
        async with self._slots:
            try:
                code, output = await run_parser(kind, data, self._cpu_s, self._memory_bytes)
            except TimeoutError:
                raise _refusal(path, f"reading it takes more than {kinds.WALL_S} s") from None
            except OSError:
                raise ToolFailed(f"{path!r} cannot be read just now: no process can be started. Try later") from None
        text = output.decode("utf-8", "replace")
        if code == 0:
            return text
        if code == kinds.REFUSED_EXIT_CODE:
            raise _refusal(path, text.rpartition("\n")[2])
        if code in (-signal.SIGXCPU, -signal.SIGALRM):
            raise _refusal(path, f"reading it takes more than {self._cpu_s} s of work")
        raise _refusal(
            path,
            f"it is not a {kinds.KIND_NAMES[kind]} that can be read with {self._memory_bytes // 2**20} MB of memory",
        )


async def run_parser(
    kind: str,
    data: bytes,
    cpu_s: int,
    memory_bytes: int,
    *,
    wall_s: float = kinds.WALL_S,
    output_bytes: int = _READ_LIMIT_BYTES,
    url: str = "",
) -> tuple[int, bytes]:
    """Parse `data` in a process with an empty environment; return its exit code and its output, cut
    to `output_bytes`. Raises TimeoutError and OSError; leaves no process running."""
    limits = (str(cpu_s), str(memory_bytes))
    pipe = asyncio.subprocess.PIPE
    nothing = asyncio.subprocess.DEVNULL
    starting = asyncio.create_subprocess_exec(
        *(sys.executable, "-E", "-s", "-B", "-m", "worker.documents.child", kind, *limits, url),
        stdin=pipe,
        stdout=pipe,
        stderr=nothing,
        cwd=_TOP,
        env={"LANG": "C.UTF-8"},
        start_new_session=True,
    )
    child = await start_process(starting)
    assert child.stdout is not None
    try:
        async with asyncio.timeout(wall_s):
            # Both pipes are served at once: a child that writes before it has read everything
            # would otherwise block us, and we it.
            feeding = asyncio.create_task(_feed_input(child, data))
            output = bytearray()
            try:
                while piece := await child.stdout.read(min(output_bytes - len(output), 64 * 1024)):
                    output += piece
            finally:
                feeding.cancel()
            return await child.wait(), bytes(output)
    finally:
        await end_process(child)


async def _feed_input(child: asyncio.subprocess.Process, data: bytes) -> None:
    assert child.stdin is not None
    with contextlib.suppress(ConnectionError):
        child.stdin.write(data)
        await child.stdin.drain()
    child.stdin.close()


def _refusal(path: str, reason: str) -> ToolFailed:
    return ToolFailed(f"file refused: {reason} ({path!r}). Go on without it, or ask the user for another copy")


class WebPage(msgspec.Struct, frozen=True):
    """A page. Its title may be empty; HTML becomes markdown, everything else is kept."""

    title: str
    text: str


class DocumentPageReader:
    """Turns responses into pages. At most PARSE_AT_ONCE processes parse HTML, with limits: a thread
    could not be stopped, and would hold the interpreter lock against the event loop."""

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
                raise ToolFailed(f"the page cannot be read within {self.parse_s:g} s; try another one") from None
        try:
            return msgspec.json.decode(out, type=WebPage)
        except (msgspec.DecodeError, UnicodeError):
            raise ToolFailed("the page is too big or too broken to be read; try another one") from None


def decode_body(response: WebResponse) -> str:
    """Decode a body by the charset of its header, of the page, or as UTF-8. Never fails."""
    names = [response.charset]
    if response.type in HTML_TYPES and (found := _META.search(response.body[:_META_BYTES])):
        names.append(found[1].decode())
    for name in (name.strip().lower() for name in names):
        if _CHARSETS.fullmatch(name):
            with contextlib.suppress(LookupError):
                return response.body.decode(_READ_AS.get(name, name), "replace")
    return response.body.decode("utf-8-sig", "replace")
