"""Renders replies within limits: of time for a text, and of what one person may use."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from gateway.channels.web import markdown
from shared.confinement.parser_process import ParserFailed, ParserProcess
from shared.log import logger

RENDER_S: Final = 0.5
"""Seconds of processor time for one text. What takes longer is shown as plain text."""

AT_ONCE: Final = 2

_WALL_S: Final = 2.0
# Of a chat about code every reply needs the process, and its start takes half a second
_IDLE_S: Final = 600.0
_MEMORY_BYTES: Final = 256 * 1024**2
_HTML_BYTES: Final = 512 * 1024
_CACHED_CHARS: Final = 4 * 1024 * 1024
_MAX_COSTLY: Final = 10_000

log = logger("web")


class MarkdownRenderer:
    """Renders replies as HTML, and caches 4 MB of them: several sockets show the same, and again
    later. Texts that took too long are remembered by their hash, so that none is tried twice."""

    def __init__(self) -> None:
        self._process = ParserProcess(
            f"{markdown.__name__}:{markdown.render_utf8.__name__}",
            cpu_s=RENDER_S,
            wall_s=_WALL_S,
            memory_bytes=_MEMORY_BYTES,
            result_bytes=_HTML_BYTES,
            idle_s=_IDLE_S,
        )
        self.close = self._process.close
        # One text of a person at a time, and people in turn: of each at most one waits for a slot,
        # and a semaphore wakes its waiters in their order.
        self._turns = WeakValueDictionary[str, asyncio.Lock]()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._cache: OrderedDict[str, str] = OrderedDict()
        self._cached_chars = 0
        self._costly: OrderedDict[int, None] = OrderedDict()
        markdown.render("")  # makes the parser now, and not when the first reply comes

    def is_quick(self, text: str) -> bool:
        """Return whether `html` takes only a few milliseconds."""
        simple = markdown.is_quick(text) and not markdown.has_extras(text)
        return text in self._cache or simple or self._stays_plain(text)

    def html(self, text: str) -> str:
        """Return a text that `is_quick` as safe HTML."""
        return self._cached(text) or self._render_here(text)

    async def html_soon(self, text: str, person: str) -> str:
        """Return `text` as safe HTML, or as plain text if rendering it takes too long."""
        if not self.is_quick(text):
            turn = self._turns.setdefault(person, asyncio.Lock())
            async with turn, self._slots:
                if not self.is_quick(text):  # still: another socket may have asked for the same
                    return await self._render_aside(text)
        await asyncio.sleep(0)  # a history has many of them
        return self.html(text)

    async def _render_aside(self, text: str) -> str:
        try:
            rendered = await self._process.parse(text.encode("utf-8", "replace"))
        except ParserFailed:
            log.info("reply shown as plain text", chars=len(text))
            self._costly[hash(text)] = None
            if len(self._costly) > _MAX_COSTLY:
                self._costly.popitem(last=False)
        except OSError as exc:
            log.warning("reply shown as plain text", chars=len(text), error=type(exc).__name__)
        else:
            return self._add_to_cache(text, rendered.decode())
        return self._render_here(text)

    def _render_here(self, text: str) -> str:
        """Return what this process itself makes of a text: code has no colours, formulas are
        TeX."""
        if markdown.is_quick(text):
            return self._add_to_cache(text, markdown.render(text))
        return markdown.preformatted(text)

    def _stays_plain(self, text: str) -> bool:
        return hash(text) in self._costly or len(text.encode("utf-8", "replace")) > markdown.RENDER_LIMIT_BYTES

    def _cached(self, text: str) -> str | None:
        rendered = self._cache.get(text)
        if rendered is not None:
            self._cache.move_to_end(text)
        return rendered

    def _add_to_cache(self, text: str, rendered: str) -> str:
        if text not in self._cache:
            self._cache[text] = rendered
            self._cached_chars += len(text) + len(rendered)
            while self._cached_chars > _CACHED_CHARS:
                old, dropped = self._cache.popitem(last=False)
                self._cached_chars -= len(old) + len(dropped)
        return rendered
