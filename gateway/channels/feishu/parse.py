"""Convert events into messages. Pure.

A message is identified by its id alone, a press by that of its event: Feishu may repeat a message
under another event's id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from gateway.channels.feishu.contents import FORWARDED, OWN_WORDS, MentionNames, read_content
from gateway.channels.feishu.wire import CardPressed, EventHeader, Message, MessageReceived
from gateway.platform.protocol import PlatformMessage
from shared.messages.inbound import InboundMessage

MESSAGE_ID: Final = re.compile(r"om_[0-9A-Za-z_-]{1,120}")
CHAT_ID: Final = re.compile(r"oc_[0-9A-Za-z]{1,120}")

SAYS: Final = "shoal"
CHAT: Final = "chat"
THREAD: Final = "thread"
GROUP: Final = "group"
"""Keys of a button's value: the text it stands for, and where its card was posted."""

_PERSON: Final = re.compile(r"ou_[0-9A-Za-z]{1,120}")
_EVENT_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,120}")
_MS: Final = re.compile(r"[0-9]{10,17}")


class FeishuIdentity(Struct, frozen=True):
    """Our app, and its bot."""

    app_id: str
    open_id: str = ""


class ParsedMessage(Struct, frozen=True):
    """A message; look up whether `parent` is ours, and what was forwarded, if it `is_forward`."""

    message: PlatformMessage
    parent: str | None = None
    is_forward: bool = False


class FeishuEventParser(Struct, frozen=True):
    """Parser of events for our bot in Shoal's channel `channel`. `threads`: see FeishuSettings."""

    channel: str
    me: FeishuIdentity
    threads: bool = True

    def parse_message(self, header: EventHeader, received: MessageReceived, *, now_ms: int) -> ParsedMessage | None:
        """Return a message; None if there is none for us. `now_ms` stands in for a missing time."""
        message = received.message
        if not self._is_ours(header) or not CHAT_ID.fullmatch(message.chat_id):
            return None
        if not MESSAGE_ID.fullmatch(message.message_id):
            return None
        mentions = message.mentions or ()
        kind = message.message_type or ""
        parent = message.parent_id
        names = MentionNames.of(mentions, self.me.open_id)
        words = read_content(message.message_id, kind, message.content or "", names)
        if not words.text.strip() and not words.files:
            return None
        sender = (received.sender.sender_id.open_id if received.sender.sender_id else "") or ""
        own = bool(sender) and sender == self.me.open_id
        group = is_group(message.chat_type)
        addressed = not group or bool(names.ours)
        return ParsedMessage(
            PlatformMessage(
                message=InboundMessage(
                    channel=self.channel,
                    chat_id=message.chat_id,
                    sender_id=sender if _PERSON.fullmatch(sender) else "",
                    id=message.message_id,
                    content=words.text.strip(),
                    timestamp=_time_ms(message.create_time) or now_ms,
                    thread=self.thread_id(message, group=group),
                ),
                group=group,
                addressed=addressed,
                own=own,
                from_bot=not own and received.sender.sender_type != "user",
                forwarded=kind not in OWN_WORDS,
                files=words.files,
            ),
            parent=parent if parent and MESSAGE_ID.fullmatch(parent) else None,
            is_forward=kind == FORWARDED,
        )

    def parse_press(self, header: EventHeader, pressed: CardPressed, *, now_ms: int) -> PlatformMessage | None:
        """Return a press of one of our buttons, in the chat that it was posted to."""
        value = pressed.action.value
        tag = pressed.action.tag
        chat = pressed.context.open_chat_id or ""
        if not self._is_ours(header) or not isinstance(value, Mapping) or tag not in (None, "button"):
            return None
        says = _string_at(value, SAYS).strip()
        thread = _string_at(value, THREAD)
        if not says or not CHAT_ID.fullmatch(chat) or _string_at(value, CHAT) != chat:
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
                timestamp=_time_ms(header.create_time) or now_ms,
                thread=thread if MESSAGE_ID.fullmatch(thread) else None,
            ),
            group=_string_at(value, GROUP) != "",
        )

    def thread_id(self, message: Message, *, group: bool) -> str | None:
        """Return a message's topic, named by its first message; in a group it may start one."""
        if message.thread_id:
            root = message.root_id
            return root if root and MESSAGE_ID.fullmatch(root) else message.message_id
        return message.message_id if self.threads and group else None

    def _is_ours(self, header: EventHeader) -> bool:
        return header.app_id in (None, "", self.me.app_id)


def is_group(chat_type: str | None) -> bool:
    """Return whether several people can write there: every chat that is not p2p."""
    return chat_type != "p2p"


def _string_at(value: Mapping[Any, Any], key: str) -> str:
    word = value.get(key)
    return word if isinstance(word, str) else ""


def _time_ms(text: str | None) -> int:
    """Return milliseconds; some events give microseconds."""
    if not text or not _MS.fullmatch(text):
        return 0
    return int(text) // 1000 if len(text) > 15 else int(text)
