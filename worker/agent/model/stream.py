"""What is shown of a reply while it is being said."""

from __future__ import annotations

from collections.abc import Awaitable

from worker.agent.hook import AgentHook
from worker.agent.journal import Show
from worker.agent.model.think import ThinkFilter
from worker.agent.tools.tool import valid_text


class Stream:
    """The reply that is being shown. Text can be taken back up to what is kept of earlier parts.
    `before` is an answer that stays in view before it."""

    def __init__(self, show: Show, hook: AgentHook, before: str = "") -> None:
        self._show = show
        self._before = before
        self._hook = hook
        self._hooked = hook.wants_streaming
        self._think = ThinkFilter()
        self._shown: list[str] = []
        self._kept: list[str] = []
        self._heard: list[str] = []

    @property
    def touched(self) -> bool:
        """Whether a delta came since the last keep or rewind."""
        return bool(self._heard)

    @property
    def heard(self) -> str:
        """The deltas since the last keep or rewind, thoughts too."""
        return "".join(self._heard)

    @property
    def shown(self) -> str:
        return "".join(self._shown)

    @property
    def kept(self) -> str:
        return "".join(self._kept)

    async def begin(self) -> None:
        if self._before:
            self._shown.append(f"{self._before}\n\n")
            await self._show.text(self._shown[-1])

    def delta(self, text: str) -> Awaitable[None]:
        """More of the reply; to be awaited. No coroutine of its own: there are hundreds a turn."""
        self._heard.append(text)
        return self._out(self._think.feed(valid_text(text)))

    def keep(self, part: str) -> None:
        """A call ended well and this was its text."""
        self._kept.append(part)
        self._heard.clear()

    async def rewind(self) -> None:
        """A call broke off: its text is taken back, that of earlier calls is shown again."""
        await self.clear()
        await self._hook.on_stream_end()
        self._heard.clear()
        await self.begin()
        await self._out(self._think.feed(self.kept))

    async def clear(self) -> None:
        """Nothing is shown any more."""
        self._think = ThinkFilter()
        if self._shown:
            self._shown.clear()
            await self._show.reset()

    async def end(self) -> None:
        await self._out(self._think.flush())
        await self._hook.on_stream_end()

    async def _out(self, visible: str) -> None:
        if visible:
            self._shown.append(visible)
            await self._show.text(visible)
            if self._hooked:
                await self._hook.on_stream(visible)
