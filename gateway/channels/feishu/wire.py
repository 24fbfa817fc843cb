"""Decode events and callbacks of form 2.0 (open.feishu.cn/document, "Receive messages", "Recall
messages", "Card callback communication"). Pure."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.platform.nulls import NullTolerantDecoder, decode_json


class _Ids(Struct, frozen=True):
    open_id: str | None = None  # specific to our app


class _Sender(Struct, frozen=True):
    sender_id: _Ids | None = None
    sender_type: str | None = None  # user or app


class Mention(Struct, frozen=True):
    """A mentioned person, who stands for `key`, such as @_user_1, in the text."""

    key: str | None = None
    id: _Ids | None = None
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
    sender: _Sender = _Sender()


class MessageRecalled(Struct, frozen=True):
    """A message was recalled, by its sender or an administrator."""

    message_id: str
    chat_id: str


class _Action(Struct, frozen=True):
    value: Any = None  # as we stored it in the button
    tag: str | None = None


class _CardContext(Struct, frozen=True):
    open_chat_id: str | None = None


class CardPressed(Struct, frozen=True):
    """A person used a card of ours."""

    operator: _Ids
    action: _Action
    context: _CardContext = _CardContext()


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
        if isinstance(self.event, CardPressed):
            return self.event.context.open_chat_id or ""
        event = self.event.message if isinstance(self.event, MessageReceived) else self.event
        return event.chat_id


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
    "im.message.receive_v1": MessageReceived,
    "im.message.recalled_v1": MessageRecalled,
    "card.action.trigger": CardPressed,
}
_envelope: Final = NullTolerantDecoder(_Envelope)


def read_event(body: bytes) -> FeishuEvent | UrlCheck | EventHeader | None:
    """Decode an event, only its header if not for us; None for the old form. Raises DecodeError."""
    envelope = _envelope.decode(body)
    if envelope.header is UNSET:
        is_check = envelope.type == "url_verification"
        return UrlCheck(envelope.challenge, envelope.token) if is_check else None
    kind = _KINDS.get(envelope.header.event_type)
    if kind is None:
        return envelope.header
    return FeishuEvent(envelope.header, decode_json(envelope.event, kind))
