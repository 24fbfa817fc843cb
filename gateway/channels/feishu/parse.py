"""What was told as messages of people. Pure.

Dedupe: a message by its id alone, a press by that of its event. Feishu itself says that a message may be told again
under another event's id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from gateway.channels.feishu.contents import FORWARDED, Names, said
from gateway.channels.feishu.wire import Header, Message, Pressed, Received
from gateway.platform.protocol import PlatformMessage
from shared.messages.inbound import InboundMessage

MESSAGE_ID: Final = re.compile(r"om_[0-9A-Za-z_-]{1,120}")
CHAT_ID: Final = re.compile(r"oc_[0-9A-Za-z]{1,120}")

SAYS: Final = "shoal"
CHAT: Final = "chat"
THREAD: Final = "thread"
GROUP: Final = "group"
"""The keys of what stands behind a button: what pressing it says, and where its card was posted."""

_PERSON: Final = re.compile(r"ou_[0-9A-Za-z]{1,120}")
_EVENT_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,120}")
_MS: Final = re.compile(r"[0-9]{10,17}")


class Me(Struct, frozen=True):
    """Our app, and its bot."""

    app_id: str
    open_id: str = ""


class Asked(Struct, frozen=True):
    """What was said, and what only Feishu knows about it: whether `parent` is ours, when it was not
    `addressed`; and what was passed on with it, when `is_forward`."""

    heard: PlatformMessage
    parent: str | None = None
    is_forward: bool = False


class Hearing(Struct, frozen=True):
    """Reads what is told to our bot. `channel` is the channel's name here; `threads`: see
    FeishuSettings."""

    channel: str
    me: Me
    threads: bool = True

    def heard(self, header: Header, received: Received, *, now_ms: int) -> Asked | None:
        """A message; None for what says nothing to us. `now_ms` is the time of what has none."""
        message = received.message
        if not self._is_ours(header) or not CHAT_ID.fullmatch(message.chat_id):
            return None
        if not MESSAGE_ID.fullmatch(message.message_id):
            return None
        mentions, kind = message.mentions or (), message.message_type or ""
        names = Names.of(mentions, self.me.open_id)
        words = said(message.message_id, kind, message.content or "", names)
        if not words.text.strip() and not words.files:
            return None
        sender = (received.sender.sender_id.open_id if received.sender.sender_id else "") or ""
        own = bool(sender) and sender == self.me.open_id
        group = is_group(message.chat_type)
        addressed = not group or bool(names.ours)
        return Asked(
            PlatformMessage(
                message=InboundMessage(
                    channel=self.channel,
                    chat_id=message.chat_id,
                    sender_id=sender if _PERSON.fullmatch(sender) else "",
                    id=message.message_id,
                    content=words.text.strip(),
                    timestamp=_ms(message.create_time) or now_ms,
                    thread=self.thread_of(message, group=group),
                ),
                group=group,
                addressed=addressed,
                own=own,
                from_bot=not own and received.sender.sender_type != "user",
                files=words.files,
            ),
            parent=message.parent_id if message.parent_id and MESSAGE_ID.fullmatch(message.parent_id) else None,
            is_forward=kind == FORWARDED,
        )

    def pressed(self, header: Header, pressed: Pressed, *, now_ms: int) -> PlatformMessage | None:
        """A press of one of our buttons, in the chat that it was posted to."""
        value, chat = pressed.action.value, pressed.context.open_chat_id or ""
        if not self._is_ours(header) or not isinstance(value, Mapping) or pressed.action.tag not in (None, "button"):
            return None
        says, thread = _word(value, SAYS).strip(), _word(value, THREAD)
        if not says or not CHAT_ID.fullmatch(chat) or _word(value, CHAT) != chat:
            return None
        sender = pressed.operator.open_id or ""
        if not _EVENT_ID.fullmatch(header.event_id) or not _PERSON.fullmatch(sender):
            return None
        return PlatformMessage(
            message=InboundMessage(
                channel=self.channel,
                chat_id=chat,
                sender_id=sender,
                id=f"press/{header.event_id}",
                content=says,
                timestamp=_ms(header.create_time) or now_ms,
                thread=thread if MESSAGE_ID.fullmatch(thread) else None,
            ),
            group=_word(value, GROUP) != "",
        )

    def thread_of(self, message: Message, *, group: bool) -> str | None:
        """The topic that a message stands in, by its first message; in a group a message that is in
        none may begin one."""
        first = message.root_id if message.root_id and MESSAGE_ID.fullmatch(message.root_id) else message.message_id
        if message.thread_id:
            return first
        return message.message_id if self.threads and group else None

    def _is_ours(self, header: Header) -> bool:
        return header.app_id in (None, "", self.me.app_id)


def is_group(chat_type: str | None) -> bool:
    """Whether several people can write there: in everything that is no chat of two."""
    return chat_type != "p2p"


def _word(value: Mapping[Any, Any], key: str) -> str:
    word = value.get(key)
    return word if isinstance(word, str) else ""


def _ms(text: str | None) -> int:
    """Milliseconds; some events tell microseconds."""
    if not text or not _MS.fullmatch(text):
        return 0
    return int(text) // 1000 if len(text) > 15 else int(text)
