"""Messages to a session, from a person or from Shoal itself."""

from __future__ import annotations

from typing import Final

import msgspec

from shared.ids import session_id
from shared.messages.codec import OPTIONS_VERSION, PLAIN_VERSION, SCHEMA_VERSION, Decoder
from shared.messages.transcript import AssistantEntry, ToolEntry, UserEntry

TEXT_LIMIT_BYTES: Final = 64 * 1024
SYSTEM: Final = "system"
RESERVED_CHANNELS: Final = frozenset({SYSTEM})
"""Channels that only Shoal itself writes: subagents report through them."""

PRESET: Final = "preset"
"""Metadata: the model that answers this message, by the name of its preset. Without it the chat's
own does."""

TIMEZONE: Final = "timezone"
"""Metadata: the IANA name of the zone that the sender lives in, as their browser or terminal has
it."""

DEVICE: Final = "device"
"""Metadata: the kind of device that the page or a terminal said it is on, one of `DEVICES`."""

DEVICES: Final = frozenset({"page", "phone", "terminal"})

STRANGER: Final = "stranger"
"""Metadata: "1" for a member of a group whom no setting names: that person can allow and trust
nothing."""

ADMIN: Final = "admin"
"""Metadata: "1" for one of `admins` in a direct chat; only the inlet sets it."""

OWN_HISTORY: Final = "own_history"
"""Metadata: "1" where `history` is a conversation that Shoal had itself, so that nobody can have
made it up: its entries are marked, and it is no text of strangers."""

NO_ORIGIN: Final = "cli"  # the channel of a system message whose chat id names none


class ClientTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that a program offers to the agent and runs itself. `parameters` is the JSON
    schema of its arguments, as JSON; the description is text of that program's person."""

    name: str
    description: str = ""
    parameters: str = ""


class TurnOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program's wishes for the turn that its message begins. `max_tokens` limits each reply of
    the model, 0: as the settings do. The answer ends before the first of `stop`. `schema` is the
    JSON schema that the answer must fit, as JSON. `system` is added to the system text. `tools` are
    the program's own. `tool_choice` binds the first round: `required` = one of them is called, or
    the name of one. `steps` are calls of them and their results, with which the turn begins."""

    max_tokens: int = 0
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    schema: str = ""
    system: str = ""
    tools: tuple[ClientTool, ...] = ()
    tool_choice: str = ""
    steps: tuple[AssistantEntry | ToolEntry, ...] = ()


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="in"):
    """One message on its way to the agent. `id` is the platform's own id, by which a second
    delivery is recognised. `timestamp` is in ms. `thread` names a side conversation with a session
    of its own. `traceparent` is W3C trace context. `history` is the conversation before it, for a
    session that exists for this message alone. `sources` mark a text that others may have written,
    such as the report of a subagent that read a page."""

    channel: str
    chat_id: str
    sender_id: str
    id: str
    content: str
    timestamp: int
    media: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    thread: str | None = None
    traceparent: str | None = None
    v: int = 1
    history: tuple[UserEntry | AssistantEntry | ToolEntry, ...] = ()
    sources: tuple[str, ...] = ()
    options: TurnOptions | None = None

    @property
    def version(self) -> int:
        """The version of this record. An older worker would answer in another form than the program
        asked for."""
        options = self.options or TurnOptions()
        if options.tools or options.steps or any(isinstance(entry, ToolEntry) for entry in self.history):
            return SCHEMA_VERSION
        return PLAIN_VERSION if self.options is None else OPTIONS_VERSION

    @property
    def origin(self) -> tuple[str, str]:
        """Channel and chat id of the answer; a system message names them in its chat id."""
        if self.channel != SYSTEM:
            return self.channel, self.chat_id
        channel, colon, chat_id = self.chat_id.partition(":")
        return (channel, chat_id) if colon else (NO_ORIGIN, channel)

    @property
    def session(self) -> str:
        """The session this message belongs to."""
        return session_id(self.channel, self.chat_id if self.thread is None else f"{self.chat_id}#{self.thread}")


decode_inbound: Decoder[InboundMessage] = Decoder(InboundMessage, limit_bytes=1024 * 1024)
