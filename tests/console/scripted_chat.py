"""A chat of the terminal without a gateway: what happens in it is written beforehand."""

from __future__ import annotations

import queue
from collections.abc import Sequence

from console.chat.client import ChatClient, ChatEnded, ClientEvent


class Script(ChatClient):
    """A chat in which this happens, and nothing more; its lists are what it was asked for."""

    def __init__(self, *news: ClientEvent) -> None:
        self.events = queue.SimpleQueue()
        self.texts: list[str] = []
        self.stopped: list[int | None] = []
        self.acknowledged: list[int] = []
        for one in (*news, ChatEnded("the script ended")):
            self.events.put(one)

    def send_message(self, text: str, id: str | None = None, media: Sequence[str] = ()) -> str:
        self.texts.append(text)
        return f"m{len(self.texts)}"

    def stop(self, turn: int | None = None) -> None:
        self.stopped.append(turn)

    def acknowledge(self, seq: int) -> None:
        self.acknowledged.append(seq)
