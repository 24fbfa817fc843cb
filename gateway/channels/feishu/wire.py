"""Decode events and callbacks of form 2.0 (open.feishu.cn/document, "Receive messages", "Recall
messages", "Card callback communication"). Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

MESSAGE: Final = "im.message.receive_v1"
RECALLED: Final = "im.message.recalled_v1"
PRESSED: Final = "card.action.trigger"
CHECK: Final = "url_verification"


class Ids(Struct, frozen=True):
    """The ids of one person; the open_id is specific to our app."""

    open_id: str | None = None


class EventSender(Struct, frozen=True):
    """The sender of a message; `sender_type` is user or app."""

    sender_id: Ids | None = None
    sender_type: str | None = None


class Mention(Struct, frozen=True):
    """A mentioned person, who stands for `key`, such as @_user_1, in the text."""

    key: str | None = None
    id: Ids | None = None
    name: str | None = None


class Message(Struct, frozen=True):
    """A message. `content` is JSON of a form for each type; times in milliseconds. `thread_id` is
    set inside a topic, whose first message is `root_id`; `parent_id` is the replied message."""

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


class MessageReceived(Struct, frozen=True):
    """A new message."""

    message: Message
    sender: EventSender = EventSender()


class MessageRecalled(Struct, frozen=True):
    """A message was recalled, by its sender or an administrator."""

    message_id: str
    chat_id: str
    recall_time: str | None = None


class Action(Struct, frozen=True):
    """A button press; `value` is what we stored in the button."""

    value: Any = None
    tag: str | None = None


class CardContext(Struct, frozen=True):
    """The message and chat of a card."""

    open_message_id: str | None = None
    open_chat_id: str | None = None


class CardPressed(Struct, frozen=True):
    """A person used a card of ours."""

    operator: Ids
    action: Action
    context: CardContext = CardContext()


class EventHeader(Struct, frozen=True):
    """The header of an event; `token` is our verification token."""

    event_type: str
    event_id: str = ""
    create_time: str | None = None
    token: str | None = None
    app_id: str | None = None


class FeishuEvent(Struct, frozen=True):
    """An event that concerns us."""

    header: EventHeader
    event: MessageReceived | MessageRecalled | CardPressed

    @property
    def chat(self) -> str:
        """The chat it is about: its events are accepted in order."""
        match self.event:
            case MessageReceived(message=message):
                return message.chat_id
            case MessageRecalled(chat_id=chat):
                return chat
            case CardPressed(context=context):
                return context.open_chat_id or ""


class UrlCheck(Struct, frozen=True):
    """Feishu checks whether the webhook is ours, and expects `challenge` back."""

    challenge: str
    token: str


class _Envelope(Struct, frozen=True):
    header: EventHeader | UnsetType = UNSET
    event: Raw = Raw(b"null")
    type: str = ""
    challenge: str = ""
    token: str = ""


_KINDS: Final[dict[str, type[MessageReceived | MessageRecalled | CardPressed]]] = {
    MESSAGE: MessageReceived,
    RECALLED: MessageRecalled,
    PRESSED: CardPressed,
}
_envelope: Final = msgspec.json.Decoder(_Envelope)


def read_event(body: bytes) -> FeishuEvent | UrlCheck | EventHeader | None:
    """Decode an event; only the header of one that does not concern us; None for one of the old
    form. Raises msgspec.DecodeError."""
    envelope = _envelope.decode(body)
    if envelope.header is UNSET:
        return UrlCheck(envelope.challenge, envelope.token) if envelope.type == CHECK else None
    kind = _KINDS.get(envelope.header.event_type)
    if kind is None:
        return envelope.header
    return FeishuEvent(envelope.header, msgspec.json.decode(envelope.event, type=kind))
