"""What Feishu tells: events and callbacks of the form 2.0 (open.feishu.cn/document, "Receive
messages", "Recall messages", "Card callback communication"). Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

MESSAGE: Final = "im.message.receive_v1"
RECALLED: Final = "im.message.recalled_v1"
PRESSED: Final = "card.action.trigger"
CHECK: Final = "url_verification"


class Ids(Struct, frozen=True):
    """Of one person; the open_id is theirs for our app alone."""

    open_id: str | None = None


class Sender(Struct, frozen=True):
    """`sender_type` is user or app."""

    sender_id: Ids | None = None
    sender_type: str | None = None


class Mention(Struct, frozen=True):
    """Who stands for `key`, such as @_user_1, in the text."""

    key: str | None = None
    id: Ids | None = None
    name: str | None = None


class Message(Struct, frozen=True):
    """`content` is JSON of a form for each type; times in milliseconds. `thread_id` has what stands
    in a topic, whose first message is `root_id`; `parent_id` is what a reply answers."""

    message_id: str
    chat_id: str
    chat_type: str | None = None
    message_type: str | None = None
    content: str | None = None
    create_time: str | None = None
    root_id: str | None = None
    parent_id: str | None = None
    thread_id: str | None = None
    mentions: tuple[Mention, ...] | None = None


class Received(Struct, frozen=True):
    """Somebody said something."""

    message: Message
    sender: Sender = Sender()


class Recalled(Struct, frozen=True):
    """A message was taken back, by its sender or by who may."""

    message_id: str
    chat_id: str
    recall_time: str | None = None


class Action(Struct, frozen=True):
    """`value` is what we put behind a button."""

    value: Any = None
    tag: str | None = None


class Context(Struct, frozen=True):
    """Where a card stands."""

    open_message_id: str | None = None
    open_chat_id: str | None = None


class Pressed(Struct, frozen=True):
    """Somebody used a card of ours."""

    operator: Ids
    action: Action
    context: Context = Context()


class Header(Struct, frozen=True):
    """`token` is our verification token."""

    event_type: str
    event_id: str = ""
    create_time: str | None = None
    token: str | None = None
    app_id: str | None = None


class Told(Struct, frozen=True):
    """An event that means something to us."""

    header: Header
    event: Received | Recalled | Pressed

    @property
    def chat(self) -> str:
        """What it is about: to be kept in order."""
        match self.event:
            case Received(message=message):
                return message.chat_id
            case Recalled(chat_id=chat):
                return chat
            case Pressed(context=context):
                return context.open_chat_id or ""


class Check(Struct, frozen=True):
    """Feishu asks whether the webhook is ours, and wants `challenge` back."""

    challenge: str
    token: str


class _Envelope(Struct, frozen=True):
    header: Header | UnsetType = UNSET
    event: Raw = Raw(b"null")
    type: str = ""
    challenge: str = ""
    token: str = ""


_KINDS: Final[dict[str, type[Received | Recalled | Pressed]]] = {
    MESSAGE: Received,
    RECALLED: Recalled,
    PRESSED: Pressed,
}
_envelope: Final = msgspec.json.Decoder(_Envelope)


def read_event(body: bytes) -> Told | Check | Header | None:
    """What it says; the header alone of an event that is nothing to us; None for one of the old
    form. Raises msgspec.DecodeError."""
    envelope = _envelope.decode(body)
    if envelope.header is UNSET:
        return Check(envelope.challenge, envelope.token) if envelope.type == CHECK else None
    kind = _KINDS.get(envelope.header.event_type)
    if kind is None:
        return envelope.header
    return Told(envelope.header, msgspec.json.decode(envelope.event, type=kind))
