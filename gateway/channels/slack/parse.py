"""What was told as messages of people (docs.slack.dev/reference/events/message). Pure.

Dedupe: a message is `<team>/<channel>/<ts>`, an edited form of it has `/<edited ts>` behind that; so a message that is
told twice (as `message` and as `app_mention`, or again) is one. Only without a `ts` the id of the event counts.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from gateway.channels.slack.contents import Me, files_of, names_us, text_of
from gateway.channels.slack.wire import Callback, Challenge, Command, Edited, Message, Press, Told, files_in
from gateway.platform.protocol import PlatformMessage
from gateway.text.incoming import slack_to_text
from shared.messages.inbound import InboundMessage

BUTTONS: Final = "shoal"
"""The block with our buttons."""

HELP: Final = "/help"
"""What a slash command without words says."""

_SPOKEN: Final = (None, "file_share", "me_message", "thread_broadcast", "bot_message")
_SLACKBOT: Final = "USLACKBOT"
_ID: Final = re.compile(r"[A-Z0-9]{2,40}")
_TS: Final = re.compile(r"([0-9]{1,12})\.([0-9]{1,9})")


class Gone(Struct, frozen=True):
    """A person deleted this message."""

    message: InboundMessage


class Hearing(Struct, frozen=True):
    """Reads what is told to our bot. `channel` is the channel's name here; `threads`, `command`:
    see SlackSettings."""

    channel: str
    me: Me
    threads: bool = True
    command: str = "/shoal"

    def heard(self, told: Told, *, now_ms: int) -> PlatformMessage | Gone | None:
        """What was said or taken back; None for what is nothing to us, such as who came and went,
        or what was told to another workspace. `now_ms` is the time of what has none."""
        match told:
            case Callback():
                return self._event(told, now_ms) if self._may_see(told) else None
            case Press():
                return self._pressed(told, now_ms)
            case Command():
                return self._commanded(told, now_ms)
            case Challenge():
                return None

    def _may_see(self, told: Callback) -> bool:
        """Ids of people are unique within a workspace only: an event counts in ours, or where our
        own bot is one of those that may see it (a channel that two workspaces share)."""
        return told.team_id == self.me.team_id or any(one.user_id == self.me.user_id for one in told.authorizations)

    def _event(self, told: Callback, now_ms: int) -> PlatformMessage | Gone | None:
        event, place = told.event, told.event.channel or ""
        if not _ID.fullmatch(place):
            return None
        changed, before = event.message, event.previous_message
        match event.subtype:
            case "message_changed" if changed is not None and changed.subtype == "tombstone":
                return self._gone(place, changed.ts, before or changed)  # deleted, with replies that stay
            case "message_changed" if changed is not None:
                return self._said(told, place, changed, now_ms, changed.edited) if _is_new(changed, before) else None
            case "message_deleted":
                return self._gone(place, event.deleted_ts, before or Message())
            case _:
                return self._said(told, place, event, now_ms)

    def _said(
        self, told: Callback, place: str, message: Message, now_ms: int, edited: Edited | None = None
    ) -> PlatformMessage | None:
        ts, me = message.ts or "", self.me
        if message.subtype not in _SPOKEN or not (_TS.fullmatch(ts) or (told.event_id and not edited)):
            return None
        text, files = text_of(message, me), tuple(files_of(message))
        if not text and not files:
            return None
        id = self._id(place, ts or told.event_id)
        own = message.user == me.user_id or (bool(message.bot_id) and message.bot_id == me.bot_id)
        is_bot = bool(message.bot_id) or message.subtype == "bot_message" or message.user == _SLACKBOT
        return PlatformMessage(
            message=InboundMessage(
                channel=self.channel,
                chat_id=place,
                sender_id=message.user or "",
                id=f"{id}/{edited.ts}" if edited else id,
                content=text,
                timestamp=_ms(edited.ts if edited else ts) or now_ms,
                thread=self._thread(place, ts, message.thread_ts),
            ),
            group=is_group(place),
            addressed=not is_group(place)
            or told.event.type == "app_mention"
            or message.parent_user_id == me.user_id
            or names_us(message, me),
            own=own,
            from_bot=is_bot and not own,
            replaces=id if edited else None,
            files=files,
        )

    def _gone(self, place: str, ts: str | None, before: Message) -> Gone | None:
        if not ts or not _TS.fullmatch(ts) or before.bot_id or before.user == self.me.user_id:
            return None
        return Gone(
            InboundMessage(
                channel=self.channel,
                chat_id=place,
                sender_id=before.user or "",
                id=self._id(place, ts),
                content="",
                timestamp=_ms(ts),
                thread=self._thread(place, ts, before.thread_ts),
            )
        )

    def _pressed(self, press: Press, now_ms: int) -> PlatformMessage | None:
        on, message, place = press.container, press.message or Message(), place_of(press)
        button = next((one for one in press.actions if one.type == "button" and one.block_id == BUTTONS), None)
        team = press.team.id if press.team is not None else press.user.team_id
        if team != self.me.team_id or not _ID.fullmatch(place) or button is None:
            return None
        if not button.value or not button.value.strip() or not button.action_ts:
            return None
        ts, thread = on.message_ts or message.ts or "", on.thread_ts or message.thread_ts
        return _of_a_person(
            InboundMessage(
                channel=self.channel,
                chat_id=place,
                sender_id=press.user.id,
                id=f"{self._id(place, ts)}/press/{press.user.id}/{button.action_ts}",
                content=button.value,
                timestamp=_ms(button.action_ts) or now_ms,
                thread=thread if thread and thread != ts and _TS.fullmatch(thread) else None,
            ),
            press.user.name or press.user.username or "",
        )

    def _commanded(self, told: Command, now_ms: int) -> PlatformMessage | None:
        if told.team_id != self.me.team_id or not _ID.fullmatch(told.channel_id) or not told.trigger_id:
            return None
        text = slack_to_text(told.text).strip()
        if told.command != self.command:
            text = f"{told.command} {text}".strip()
        return _of_a_person(
            InboundMessage(
                channel=self.channel,
                chat_id=told.channel_id,
                sender_id=told.user_id,
                id=self._id(told.channel_id, f"command/{told.trigger_id}"),
                content=text or HELP,
                timestamp=now_ms,
            ),
            told.user_name,
        )

    def _id(self, place: str, ts: str) -> str:
        return f"{self.me.team_id}/{place}/{ts}"

    def _thread(self, place: str, ts: str, thread_ts: str | None) -> str | None:
        """A reply's thread; in a channel a message that is none may begin one. The first of a
        thread names itself."""
        if thread_ts and thread_ts != ts and _TS.fullmatch(thread_ts):
            return thread_ts
        return ts if self.threads and is_group(place) and _TS.fullmatch(ts) else None


def place_of(told: Told) -> str:
    """The channel that it is about; '' = none. What is about one channel is to be kept in order."""
    match told:
        case Callback():
            return told.event.channel or ""
        case Press():
            return told.container.channel_id or (told.channel.id if told.channel else "")
        case Command():
            return told.channel_id
        case Challenge():
            return ""


def is_group(channel_id: str) -> bool:
    """Whether several people can write there: only ids of chats of two begin with D."""
    return not channel_id.startswith("D")


def _is_new(message: Message, before: Message | None) -> bool:
    """Whether a person changed it: Slack also tells of links that it shows, of replies, of
    languages it found."""
    if message.edited is None or not message.edited.ts:
        return False
    return before is None or (message.text, _file_ids(message)) != (before.text, _file_ids(before))


def _file_ids(message: Message) -> list[str]:
    return [one.id for one in files_in(message)]


def _of_a_person(message: InboundMessage, name: str) -> PlatformMessage:
    """What somebody did with our own buttons and commands: it is always meant for us."""
    return PlatformMessage(message=message, group=is_group(message.chat_id), name=name)


def _ms(ts: str) -> int:
    """A ts in milliseconds; 0 when it is none."""
    found = _TS.fullmatch(ts)
    return int(found[1]) * 1000 + int(found[2].ljust(3, "0")[:3]) if found else 0
