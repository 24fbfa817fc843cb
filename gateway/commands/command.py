"""The protocol of chat commands, for the gateway and for packages that bring their own."""

from __future__ import annotations

from typing import Protocol

import msgspec

from shared.ids import WEB
from shared.messages.inbound import ADMIN, STRANGER, InboundMessage
from shared.settings.sections.gateways import OWNER
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.last_turn import LastTurn
from shared.store.sessions.session import Change, SessionState


class CommandContext(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a command: a message, the text after its word, and the state of its session.
    `client` is for commands of packages, which are made without arguments."""

    message: InboundMessage
    argument: str
    state: SessionState
    client: RedisClient

    @property
    def from_stranger(self) -> bool:
        """True for a member of a group whom no setting names (see STRANGER)."""
        return self.message.metadata.get(STRANGER) == "1"

    @property
    def from_admin(self) -> bool:
        """True for one of `admins` in a direct chat, and for the owner on the page."""
        message = self.message
        return message.metadata.get(ADMIN) == "1" or (message.channel == WEB and message.sender_id == OWNER)


class CommandAnswer(msgspec.Struct, frozen=True):
    """The reply, as Markdown, and the change that is made in the same step.

    The rest goes with one change each: `preset`, the model to use from now on, "" = the usual one,
    or with `standing` the id of the standing approval to take back, or `all`, or with `folder` the
    folder to work on, "" = the chat's own workspace, or with `voice` "on", "" = off; `schedule`
    with `unschedule`, the id of the one to remove; `busy`, the policy while a turn runs, "" = the
    channel's own; `child` with `cancel`, the subagent to end, "" = all of the chat's; `earlier`
    with `restore`, the scope of a memory and the version of the text that it gets, or with `trust`
    the scope of a folder that is trusted, too; `again` with `retry`, the turn that is replaced by
    one about `text`."""

    text: str
    change: Change = ""
    preset: str = ""
    schedule: str = ""
    busy: str = ""
    child: str = ""
    earlier: tuple[str, str] = ("", "")
    again: LastTurn | None = None


class Command(Protocol):
    """A `/word` that the gateway answers by itself, also while a turn runs."""

    @property
    def name(self) -> str:
        """The word: 1 to 32 lower-case letters, digits and underscores."""
        ...

    @property
    def about(self) -> str:
        """Its help, in one line."""
        ...

    async def answer(self, context: CommandContext) -> CommandAnswer:
        """Return the answer, and change nothing: the caller makes the change, once. May be called
        more than once for one message. Raises BadInput, Refused, RedisAway; any other error is
        logged, and the person gets an apology."""
        ...


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 entry`, `2,000 entries`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
