"""Watches the mailbox: takes what is new, mail by mail, and remembers how far that was."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec

from gateway.channels.email.mailbox import Letter, Mailbox, NotGiven, Opened
from gateway.channels.email.own_thread import OwnThread
from gateway.channels.email.parse import Ourselves, heard
from gateway.channels.email.settings import EmailSettings
from gateway.channels.email.wire import Mail, Unreadable, read_mail
from gateway.platform.access import EVERYBODY
from gateway.platform.protocol import Inlet, NotDelivered, PlatformMessage
from gateway.platform.registry import Cursor
from shared.clock import SYSTEM_CLOCK, Clock
from shared.log import logger
from shared.metrics import MESSAGES_REFUSED
from shared.tasks import cancel_all

MB: Final = 1024 * 1024
TRIES: Final = 3
"""So often the server may keep back one mail; then those behind it go on."""

MONTH_MS: Final = 30 * 86_400_000

log = logger("email")

T = TypeVar("T")


class Point(msgspec.Struct, frozen=True):
    """How far a mailbox was read, as it is kept: of which mailbox, since when, and up to which
    mail."""

    of: str
    validity: int
    uid: int
    began_ms: int


class Watched(msgspec.Struct, frozen=True):
    """A mailbox that is open, and the thread in which it is asked."""

    box: Mailbox
    thread: OwnThread
    validity: int

    async def ask(self, call: Callable[[], T]) -> T:
        """What a call of the mailbox, or one that takes long, says."""
        return await self.thread.run(call)


class Listener:
    """Takes mails. `files`: those of the mail that is being taken, by their handles."""

    def __init__(self, channel: str, settings: EmailSettings, cursor: Cursor, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.files: dict[str, bytes] = {}
        self._channel = channel
        self._settings = settings
        self._cursor = cursor
        self._clock = clock
        self._us = Ourselves(settings.me, settings.authserv_id)
        self._kept_back: dict[tuple[int, int], int] = {}
        self._begun: Point | None = None
        """Where we began, until it is saved."""

    async def run(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Until `until`, or until something is wrong: see `Platform.listen`."""
        box, thread = Mailbox(self._settings), OwnThread("mailbox")
        ending = asyncio.create_task(until.wait())
        ending.add_done_callback(lambda _: box.wake())
        opening = asyncio.create_task(thread.run(box.open))
        last = box.cut
        try:
            await asyncio.wait({opening, ending}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                await self._watch(Watched(box, thread, opening.result().validity), opening.result(), inlet, until)
                last = box.wake
        finally:
            last()
            thread.end(box.close)
            await cancel_all([opening, ending])

    async def _watch(self, watched: Watched, opened: Opened, inlet: Inlet, until: asyncio.Event) -> None:
        point, missed = await self._begin(watched, opened)
        for uid in missed:
            if until.is_set():
                return
            await self._one(watched, uid, inlet)
        await self._save(point)
        while not until.is_set():
            for uid in await watched.ask(partial(watched.box.new, point.uid)):
                if until.is_set():
                    return
                await self._one(watched, uid, inlet)
                point = msgspec.structs.replace(point, uid=uid)
                await self._save(point)
            await watched.ask(watched.box.wait)

    async def _begin(self, watched: Watched, opened: Opened) -> tuple[Point, list[int]]:
        """Where to go on, and what to look at before. A bot that was never here answers nothing of
        before. Where the mailbox was made anew its numbers mean other mails: then what nobody has
        read is looked at, and what we know of it is known by its Message-ID."""
        settings, now_ms = self._settings, self._clock.now_ms()
        of = f"{settings.user}@{settings.imap_host}/{settings.folder}"
        saved = read_point(self._cursor.read()) or self._begun
        here = Point(of, opened.validity, opened.next_uid - 1, now_ms)
        if saved is None or saved.of != of:
            self._begun = here
            return here, []
        if saved.validity == opened.validity:
            return saved, []
        log.warning("mailbox was made anew", channel=self._channel)
        unseen = await watched.ask(partial(watched.box.unseen, max(saved.began_ms, now_ms - MONTH_MS)))
        here = msgspec.structs.replace(here, began_ms=saved.began_ms)
        return here, [uid for uid in unseen if uid < opened.next_uid]

    async def _one(self, watched: Watched, uid: int, inlet: Inlet) -> None:
        """Take a mail, then mark it as read. What is not read by us stays unread."""
        try:
            letter = await watched.ask(partial(watched.box.fetch, uid, self._settings.mail_mb * MB))
            if letter is None:
                return
            mail, told = await watched.ask(partial(self._read, letter))
        except Unreadable as exc:
            self._refuse("bad_mail", why=str(exc))
            return
        except Exception as exc:
            if self._is_kept_back(watched, uid, exc):
                return
            raise
        if told.own or told.from_bot or self._is_heard(told):
            self.files = {file.handle: data.data for file, data in zip(told.files, mail.files, strict=True)}
            try:
                taken = await inlet.take(told)
            finally:
                self.files = {}
            if taken not in ("ignored", "not allowed"):
                await watched.ask(partial(watched.box.read, uid))

    def _read(self, letter: Letter) -> tuple[Mail, PlatformMessage]:
        mail = read_mail(letter.data, whole=letter.whole)
        digest = hashlib.sha256(letter.data).hexdigest()
        return mail, heard(self._channel, mail, digest, self._us, now_ms=self._clock.now_ms())

    def _is_heard(self, told: PlatformMessage) -> bool:
        """Whether the inlet is asked. Strangers get no answer here unless they may ask for a code:
        it would tell those who send to everybody that somebody is there, and go to whoever they say
        they are."""
        rules, sender = self._settings, told.message.sender_id
        if not sender:
            log.warning("sender not believed", channel=self._channel, sender=told.message.chat_id)
            return True
        if rules.pairing or sender in rules.allow_from or sender in rules.admins or EVERYBODY in rules.allow_from:
            return True
        self._refuse("sender_not_allowed", sender=sender)
        return False

    def _refuse(self, reason: str, **more: str) -> None:
        MESSAGES_REFUSED.labels(self._channel, reason).inc()
        log.info("mail not read", channel=self._channel, reason=reason, **more)

    def _is_kept_back(self, watched: Watched, uid: int, exc: Exception) -> bool:
        """Whether a mail that cannot be had, or read, is passed over at last: those behind it
        wait."""
        if isinstance(exc, NotDelivered) and not isinstance(exc, NotGiven):
            return False  # the connection, and no fault of the mail
        which = (watched.validity, uid)
        self._kept_back[which] = self._kept_back.get(which, 0) + 1
        if self._kept_back[which] < TRIES:
            return False
        self._kept_back.clear()
        log.error("mail passed over", channel=self._channel, uid=uid, error=type(exc).__name__)
        return True

    async def _save(self, point: Point) -> None:
        if read_point(self._cursor.read()) != point:
            await self._cursor.save(msgspec.json.encode(point))
        self._begun = None


def read_point(saved: bytes) -> Point | None:
    """None for what is none."""
    try:
        return msgspec.json.decode(saved, type=Point)
    except msgspec.DecodeError:
        return None
