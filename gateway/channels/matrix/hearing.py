"""What the homeserver tells, batch by batch: who invites us, who says what, what was missed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gateway.channels.matrix.api import Api
from gateway.channels.matrix.parse import came_in, heard, invited_by, known, redacted, replaced
from gateway.channels.matrix.settings import MatrixSettings
from gateway.channels.matrix.wire import (
    ENCRYPTED,
    MEMBER,
    MESSAGE,
    STICKER,
    Event,
    Joined,
    Known,
    Sync,
    read_events,
)
from gateway.platform.access import EVERYBODY
from gateway.platform.protocol import ChatClosed, Inlet, NotAccepted, NotDelivered, PostRefused, Throttled
from shared.ids import log_id, session_id
from shared.log import logger
from shared.messages.inbound import InboundMessage

REMEMBERED: Final = 10_000
"""Earlier events, and rooms with who is there."""

TOLD: Final = 500
"""Rooms that were told that they are encrypted."""

PAGES: Final = 20
"""Of what was missed in one room: 2,000 events."""

CANNOT_READ: Final = (
    "This room is encrypted, and I cannot read encrypted messages. Please write to me in a room without encryption."
)

log = logger("matrix")


class Hearing:
    """Takes batches, in the order in which they came. `told`: the rooms that know that we cannot
    read them."""

    def __init__(self, channel: str, api: Api, settings: MatrixSettings) -> None:
        self.me = ""
        self.told: tuple[str, ...] = ()
        self._channel = channel
        self._api = api
        self._settings = settings
        self._members: dict[str, Mapping[str, str]] = {}
        self._known = OrderedDict[str, Known]()

    async def take(self, sync: Sync, since: str, inlet: Inlet) -> None:
        """Everything in a batch; `since` is where it begins. Raises what an inlet raises,
        NotAccepted and Throttled: then the same batch is asked for again, and what was taken of it
        is known."""
        for room, invited in sync.rooms.invite.items():
            await self._asked_in(room, invited_by(list(read_events(invited.invite_state.events)), self.me))
        for room, joined in sync.rooms.join.items():
            for event in await self._events(room, joined, since):
                await self._event(room, event, inlet)

    async def _asked_in(self, room: str, by: str | None) -> None:
        if by is None:
            return
        who = {"channel": self._channel, "room": self._log_id(room), "by": by}
        if self._settings.join != "everybody" and not self._may_speak_alone(by):
            log.info("invitation not followed", **who)
            return
        try:
            await self._api.join(room)
        except Throttled:
            raise
        except NotDelivered as exc:  # the room's own server may be gone; that must not stop all others
            log.warning("room not entered", reason=exc.reason, **who)

    def _may_speak_alone(self, user: str) -> bool:
        rules = self._settings
        return user in rules.allow_from or user in rules.admins or EVERYBODY in rules.allow_from

    async def _events(self, room: str, joined: Joined, since: str) -> Sequence[Event]:
        """What is new to us in a room, oldest first: with what the batch left out, without what was
        said before we came."""
        events = list(read_events(joined.timeline.events))
        if joined.timeline.limited and since and came_in(events, self.me) is None:
            events = await self._missed(room, joined.timeline.prev_batch, since) + events
        if any(event.type == MEMBER for event in events):
            self._members.pop(room, None)
        return events[came_in(events, self.me) or 0 :]

    async def _missed(self, room: str, before: str, since: str) -> list[Event]:
        found: list[Event] = []
        try:
            for _ in range(PAGES):
                page = await self._api.messages(room, before, since)
                found[:0] = reversed(list(read_events(page.chunk)))
                if not page.end or not page.chunk or came_in(found, self.me) is not None:
                    return found
                before = page.end
        except PostRefused as exc:
            log.warning("messages missed", channel=self._channel, room=self._log_id(room), reason=exc.reason)
            return found
        log.warning("messages missed", channel=self._channel, room=self._log_id(room), reason="there were too many")
        return found

    async def _event(self, room: str, event: Event, inlet: Inlet) -> None:
        if (id := redacted(event)) is not None:
            await self._taken_back(room, id, event, inlet)
        elif event.type == ENCRYPTED:
            await self._cannot_read(room, event.sender)
        elif event.type in (MESSAGE, STICKER):
            await self._said(room, event, inlet)

    async def _said(self, room: str, event: Event, inlet: Inlet) -> None:
        this = known(event)
        self._remember(event.event_id, this)
        original = replaced(event)
        first = await self._look(room, original) if original is not None and event.sender != self.me else None
        try:
            members = await self._who(room)
        except PostRefused:
            return  # we are not in there any more
        answers = (first or this).answers
        answered = await self._look(room, answers) if answers is not None and len(members) > 2 else None
        told = heard(
            self._channel, room, event, members, self.me, first=first, answered=answered.sender if answered else None
        )
        if told is not None:
            await inlet.take(told)

    async def _taken_back(self, room: str, id: str, event: Event, inlet: Inlet) -> None:
        """The redacted event does not say any more in which thread it was."""
        was = self._known.get(id)
        if was is None or was.sender != self.me:
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

    async def _cannot_read(self, room: str, sender: str) -> None:
        """Say so once, where we may be spoken to."""
        here = self._settings.allow_groups
        if room in self.told or sender == self.me:
            return
        if not (self._may_speak_alone(sender) or room in here or EVERYBODY in here):
            return
        try:
            await self._api.say(room, f"encrypted {room}", CANNOT_READ)
        except (ChatClosed, PostRefused) as exc:
            log.warning("encrypted room", channel=self._channel, room=self._log_id(room), reason=exc.reason)
        except NotDelivered as exc:
            raise NotAccepted(exc.reason) from exc
        self.told = (*self.told, room)[-TOLD:]

    async def _who(self, room: str) -> Mapping[str, str]:
        if room not in self._members:
            if len(self._members) >= REMEMBERED:
                self._members.clear()
            self._members[room] = await self._api.members(room)
        return self._members[room]

    async def _look(self, room: str, id: str) -> Known | None:
        if id not in self._known:
            found = await self._api.event(room, id)
            if found is None:
                return None
            self._remember(id, found)
        return self._known[id]

    def _remember(self, id: str, event: Known) -> None:
        self._known[id] = event
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def _log_id(self, room: str) -> str:
        return log_id(session_id(self._channel, room))


class Point(msgspec.Struct, frozen=True):
    """How far we have heard, as it is kept: of which user, up to which batch."""

    of: str
    since: str
    told: tuple[str, ...] = ()


def read_point(saved: bytes) -> Point | None:
    """None for what is none."""
    try:
        return msgspec.json.decode(saved, type=Point)
    except msgspec.DecodeError:
        return None
