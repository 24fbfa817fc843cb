"""A turn that a test conducts."""

from __future__ import annotations

import asyncio

from shared.messages.outbound import LogLine
from tests.contracts.channels.echo import Turn
from tests.contracts.channels.stage import Stage


class Live:
    """The turn that begins when somebody says `says` in a chat: `begin` says it, `end` is what it answers."""

    def __init__(self, played: Stage, chat: str, *, says: str = "go") -> None:
        self.chat = chat
        self._says = says
        self._played = played
        self._turn = asyncio.get_running_loop().create_future()
        self._end: asyncio.Future[str | list[LogLine]] = asyncio.get_running_loop().create_future()

    async def begin(self) -> Turn:
        abilities = self._played.replicas[0].channel.abilities

        async def conducted(turn: Turn) -> str | list[LogLine]:
            if abilities.edit_every_s or abilities.typing_every_s:
                await self._played.attended(self.chat)
            await turn.begin()
            self._turn.set_result(turn)
            return await self._end

        self._played.worker.scripts[self._says] = conducted
        await self._played.say(self.chat, self._says)
        turn: Turn = await self._turn
        return turn

    def end(self, *lines: LogLine | str) -> None:
        answer = lines[0]
        self._end.set_result(answer if isinstance(answer, str) else [one for one in lines if not isinstance(one, str)])

    async def sees(self, words: str) -> None:
        """Wait until the newest message has these words."""
        await self._played.until(
            lambda: any(words in text for text in self._played.texts(self.chat)[-1:]), f"{words!r} in the chat"
        )
