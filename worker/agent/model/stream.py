"""The visible text of a reply while it is being generated."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from worker.agent.hook import AgentHook
from worker.agent.model.answer_form import StopFilter
from worker.agent.model.seam import Seam
from worker.agent.model.think import ThinkFilter, visible_text
from worker.agent.ports import TurnProgress
from worker.agent.tools.text import valid_text

GO_ON_CHARS: Final = 200
"""A shorter text is asked for anew: that costs less than the words that ask for its rest."""


class ReplyStream:
    """The reply that is being shown. `kept` is the text of earlier calls that ended well; `unkept`
    is that of the running call, and can be taken back. `before` stays visible before it. `begun` is
    its beginning that an earlier worker has shown: the first call goes on with it. Nothing after
    one of `stops` is shown. What the person wrote, `quoted`, is no thought of the model."""

    def __init__(
        self,
        progress: TurnProgress,
        hook: AgentHook,
        before: str = "",
        begun: str = "",
        stops: tuple[str, ...] = (),
        quoted: str = "",
    ) -> None:
        self._progress = progress
        self._before = before
        self._begun = begun
        self._seam = Seam(begun) if begun else None
        self._hook = hook
        self._hooked = hook.wants_streaming
        self._quoted = quoted
        self._think = ThinkFilter(quoted)
        self._stops = stops
        self._stop = StopFilter(stops)
        self._shown: list[str] = []
        self._kept = [begun]
        self._unkept: list[str] = []
        self._late = ""  # what the seam held back to the end
        self._late_replaces = False  # ... takes the place of `begun`

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

    @property
    def text(self) -> str:
        """What is kept, without thoughts."""
        return visible_text(self._kept, self._quoted).strip()

    async def begin(self) -> None:
        """Show `before` and what is kept."""
        await self._show_before()
        for part in self._kept:
            self._think.next_part()
            await self._publish(self._think.feed(part))
        self._think.next_part()
        self._think.recalled = False

    async def _show_before(self) -> None:
        if self._before:
            self._shown.append(f"{self._before}\n\n")
            await self._progress.add_text(self._shown[-1])

    def delta(self, text: str) -> Awaitable[None]:
        """Show more of the reply. No coroutine: each delta would pay for a frame."""
        self._unkept.append(text)
        visible = self._think.feed(valid_text(text))
        if self._think.recalled:
            return self._recall()
        return self._publish(visible) if self._seam is None else self._publish_joined(self._seam, visible)

    def keep(self, part: str) -> None:
        """Keep the text of a call. That of the first one after `begun` is joined to it, in one
        piece: it need not have been streamed."""
        if self._seam is not None:
            think = ThinkFilter(self._quoted, self._begun)
            seam = Seam(self._begun)
            think.next_part()
            think.feed(part)
            think.flush()
            begun_again = self._seam.restarted
            self._late = self._seam.flush()
            self._late_replaces = self._seam.restarted and not begun_again
            self._seam = None
            part = think.visible
            if not think.recalled:
                part = seam.feed(part[len(self._begun) :]) + seam.flush()
            if think.recalled or seam.restarted:
                self._kept.clear()
        self._kept.append(part)
        self._unkept.clear()
        self._think.next_part()

    def go_on(self) -> str:
        """Take what is shown as the beginning of the reply, with which the next call goes on, and
        return it; `""` if there is too little of it. Some of the text may be held back because a
        stop might begin there, so with stops nothing is taken."""
        begun = self.shown[len(self._before) + 2 if self._before else 0 :]
        if self._stops or len(begun) < GO_ON_CHARS:
            return ""
        self._begun = begun
        self._kept = [begun]
        self._seam, self._think = Seam(begun), ThinkFilter(self._quoted, begun)
        self._think.next_part()
        self._unkept.clear()
        return begun

    async def rewind(self) -> None:
        """Take back the text of a call that broke off, and show that of the earlier calls again."""
        await self.clear()
        await self._hook.on_stream_end()
        self._unkept.clear()
        self._seam = self._seam and Seam(self._begun)
        await self.begin()

    async def clear(self) -> None:
        # Their state belongs to the text that is removed.
        self._think, self._stop = ThinkFilter(self._quoted), StopFilter(self._stops)
        if self._shown:
            self._shown.clear()
            await self._progress.reset_text()

    async def end(self) -> None:
        if self._late_replaces:
            await self._begin_again()
        await self._publish(self._late + self._think.flush())
        self._stops = ()  # what was held back because a stop might have begun there
        await self._publish(self._stop.flush())
        await self._hook.on_stream_end()

    async def _recall(self) -> None:
        """Take back the text so far: it has turned out to be thoughts, also what an earlier worker
        has shown."""
        self._think.recalled = False
        self._shown.clear()
        self._stop = StopFilter(self._stops)
        self._seam = None
        await self._progress.reset_text()
        await self._hook.on_stream_end()
        await self._show_before()
        await self._publish(self._think.visible)

    async def _publish_joined(self, seam: Seam, visible: str) -> None:
        begun_again = seam.restarted
        visible = seam.feed(visible)
        if seam.restarted and not begun_again:
            await self._begin_again()
        await self._publish(visible)

    async def _begin_again(self) -> None:
        """The model did not go on. On screens the longer text stays until this one has passed it."""
        self._shown.clear()
        self._stop = StopFilter(self._stops)
        await self._progress.reset_text()
        await self._hook.on_stream_end()

    async def _publish(self, visible: str) -> None:
        if self._stops:
            visible = self._stop.feed(visible)
        if visible:
            self._shown.append(visible)
            await self._progress.add_text(visible)
            if self._hooked:
                await self._hook.on_stream(visible)
