"""Convert Slack events into messages (docs.slack.dev/reference/events/message). Pure.

A message's id is `<team>/<channel>/<ts>`, its edited form adds `/<edited ts>`; so an event that
arrives twice (as `message` and as `app_mention`, or repeated) is one message. The event's id is
used only if there is no `ts`.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from gateway.channels.slack.contents import (
    answered_quote,
    has_words_of_others,
    message_files,
    message_text,
    names_us,
    raw_text,
)
from gateway.channels.slack.wire import (
    BlockActions,
    Edited,
    EventCallback,
    Message,
    SlackEvent,
    SlackIdentity,
    SlashCommand,
    files_in,
)
from gateway.platform.protocol import PlatformMessage
from gateway.text.incoming import slack_to_text
from gateway.text.quotes import is_strange, with_quote
from shared.messages.inbound import InboundMessage

Parsed = PlatformMessage | InboundMessage | None

BUTTONS: Final = "shoal"  # block id of our buttons
HELP: Final = "/help"  # text of a slash command that has none
_SPOKEN: Final = (None, "file_share", "me_message", "thread_broadcast", "bot_message")
_SLACKBOT: Final = "USLACKBOT"
_ID: Final = re.compile(r"[A-Z0-9]{2,40}")
_TS: Final = re.compile(r"([0-9]{1,12})\.([0-9]{1,9})")


class SlackEventParser(Struct, frozen=True):
    """Parser of our bot's events. `channel` is its name in Shoal; the rest see SlackSettings."""

    channel: str
    me: SlackIdentity
    threads: bool = True
    command: str = "/shoal"

    def parse_event(self, event: SlackEvent, *, now_ms: int) -> Parsed:
        """Return the message, or a deleted one as InboundMessage; None if the event is not for us,
        such as joins, or another workspace's event. `now_ms` stands in for a missing time."""
        match event:
            case EventCallback():
                return self._parse_callback(event, now_ms) if self._may_see(event) else None
            case BlockActions():
                return self._parse_press(event, now_ms)
            case SlashCommand():
                return self._parse_command(event, now_ms)
            case _:
                return None

    def _may_see(self, callback: EventCallback) -> bool:
        """Return whether the event is ours. User ids are unique within a workspace: an event counts
        in ours, or where our bot may see it (a channel shared between workspaces)."""
        return callback.team_id == self.me.team_id or any(
            one.user_id == self.me.user_id for one in callback.authorizations
        )

    def _parse_callback(self, callback: EventCallback, now_ms: int) -> Parsed:
        event = callback.event
        place = callback.event.channel or ""
        if not _ID.fullmatch(place):
            return None
        changed = event.message
        before = event.previous_message
        match event.subtype:
            case "message_changed" if changed is not None and changed.subtype == "tombstone":
                # Deleted, with replies that stay.
                return self._parse_deletion(place, changed.ts, before or changed)
            case "message_changed" if changed is not None:
                if not _is_edit_by_person(changed, before):
                    return None
                return self._parse_message(callback, place, changed, now_ms, changed.edited)
            case "message_deleted":
                return self._parse_deletion(place, event.deleted_ts, before or Message())
            case _:
                return self._parse_message(callback, place, event, now_ms)

    def quote_root(self, root: Message, reply: PlatformMessage) -> PlatformMessage:
        """Return a reply below the first message of its thread; not if that one was for us, too, so
        that the thread's conversation has it."""
        if reply.group and names_us(root, self.me):
            return reply
        quote = answered_quote(root, reply.message.sender_id, self.me)
        whole = replace(reply.message, content=with_quote(reply.message.content, quote))
        return replace(reply, message=whole, forwarded=reply.forwarded or is_strange(quote))

    def _parse_message(
        self, callback: EventCallback, place: str, message: Message, now_ms: int, edited: Edited | None = None
    ) -> PlatformMessage | None:
        ts = message.ts or ""
        me = self.me
        if message.subtype not in _SPOKEN or not (_TS.fullmatch(ts) or (callback.event_id and not edited)):
            return None
        text = message_text(message, me)
        files = tuple(message_files(message))
        if not text and not files:
            return None
        id = ts or callback.event_id
        form = f"{id}/{edited.ts}" if edited else id
        own = message.user == me.user_id or (bool(message.bot_id) and message.bot_id == me.bot_id)
        is_bot = message.bot_id or message.subtype == "bot_message" or message.user == _SLACKBOT
        at_ms = _ts_to_ms(edited.ts if edited else ts) or now_ms
        thread = self._thread(place, ts, message.thread_ts)
        return PlatformMessage(
            message=self._inbound(place, message.user or "", form, text, at_ms, thread),
            group=_is_group(place),
            addressed=not _is_group(place)
            or callback.event.type == "app_mention"
            or message.parent_user_id == me.user_id
            or names_us(message, me),
            own=own,
            from_bot=bool(is_bot) and not own,
            forwarded=has_words_of_others(message),
            replaces=self._message_id(place, id) if edited else None,
            files=files,
        )

    def _parse_deletion(self, place: str, ts: str | None, before: Message) -> InboundMessage | None:
        if not ts or not _TS.fullmatch(ts) or before.bot_id or before.user == self.me.user_id:
            return None
        thread = self._thread(place, ts, before.thread_ts)
        return self._inbound(place, before.user or "", ts, "", _ts_to_ms(ts), thread)

    def _parse_press(self, press: BlockActions, now_ms: int) -> PlatformMessage | None:
        on = press.container
        message = press.message or Message()
        place = conversation_id(press)
        ours = (one for one in press.actions if one.type == "button" and one.block_id == BUTTONS)
        button = next(ours, None)
        team = press.team.id if press.team is not None else press.user.team_id
        if team != self.me.team_id or not _ID.fullmatch(place) or button is None:
            return None
        if not button.value or not button.value.strip() or not button.action_ts:
            return None
        ts = on.message_ts or message.ts or ""
        thread = on.thread_ts or message.thread_ts
        thread = thread if thread and thread != ts and _TS.fullmatch(thread) else None
        id = f"{ts}/press/{press.user.id}/{button.action_ts}"
        at_ms = _ts_to_ms(button.action_ts) or now_ms
        pressed = self._inbound(place, press.user.id, id, button.value, at_ms, thread)
        name = press.user.name or press.user.username or ""
        return PlatformMessage(message=pressed, group=_is_group(place), name=name)

    def _parse_command(self, command: SlashCommand, now_ms: int) -> PlatformMessage | None:
        place = command.channel_id
        if command.team_id != self.me.team_id or not _ID.fullmatch(place) or not command.trigger_id:
            return None
        text = slack_to_text(command.text).strip()
        if command.command != self.command:
            text = f"{command.command} {text}".strip()
        id = f"command/{command.trigger_id}"
        given = self._inbound(place, command.user_id, id, text or HELP, now_ms)
        return PlatformMessage(message=given, group=_is_group(place), name=command.user_name)

    def _inbound(
        self, place: str, sender: str, id: str, text: str, at_ms: int, thread: str | None = None
    ) -> InboundMessage:
        return InboundMessage(
            channel=self.channel,
            chat_id=place,
            sender_id=sender,
            id=self._message_id(place, id),
            content=text,
            timestamp=at_ms,
            thread=thread,
        )

    def _message_id(self, place: str, ts: str) -> str:
        return f"{self.me.team_id}/{place}/{ts}"

    def _thread(self, place: str, ts: str, thread_ts: str | None) -> str | None:
        """Return a reply's thread; in a channel a message outside threads may start one. The first
        message of a thread names itself as its thread."""
        if thread_ts and thread_ts != ts and _TS.fullmatch(thread_ts):
            return thread_ts
        return ts if self.threads and _is_group(place) and _TS.fullmatch(ts) else None


def conversation_id(event: SlackEvent) -> str:
    """Return the channel of an event, '' if none. Those of one channel are accepted in order."""
    match event:
        case EventCallback():
            return event.event.channel or ""
        case BlockActions():
            return event.container.channel_id or (event.channel.id if event.channel else "")
        case SlashCommand():
            return event.channel_id
        case _:
            return ""


def _is_group(channel_id: str) -> bool:
    """Return whether several people can write there: only ids of direct messages begin with D."""
    return not channel_id.startswith("D")


def _is_edit_by_person(message: Message, before: Message | None) -> bool:
    """Return whether a person changed it: Slack also reports previews and replies as edits."""
    if message.edited is None or not message.edited.ts:
        return False
    return before is None or (raw_text(message), _file_ids(message)) != (raw_text(before), _file_ids(before))


def _file_ids(message: Message) -> list[str]:
    return [one.id for one in files_in(message)]


def _ts_to_ms(ts: str) -> int:
    """Convert a ts to milliseconds; 0 if it is not one."""
    found = _TS.fullmatch(ts)
    return int(found[1]) * 1000 + int(found[2].ljust(3, "0")[:3]) if found else 0
