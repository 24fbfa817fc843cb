"""The visible text of a reply while it is being generated, without `<think>...</think>`."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from worker.agent.hook import AgentHook
from worker.agent.ports import TurnProgress
from worker.agent.tools.text import valid_text

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThinkFilter:
    """Passes on the visible part of a stream, wherever its deltas are cut. Blocks do not nest; a
    block that is never closed hides the rest; lone closing tags and leading white space are
    dropped."""

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._begun = False

    def feed(self, delta: str) -> str:
        """Return the text that may be shown now. The start of a possible tag is held back."""
        rest = self._held + delta
        if self._begun and not self._inside and "<" not in rest:
            self._held = ""
            return rest  # the common case, handled without the search for tags below
        self._held = ""
        shown: list[str] = []
        while rest:
            tags = (_CLOSE,) if self._inside else (_OPEN, _CLOSE)
            at, tag = _first(rest, tags)
            if not self._inside:
                shown.append(rest[:at])
            if not tag:
                self._held = rest[at:]
                break
            self._inside = tag == _OPEN
            rest = rest[at + len(tag) :]
        return self._visible("".join(shown))

    def flush(self) -> str:
        held, self._held = self._held, ""
        return "" if self._inside else self._visible(held)

    def _visible(self, text: str) -> str:
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        return text


def strip_think(text: str) -> str:
    """Return the visible part of a whole text, without white space around it."""
    if "<" not in text:
        return text.strip()
    think = ThinkFilter()
    return (think.feed(text) + think.flush()).strip()


def _first(text: str, tags: tuple[str, ...]) -> tuple[int, str]:
    """Return the position of the first whole tag, or of an unfinished one at the end (tag `""`)."""
    low = text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text)
    found = [(at, tag) for tag in tags if (at := low.find(tag)) >= 0]
    if found:
        return min(found)
    at = low.rfind("<")
    if at >= 0 and any(tag.startswith(low[at:]) for tag in tags):
        return at, ""
    return len(text), ""


class ReplyStream:
    """The reply that is being shown. `kept` is the text of earlier calls that ended well; `unkept`
    is that of the running call, and can be taken back. `before` stays visible before it."""

    def __init__(self, progress: TurnProgress, hook: AgentHook, before: str = "") -> None:
        self._progress = progress
        self._before = before
        self._hook = hook
        self._hooked = hook.wants_streaming
        self._think = ThinkFilter()
        self._shown: list[str] = []
        self._kept: list[str] = []
        self._unkept: list[str] = []

    @property
    def unkept(self) -> str:
        """The deltas since the last keep or rewind, including thoughts."""
        return "".join(self._unkept)

    @property
    def shown(self) -> str:
        return "".join(self._shown)

    @property
    def kept(self) -> str:
        return "".join(self._kept)

    async def begin(self) -> None:
        if self._before:
            self._shown.append(f"{self._before}\n\n")
            await self._progress.add_text(self._shown[-1])

    def delta(self, text: str) -> Awaitable[None]:
        """Show more of the reply. No coroutine: each delta would pay for a frame."""
        self._unkept.append(text)
        return self._publish(self._think.feed(valid_text(text)))

    def keep(self, part: str) -> None:
        self._kept.append(part)
        self._unkept.clear()

    async def rewind(self) -> None:
        """Take back the text of a call that broke off, and show that of the earlier calls again."""
        await self.clear()
        await self._hook.on_stream_end()
        self._unkept.clear()
        await self.begin()
        await self._publish(self._think.feed(self.kept))

    async def clear(self) -> None:
        self._think = ThinkFilter()  # its state belongs to the text that is removed
        if self._shown:
            self._shown.clear()
            await self._progress.reset_text()

    async def end(self) -> None:
        await self._publish(self._think.flush())
        await self._hook.on_stream_end()

    async def _publish(self, visible: str) -> None:
        if visible:
            self._shown.append(visible)
            await self._progress.add_text(visible)
            if self._hooked:
                await self._hook.on_stream(visible)
