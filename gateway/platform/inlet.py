"""The way in of a platform's channel: access, edited forms, files, notes, then the message sink."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from gateway.ingress.ingest import Ingress
from gateway.platform.access import AccessSettings, is_named, judge, startup_warnings
from gateway.platform.protocol import GROUP_NOTE, InletVerdict, Platform, PlatformMessage
from gateway.platform.received_files import ReceivedFiles
from gateway.platform.strangers import NAME_CHARS, StrangerReplies, one_line
from shared.clock import SYSTEM_CLOCK, Clock
from shared.errors import BadInput, Refused
from shared.ids import log_id
from shared.log import logger
from shared.media.store import MediaStore
from shared.messages.inbound import ADMIN, STRANGER, InboundMessage
from shared.messages.outbound import OutboundMessage
from shared.messages.sources import Sources, merge_sources, source_label
from shared.metrics import MESSAGES_ACCEPTED, MESSAGES_DUPLICATE, MESSAGES_IGNORED, MESSAGES_REFUSED
from shared.settings import Settings
from shared.store.access.pairing import Pairings
from shared.store.client.redis_client import RedisClient
from shared.store.turns.albums import Albums
from shared.store.turns.inbox import ALBUM, OVERLOADED
from shared.store.turns.known_messages import SeenMessages

decode_part: Final = msgspec.msgpack.Decoder(PlatformMessage).decode
encode: Final = msgspec.msgpack.Encoder().encode
NOTED: Final = 10_000  # chats whose notes a process caches; past it the cache is emptied

log = logger("inlet")


class ChatNotes(Protocol):
    """Keeps `PlatformMessage.notes` for `PostTarget.notes` (shared.store.delivery.deliveries)."""

    async def save_notes(self, session: str, notes: Mapping[str, str]) -> None:
        """Replace the notes of a session. Raises RedisAway."""


class PlatformInlet:
    """The Inlet of one channel in one process. Messages of a chat are taken one after the other."""

    def __init__(
        self,
        platform: Platform,
        rules: AccessSettings,
        sink: Ingress,
        notes: ChatNotes,
        client: RedisClient,
        settings: Settings,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._channel = platform.name
        self._rules = rules
        self._sink = sink
        self._notes = notes
        self._strangers = StrangerReplies(self._channel, Pairings(client), clock)
        self._seen = SeenMessages(client)
        self._albums = Albums(client)
        media = settings.media
        self._files = ReceivedFiles(platform, MediaStore(media), per_message=media.per_message)
        self._clock = clock
        self._noted: dict[str, Mapping[str, str]] = {}
        self._chats = WeakValueDictionary[str, asyncio.Lock]()
        for warning in startup_warnings(self._channel, rules):
            log.warning("channel open to everyone" if "*" in warning else "channel open to no one", why=warning)

    async def take(self, event: PlatformMessage) -> InletVerdict:
        """See `Inlet.take`. Raises ValueError for a message of another channel."""
        message = event.message
        if message.channel != self._channel:
            raise ValueError(f"the channel {self._channel!r} brought a message of {message.channel!r}")
        earlier: list[PlatformMessage] = []
        verdict = judge(self._rules, event)
        if verdict.reason == "not_addressed" and event.album and await self._is_album_ours(event):
            event = replace(event, addressed=True)
            verdict = judge(self._rules, event)
        if verdict.kind == "ignored":
            return self._count_ignored(verdict.reason)
        try:
            session = message.session
        except BadInput as exc:
            return self._count_refused(exc.code, "")
        # Only for senders who need it: the look-up is a call of Redis.
        if verdict.kind == "unknown" and await self._strangers.is_let_in(message.sender_id):
            verdict = judge(self._rules, event, paired=True)
        if verdict.kind != "allowed":
            if not await self._strangers.turn_away(event, verdict):
                self._count_refused(verdict.reason, session)
                return "not allowed"
            verdict = judge(self._rules, event, paired=True)
        # Before its file is fetched, which may take longer than an album waits for its next part.
        if event.album and event.replaces is None:
            held = await self._albums.expect(message, event.album)
            if held is None:
                return self._count_duplicate()
            earlier = list(_held_parts(held, message.sender_id))
        # In order: an edit must not overtake the message that it replaces.
        async with self._chats.setdefault(session, asyncio.Lock()):
            for part in earlier:
                await self._ingest(part, session)
            return await self._ingest(event, session)

    async def on_delete(self, deleted: InboundMessage) -> None:
        """See `Inlet.on_delete`."""
        id = await self._seen.newest_form(deleted)
        await self._sink.withdraw(self._channel, deleted.chat_id, id, thread=deleted.thread)

    async def _is_album_ours(self, event: PlatformMessage) -> bool:
        """Return whether a part of its album has addressed the bot: only the caption does. If none
        has, hold the part, provided that its sender may talk to the bot here."""
        addressed = replace(event, addressed=True)
        if judge(self._rules, addressed).kind != "allowed":
            return False
        with contextlib.suppress(BadInput):
            return not await self._albums.hold(event.message, event.album, encode(addressed))
        return False

    async def _ingest(self, event: PlatformMessage, session: str) -> InletVerdict:
        message = event.message
        if not message.content.strip() and not event.files:
            return self._count_ignored("empty")
        if event.replaces is not None and (late := await self._replace_earlier(event.replaces, message)):
            return self._count_ignored(late)
        if event.files and await self._seen.knows(message):
            return self._count_duplicate()  # before the files: fetching them again costs minutes
        media, refused = await self._files.fetch_all(session, event.files) if event.files else ([], [])
        notes = {**event.notes, GROUP_NOTE: "1"} if event.group else dict(event.notes)
        if notes and self._noted.get(session) != notes:
            await self._notes.save_notes(session, notes)
            if len(self._noted) >= NOTED:
                self._noted.clear()
            self._noted[session] = notes
        lines = [f"[A file was not taken, and the person was told so: {line}]" for line in refused]
        content = "\n\n".join(filter(None, [message.content, *lines]))
        try:
            accepted = await self._sink.ingest(
                replace(
                    message,
                    content=content,
                    media=tuple(media),
                    metadata=self._metadata(event),
                    sources=merge_sources(self._sources(event), map(_refused_label, refused)),
                ),
                show=self._refusal_notice(refused) if refused else None,
                notice=True,
            )
        except Refused as exc:
            self._count_refused(exc.code, session)
            if exc.code == OVERLOADED:
                raise
            return "refused"
        except BadInput as exc:
            return self._count_refused(exc.code, session)
        if accepted.rejected:
            return "refused"
        if accepted.duplicate:
            return self._count_duplicate()
        MESSAGES_ACCEPTED.labels(self._channel).inc()
        return "taken" if accepted.turn else "command"

    async def _replace_earlier(self, replaced: str, message: InboundMessage) -> str:
        """Withdraw the message that this one replaces; return why it cannot be, '' if it was."""
        before = await self._seen.new_form(message, replaced)
        chat = message.chat_id
        thread = message.thread
        done = await self._sink.withdraw(self._channel, chat, before, thread=thread)
        return {"withdrawn": "", "unknown": "edited_unknown"}.get(done, "edited_late")

    def _metadata(self, event: PlatformMessage) -> dict[str, str]:
        """Return the metadata, all of it Shoal's own: what the platform's code put there is
        dropped, so that no channel can make its sender an admin."""
        metadata = {"sender_name": name} if (name := one_line(event.name, NAME_CHARS)) else {}
        if event.group:
            metadata["group"] = "1"
        elif event.message.sender_id in self._rules.admins:
            metadata[ADMIN] = "1"
        if event.album:
            metadata[ALBUM] = event.album
        if not is_named(self._rules, event):
            metadata[STRANGER] = "1"
        return metadata

    def _sources(self, event: PlatformMessage) -> Sources:
        """Return the sources that mark the message: the channel's own, a forward, a stranger."""
        own = event.message.sources
        who = event.name or event.message.sender_id
        forward = ("a forwarded message",) if event.forwarded else ()
        stranger = () if is_named(self._rules, event) else (source_label(f"group member {who}"),)
        return merge_sources(own, forward, stranger)

    def _refusal_notice(self, refused: Sequence[str]) -> OutboundMessage:
        text = "\n".join(["I could not take:", *(f"- {line}" for line in refused)])
        return OutboundMessage(content=text, turn=0, kind="notice", at=self._clock.now_ms())

    def _count_ignored(self, reason: str) -> InletVerdict:
        MESSAGES_IGNORED.labels(self._channel, reason).inc()
        return "ignored"

    def _count_refused(self, reason: str, session: str) -> InletVerdict:
        MESSAGES_REFUSED.labels(self._channel, reason).inc()
        shown = log_id(session) if session else None
        log.debug("message refused", channel=self._channel, reason=reason, session=shown)
        return "refused"

    def _count_duplicate(self) -> InletVerdict:
        MESSAGES_DUPLICATE.labels(self._channel).inc()
        return "duplicate"


def _held_parts(records: Sequence[bytes], sender_id: str) -> Iterator[PlatformMessage]:
    """Yield the parts of an album that its sender wrote; what another release holds is left out."""
    for record in records:
        with contextlib.suppress(msgspec.DecodeError):
            part = decode_part(record)
            if part.message.sender_id == sender_id:
                yield part


def _refused_label(line: str) -> str:
    """Return the source that the line about a refused file is of: its name is read all the same."""
    return source_label(f"file {line.partition(': ')[0]}")
