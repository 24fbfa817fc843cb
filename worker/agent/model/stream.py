"""The visible text of a reply while it is being generated, without `<think>...</think>`."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from worker.agent.hook import AgentHook
from worker.agent.model.answer_form import StopFilter
from worker.agent.model.seam import Seam
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
    is that of the running call, and can be taken back. `before` stays visible before it. `begun` is
    its beginning that an earlier worker has shown: the first call goes on with it. Nothing after one of
    `stops` is shown."""

    def __init__(
        self, progress: TurnProgress, hook: AgentHook, before: str = "", begun: str = "", stops: tuple[str, ...] = ()
    ) -> None:
        self._progress = progress
        self._before = before
        self._begun = begun
        self._seam = Seam(begun) if begun else None
        self._hook = hook
        self._hooked = hook.wants_streaming
        self._think = ThinkFilter()
        self._stops = stops
        self._stop = StopFilter(stops)
        self._shown: list[str] = []
        self._kept = [begun]
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
        """Show `before` and what is kept."""
        if self._before:
            self._shown.append(f"{self._before}\n\n")
            await self._progress.add_text(self._shown[-1])
        await self._publish(self._think.feed(self.kept))

    def delta(self, text: str) -> Awaitable[None]:
        """Show more of the reply. No coroutine: each delta would pay for a frame."""
        self._unkept.append(text)
        visible = self._think.feed(valid_text(text))
        return self._publish(visible) if self._seam is None else self._publish_joined(self._seam, visible)

    def keep(self, part: str) -> None:
        """Keep the text of a call. That of the first one after `begun` is joined to it, in one piece:
        it need not have been streamed."""
        if self._seam is not None:
            think, seam = ThinkFilter(), Seam(self._begun)
            think.feed(self._begun)
            part, self._seam = seam.feed(think.feed(part) + think.flush()), None
            if seam.restarted:
                self._kept.clear()
        self._kept.append(part)
        self._unkept.clear()

    async def rewind(self) -> None:
        """Take back the text of a call that broke off, and show that of the earlier calls again."""
        await self.clear()
        await self._hook.on_stream_end()
        self._unkept.clear()
        self._seam = self._seam and Seam(self._begun)
        await self.begin()

    async def clear(self) -> None:
        # Their state belongs to the text that is removed.
        self._think, self._stop = ThinkFilter(), StopFilter(self._stops)
        if self._shown:
            self._shown.clear()
            await self._progress.reset_text()

    async def end(self) -> None:
        await self._publish(self._think.flush())
        self._stops = ()  # what was held back because a stop might have begun there
        await self._publish(self._stop.flush())
        await self._hook.on_stream_end()

    async def _publish_joined(self, seam: Seam, visible: str) -> None:
        begun_again = seam.restarted
        visible = seam.feed(visible)
        if seam.restarted and not begun_again:
            # The model did not go on. On screens the longer text stays until this one has passed it.
            self._shown.clear()
            self._stop = StopFilter(self._stops)
            await self._progress.reset_text()
            await self._hook.on_stream_end()
        await self._publish(visible)

    async def _publish(self, visible: str) -> None:
        if self._stops:
            visible = self._stop.feed(visible)
        if visible:
            self._shown.append(visible)
            await self._progress.add_text(visible)
            if self._hooked:
                await self._hook.on_stream(visible)
