"""Process sync batches: follow invitations, accept messages, and read what a batch left out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gateway.channels.matrix.api import MatrixApi
from gateway.channels.matrix.parse import (
    answered_quote,
    inviter,
    parse_event,
    redacted_id,
    replaced_id,
    start_after_join,
    summarize_event,
)
from gateway.channels.matrix.settings import MatrixSettings
from gateway.channels.matrix.wire import (
    ENCRYPTED,
    MEMBER,
    MESSAGE,
    STICKER,
    Event,
    EventSummary,
    Room,
    Sync,
    read_events,
)
from gateway.platform.access import EVERYBODY
from gateway.platform.protocol import ChatClosed, Inlet, NotAccepted, NotDelivered, PostRefused, Throttled
from shared.ids import log_id, session_id
from shared.log import logger
from shared.messages.inbound import InboundMessage

MAX_REMEMBERED: Final = 10_000
"""Limit for remembered events, and for rooms with their members."""

MAX_NOTIFIED: Final = 500
"""Limit for rooms that were told that they are encrypted."""

MAX_PAGES: Final = 20
"""Pages of missed events read per room: 2,000 events."""

CANNOT_READ: Final = (
    "This room is encrypted, and I cannot read encrypted messages. Please write to me in a room without encryption."
)

log = logger("matrix")


class SyncReceiver:
    """Receives batches in order. `notified_rooms` know already that we cannot read them."""

    def __init__(self, channel: str, api: MatrixApi, settings: MatrixSettings) -> None:
        self.notified_rooms: tuple[str, ...] = ()
        self._channel = channel
        self._api = api
        self._settings = settings
        self._members: dict[str, Mapping[str, str]] = {}
        self._known = OrderedDict[str, EventSummary]()

    async def accept(self, sync: Sync, since: str, inlet: Inlet) -> None:
        """Accept a whole batch, which begins at `since`. Raises what an inlet raises, NotAccepted
        and Throttled; then it comes again, and messages already accepted are known by their ids."""
        for room, invited in sync.rooms.invite.items():
            events = list(read_events(invited.invite_state.events))
            await self._follow_invitation(room, inviter(events, self._api.me))
        for room, joined in sync.rooms.join.items():
            for event in await self._new_events(room, joined, since):
                await self._accept_event(room, event, inlet)

    async def _follow_invitation(self, room: str, by: str | None) -> None:
        if by is None:
            return
        who = {"channel": self._channel, "room": self._log_id(room), "by": by}
        if self._settings.join != "everybody" and not self._may_speak_alone(by):
            log.info("invitation not followed", **who)
            return
        try:
            await self._api.join_room(room)
        except Throttled:
            raise
        except NotDelivered as exc:  # the room's own server may be gone: that must not stop others
            log.warning("room not entered", reason=exc.reason, **who)

    def _may_speak_alone(self, user: str) -> bool:
        rules = self._settings
        return user in rules.allow_from or user in rules.admins or EVERYBODY in rules.allow_from

    async def _new_events(self, room: str, joined: Room, since: str) -> Sequence[Event]:
        """Return a room's events since we joined, oldest first, with those the batch left out."""
        events = list(read_events(joined.timeline.events))
        if joined.timeline.limited and since and start_after_join(events, self._api.me) is None:
            events = await self._missed_events(room, joined.timeline.prev_batch, since) + events
        if any(event.type == MEMBER for event in events):
            self._members.pop(room, None)
        return events[start_after_join(events, self._api.me) or 0 :]

    async def _missed_events(self, room: str, before: str, since: str) -> list[Event]:
        found: list[Event] = []
        reason = "there were too many"
        try:
            for _ in range(MAX_PAGES):
                page = await self._api.get_messages(room, before, since)
                found[:0] = reversed(list(read_events(page.chunk)))
                if not page.end or not page.chunk or start_after_join(found, self._api.me) is not None:
                    return found
                before = page.end
        except PostRefused as exc:
            reason = exc.reason
        log.warning("messages missed", channel=self._channel, room=self._log_id(room), reason=reason)
        return found

    async def _accept_event(self, room: str, event: Event, inlet: Inlet) -> None:
        if (id := redacted_id(event)) is not None:
            await self._accept_redaction(room, id, event, inlet)
        elif event.type == ENCRYPTED:
            await self._notify_encrypted(room, event.sender)
        elif event.type in (MESSAGE, STICKER):
            await self._accept_message(room, event, inlet)

    async def _accept_message(self, room: str, event: Event, inlet: Inlet) -> None:
        this = summarize_event(event)
        me = self._api.me
        self._remember(event.event_id, this)
        original = replaced_id(event)
        first = await self._find_event(room, original) if original and event.sender != me else None
        try:
            members = await self._room_members(room)
        except PostRefused:
            return  # we are not in there any more
        answers = (first or this).answers
        answered = await self._find_event(room, answers) if answers and event.sender != me else None
        author = answered.sender if answered else None
        quote = answered_quote(answered, event.sender, members, me) if answered else None
        message = parse_event(self._channel, room, event, members, me, first=first, answered=author, quote=quote)
        if message is not None:
            await inlet.take(message)

    async def _accept_redaction(self, room: str, id: str, event: Event, inlet: Inlet) -> None:
        """Report a deleted message. The redacted event no longer says which thread it was in."""
        was = self._known.get(id)
        if was is None or was.sender != self._api.me:
            await inlet.on_delete(
                InboundMessage(
                    channel=self._channel,
                    chat_id=room,
                    sender_id=event.sender,
                    id=id,
                    content="",
                    timestamp=max(0, event.origin_server_ts),
                    thread=was.thread if was else None,
                )
            )

    async def _notify_encrypted(self, room: str, sender: str) -> None:
        """Say once that we cannot read the room, if we may be talked to there."""
        here = self._settings.allow_groups
        if room in self.notified_rooms or sender == self._api.me:
            return
        if not (self._may_speak_alone(sender) or room in here or EVERYBODY in here):
            return
        try:
            await self._api.send_notice(room, f"encrypted {room}", CANNOT_READ)
        except (ChatClosed, PostRefused) as exc:
            log.warning("encrypted room", channel=self._channel, room=self._log_id(room), reason=exc.reason)
        except NotDelivered as exc:
            raise NotAccepted(exc.reason) from exc
        self.notified_rooms = (*self.notified_rooms, room)[-MAX_NOTIFIED:]

    async def _room_members(self, room: str) -> Mapping[str, str]:
        if room not in self._members:
            if len(self._members) >= MAX_REMEMBERED:
                self._members.clear()
            self._members[room] = await self._api.get_members(room)
        return self._members[room]

    async def _find_event(self, room: str, id: str) -> EventSummary | None:
        if id not in self._known:
            if (found := await self._api.get_event(room, id)) is None:
                return None
            self._remember(id, found)
        return self._known[id]

    def _remember(self, id: str, event: EventSummary) -> None:
        self._known[id] = event
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)

    def _log_id(self, room: str) -> str:
        return log_id(session_id(self._channel, room))


class MatrixCursor(msgspec.Struct, frozen=True):
    """The position in the stream of news, as saved: for which user, up to which batch."""

    of: str
    since: str
    notified_rooms: tuple[str, ...] = msgspec.field(name="told", default=())


def decode_cursor(saved: bytes) -> MatrixCursor | None:
    """Decode a cursor; None if it is not one."""
    try:
        return msgspec.json.decode(saved, type=MatrixCursor)
    except msgspec.DecodeError:
        return None
