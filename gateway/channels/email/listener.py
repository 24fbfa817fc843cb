"""Watch the mailbox: accept new mails one by one, and save the position."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from typing import Final

import msgspec

from gateway.channels.email.mailbox import Mailbox, MailWithheld, RawMail
from gateway.channels.email.parse import EmailIdentity, parse_mail
from gateway.channels.email.settings import EmailSettings
from gateway.channels.email.wire import Mail, UnreadableMail, read_mail
from gateway.platform.access import EVERYBODY
from gateway.platform.protocol import Inlet, NotDelivered, PlatformMessage
from gateway.platform.registry import Cursor
from shared.clock import SYSTEM_CLOCK, Clock
from shared.log import logger
from shared.metrics import MESSAGES_REFUSED
from shared.tasks import cancel_all

MB: Final = 1024 * 1024
MAX_TRIES: Final = 3
"""A mail that the server withholds this often is skipped, so that those after it go on."""

MONTH_MS: Final = 30 * 86_400_000

log = logger("email")


class MailboxCursor(msgspec.Struct, frozen=True):
    """The position in a mailbox, as saved: which mailbox, since when, up to which mail."""

    of: str
    validity: int
    uid: int
    began_ms: int


class MailboxListener:
    """Reads the mailbox. `files` has the attachments of the mail being accepted, by handle."""

    def __init__(self, channel: str, settings: EmailSettings, cursor: Cursor, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.files: dict[str, bytes] = {}
        self._channel = channel
        self._settings = settings
        self._cursor = cursor
        self._clock = clock
        self._us = EmailIdentity(settings.me, settings.authserv_id)
        self._failures: dict[tuple[int, int], int] = {}
        self._unsaved_start: MailboxCursor | None = None
        """The starting point, until it is saved."""

    async def run(self, inlet: Inlet, until: asyncio.Event) -> None:
        """Watch until `until` is set, or until something fails: see `Platform.listen`."""
        box = Mailbox(self._settings)
        ending = asyncio.create_task(until.wait())
        ending.add_done_callback(lambda _: box.wake())
        opening = asyncio.create_task(box.run(box.open))
        last = box.abort
        try:
            await asyncio.wait({opening, ending}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                opening.result()
                await self._watch(box, inlet, until)
                last = box.wake
        finally:
            last()
            box.end()
            await cancel_all([opening, ending])

    async def _watch(self, box: Mailbox, inlet: Inlet, until: asyncio.Event) -> None:
        point, missed = await self._start_point(box)
        for uid in missed:
            if until.is_set():
                return
            await self._accept_mail(box, uid, inlet)
        # The mails of a recreated mailbox come first, so a crash among them repeats them all.
        await self._save(point)
        while not until.is_set():
            for uid in await box.run(partial(box.new_uids, point.uid)):
                if until.is_set():
                    return
                await self._accept_mail(box, uid, inlet)
                point = msgspec.structs.replace(point, uid=uid)
                await self._save(point)
            await box.run(box.wait_for_mail)

    async def _start_point(self, box: Mailbox) -> tuple[MailboxCursor, list[int]]:
        """Return where to resume, and which mails to read before. A bot without a cursor answers no
        older mails. If the mailbox was recreated its numbers mean other mails: then unseen ones are
        read, and those we know are recognised by Message-ID."""
        settings, now_ms = self._settings, self._clock.now_ms()
        of = f"{settings.user}@{settings.imap_host}/{settings.folder}"
        saved = decode_cursor(self._cursor.read()) or self._unsaved_start
        here = MailboxCursor(of, box.validity, box.next_uid - 1, now_ms)
        if saved is None or saved.of != of:
            self._unsaved_start = here
            return here, []
        if saved.validity == box.validity:
            return saved, []
        log.warning("mailbox was recreated", channel=self._channel)
        unseen = await box.run(partial(box.unseen_uids, max(saved.began_ms, now_ms - MONTH_MS)))
        here = msgspec.structs.replace(here, began_ms=saved.began_ms)
        return here, [uid for uid in unseen if uid < box.next_uid]

    async def _accept_mail(self, box: Mailbox, uid: int, inlet: Inlet) -> None:
        """Accept a mail, then mark it as read. A mail that we ignore stays unread."""
        try:
            letter = await box.run(partial(box.fetch_mail, uid, self._settings.mail_mb * MB))
            if letter is None:
                return
            mail, message = await box.run(partial(self._parse_mail, letter))
        except UnreadableMail as exc:
            self._count_refusal("bad_mail", why=str(exc))
            return
        except Exception as exc:
            if self._should_skip(box, uid, exc):
                return
            raise
        if message.own or message.from_bot or self._is_for_inlet(message):
            self.files = {file.handle: data.data for file, data in zip(message.files, mail.files, strict=True)}
            try:
                verdict = await inlet.take(message)
            finally:
                self.files = {}
            if verdict not in ("ignored", "not allowed"):
                await box.run(partial(box.mark_seen, uid))

    def _parse_mail(self, letter: RawMail) -> tuple[Mail, PlatformMessage]:
        mail = read_mail(letter.data, whole=letter.whole)
        digest = hashlib.sha256(letter.data).hexdigest()
        return mail, parse_mail(self._channel, mail, digest, self._us, now_ms=self._clock.now_ms())

    def _is_for_inlet(self, message: PlatformMessage) -> bool:
        """Return whether to ask the inlet. Strangers get no reply here unless they may ask for a
        code: it would confirm the address to spammers, and go to whoever the sender claims to be.
        """
        rules, sender = self._settings, message.message.sender_id
        if not sender:
            log.warning("sender not believed", channel=self._channel, sender=message.message.chat_id)
            return True
        if rules.pairing or sender in rules.allow_from or sender in rules.admins or EVERYBODY in rules.allow_from:
            return True
        self._count_refusal("sender_not_allowed", sender=sender)
        return False

    def _count_refusal(self, reason: str, **more: str) -> None:
        MESSAGES_REFUSED.labels(self._channel, reason).inc()
        log.info("mail not read", channel=self._channel, reason=reason, **more)

    def _should_skip(self, box: Mailbox, uid: int, exc: Exception) -> bool:
        """Return whether to give up on a mail that cannot be read, so that those after it go on."""
        if isinstance(exc, NotDelivered) and not isinstance(exc, MailWithheld):
            return False  # the connection, and no fault of the mail
        which = (box.validity, uid)
        self._failures[which] = self._failures.get(which, 0) + 1
        if self._failures[which] < MAX_TRIES:
            return False
        self._failures.clear()
        log.error("mail passed over", channel=self._channel, uid=uid, error=type(exc).__name__)
        return True

    async def _save(self, point: MailboxCursor) -> None:
        if decode_cursor(self._cursor.read()) != point:
            await self._cursor.save(msgspec.json.encode(point))
        self._unsaved_start = None


def decode_cursor(saved: bytes) -> MailboxCursor | None:
    """Decode a cursor; None if it is not one."""
    try:
        return msgspec.json.decode(saved, type=MailboxCursor)
    except msgspec.DecodeError:
        return None
