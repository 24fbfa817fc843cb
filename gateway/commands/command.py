"""What a chat command is, to the gateway and to packages that bring their own."""

from __future__ import annotations

from typing import Protocol

import msgspec

from shared.messages.inbound import InboundMessage
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.session import Change, SessionState


class CommandContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a command is asked: the message, the text behind its word, and where the session stands.

    `client` is for commands of packages, which are made without arguments.
    """

    message: InboundMessage
    argument: str
    state: SessionState
    client: RedisClient


class CommandAnswer(msgspec.Struct, frozen=True):
    """What the person is told, as Markdown, and what happens in the same step. `preset` goes with the change of that
    name: the model to use from now on, `""` the usual one; `schedule` is the one that goes, with the change
    `unschedule`."""

    text: str
    change: Change = ""
    preset: str = ""
    schedule: str = ""
    busy: str = ""
    """Goes with the change of that name: what is done while a turn runs, `""` as the channel has
    it."""

    child: str = ""
    """Goes with the change `cancel`: the subagent that ends, `""` all of the chat's."""


class Command(Protocol):
    """A `/word` that the gateway answers by itself, also while a turn runs."""

    @property
    def name(self) -> str:
        """The word: 1 to 32 lower-case letters, digits and underscores."""
        ...

    @property
    def about(self) -> str:
        """What it is for, in one line."""
        ...

    async def answer(self, context: CommandContext) -> CommandAnswer:
        """Answer, and change nothing: the change is made by who asked, once. It may be asked again
        for one message.

        Raises BadInput, Refused, RedisAway; whatever else is logged, and the person gets an
        apology.
        """
        ...


def counted(number: int, one: str, many: str = "") -> str:
    """`1 entry`, `2,000 entries`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
