"""The visible text of a reply while it is being generated."""

from __future__ import annotations

from collections.abc import Awaitable

from worker.agent.hook import AgentHook
from worker.agent.model.think import ThinkFilter
from worker.agent.ports import TurnProgress
from worker.agent.tools.text import valid_text


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
