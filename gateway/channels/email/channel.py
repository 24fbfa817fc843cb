"""E-mail: one mailbox, watched by one replica; every replica sends."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.channels.email import body
from gateway.channels.email.compose import compose_mail, message_id
from gateway.channels.email.mailbox import Mailbox, MailWithheld
from gateway.channels.email.parse import EmailIdentity, parse_mail
from gateway.channels.email.render import render_reply
from gateway.channels.email.settings import EmailSettings, read_email
from gateway.channels.email.smtp import SmtpSender
from gateway.channels.email.wire import Mail, UnreadableMail, read_header
from gateway.channels.unsupported import cannot_edit, cannot_find, cannot_hook, cannot_type
from gateway.platform.access import EVERYBODY
from gateway.platform.protocol import (
    Abilities,
    Inlet,
    NotAccepted,
    NotDelivered,
    PlatformMessage,
    Post,
    PostRefused,
    Rate,
    RemoteFile,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, Cursor, PlatformContext
from shared.clock import SYSTEM_CLOCK
from shared.confinement.parser_process import ParserFailed, ParserProcess
from shared.log import logger
from shared.metrics import MESSAGES_REFUSED
from shared.tasks import cancel_all, close_all

LATE_S: Final = 3_600.0
GIVE_UP_S: Final = 3 * 86_400.0
"""Mail servers retry for days."""

PIECE_BYTES: Final = 256 * 1024

MB: Final = 1024 * 1024
BEGINNING: Final = 256 * 1024
"""Bytes read of a mail that is too large."""

READ_CPU_S: Final = 10.0
READ_WALL_S: Final = 30.0
"""Limits for decoding one mail. One that takes longer is not read, and those after it are."""

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


def make(given: PlatformContext) -> BuiltPlatform:
    """Build the platform from its settings. Raises SettingsError."""
    settings = read_email(given.name, given.table)
    return BuiltPlatform(EmailChannel(given.name, settings, given.cursor), settings)


class EmailChannel:
    """A mail address that people write to."""

    render = staticmethod(render_reply)
    edit = staticmethod(cannot_edit)
    find = staticmethod(cannot_find)  # the Message-ID is a key
    typing = staticmethod(cannot_type)
    hook = staticmethod(cannot_hook)

    def __init__(self, name: str, settings: EmailSettings, cursor: Cursor, parser: ParserProcess | None = None) -> None:
        self.name = name
        self.run_mode: RunMode = settings.run or "exclusive"
        self.abilities = Abilities(
            run_modes=("exclusive",),
            resend_guard="key",
            media=True,
            threads=True,
            rates=(Rate("bot", settings.per_s, settings.burst),),
            late_after_s=LATE_S,
            give_up_after_s=GIVE_UP_S,
        )
        self._settings = settings
        self._cursor = cursor
        self._smtp = SmtpSender(settings)
        self._parser = parser or ParserProcess(
            f"{body.__name__}:{body.read_content.__name__}",
            cpu_s=READ_CPU_S,
            wall_s=READ_WALL_S,
            memory_bytes=(512 + 12 * settings.mail_mb) * MB,
            result_bytes=(4 + settings.mail_mb) * MB,
        )
        self._us = EmailIdentity(settings.me, settings.authserv_id)
        self._failures: dict[tuple[int, int], int] = {}
        self._files: dict[str, bytes] = {}
        """The attachments of the mail being accepted, by handle."""

        self._unsaved_start: MailboxCursor | None = None
        """The starting point, until it is saved."""

    async def close(self) -> None:
        await self._smtp.close()

    async def open(self) -> None:
        try:
            await self._smtp.check()
        except NotDelivered as exc:
            raise NotAccepted(exc.reason) from exc

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield an attachment; it is available only while its mail is being accepted."""
        data = self._files.get(file.handle)
        if data is None:
            raise PostRefused("the mail of this file is not at hand any more")
        for start in range(0, len(data), PIECE_BYTES):
            yield data[start : start + PIECE_BYTES]

    async def send(self, post: Post) -> str:
        """Send a mail. Mail servers that check the Message-ID merge the copies of a retry."""
        me = self._settings.me
        name = self._settings.from_name
        mail = await asyncio.to_thread(compose_mail, post, address=me, name=name)
        await self._smtp.send(post.target.chat_id, mail)
        return message_id(post, me)

    async def listen(self, inlet: Inlet, until: asyncio.Event) -> None:
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
            await close_all(partial(cancel_all, [opening, ending]), self._parser.close)

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
                point = replace(point, uid=uid)
                await self._save(point)
            await box.run(box.wait_for_mail)

    async def _start_point(self, box: Mailbox) -> tuple[MailboxCursor, list[int]]:
        """Return where to resume, and which mails to read before. A bot without a cursor answers no
        older mails. If the mailbox was recreated its numbers mean other mails: then unseen ones are
        read, and those we know are recognised by Message-ID."""
        settings = self._settings
        now_ms = SYSTEM_CLOCK.now_ms()
        of = f"{settings.user}@{settings.imap_host}/{settings.folder}"
        saved = decode_cursor(self._cursor.read()) or self._unsaved_start
        here = MailboxCursor(of, box.validity, box.next_uid - 1, now_ms)
        if saved is None or saved.of != of:
            self._unsaved_start = here
            return here, []
        if saved.validity == box.validity:
            return saved, []
        log.warning("mailbox was recreated", channel=self.name)
        unseen = await box.run(partial(box.unseen_uids, max(saved.began_ms, now_ms - MONTH_MS)))
        here = replace(here, began_ms=saved.began_ms)
        return here, [uid for uid in unseen if uid < box.next_uid]

    async def _accept_mail(self, box: Mailbox, uid: int, inlet: Inlet) -> None:
        """Accept a mail, then mark it as read. A mail that we ignore stays unread."""
        try:
            found = await self._read_mail(box, uid)
        except UnreadableMail as exc:
            self._count_refusal("bad_mail", why=str(exc))
            return
        except Exception as exc:
            if self._should_skip(box, uid, exc):
                return
            raise
        if found is not None:
            message, mail = found
            files = zip(message.files, mail.files, strict=True)
            self._files = {file.handle: found.data for file, found in files}
            try:
                verdict = await inlet.take(message)
            finally:
                self._files = {}
            if verdict not in ("ignored", "not allowed"):
                await box.run(partial(box.mark_seen, uid))

    async def _read_mail(self, box: Mailbox, uid: int) -> tuple[PlatformMessage, Mail] | None:
        """Return a mail; None if it is not for the inlet. The sender is judged by the header: of a
        mail of someone who may not write, or that is ignored, nothing else is fetched."""
        header = await box.run(partial(box.fetch_header, uid))
        if header is None:
            return None
        mail = await box.run(partial(read_header, header.data))
        message = self._message_of(mail, "")
        if not self._is_for_inlet(message):
            return None
        if message.own or message.from_bot or not message.message.sender_id:
            return message, mail
        whole = header.mail_bytes <= self._settings.mail_mb * MB
        data = await box.run(partial(box.fetch_mail, uid, None if whole else BEGINNING))
        if data is None:
            return None
        try:
            content = body.decode_content(await self._parser.parse(data))
        except (ParserFailed, msgspec.DecodeError) as exc:
            raise UnreadableMail(str(exc)) from exc
        files = content.files if whole else body.cut_last(content.files)
        mail = replace(mail, text=content.text, files=files)
        return await box.run(partial(self._message_of, mail, hashlib.sha256(data).hexdigest())), mail

    def _message_of(self, mail: Mail, digest: str) -> PlatformMessage:
        return parse_mail(self.name, mail, digest, self._us, now_ms=SYSTEM_CLOCK.now_ms())

    def _is_for_inlet(self, message: PlatformMessage) -> bool:
        """Return whether to ask the inlet. Strangers get no reply here unless they may ask for a
        code: it would confirm the address to spammers, and go to whoever the sender claims to be.
        """
        rules = self._settings
        sender = message.message.sender_id
        if message.own or message.from_bot:
            return True
        if not sender:
            log.warning("sender not believed", channel=self.name, sender=message.message.chat_id)
            return True
        allowed = {*rules.allow_from, *rules.admins}
        if rules.pairing or sender in allowed or EVERYBODY in rules.allow_from:
            return True
        self._count_refusal("sender_not_allowed", sender=sender)
        return False

    def _count_refusal(self, reason: str, **more: str) -> None:
        MESSAGES_REFUSED.labels(self.name, reason).inc()
        log.info("mail not read", channel=self.name, reason=reason, **more)

    def _should_skip(self, box: Mailbox, uid: int, exc: Exception) -> bool:
        """Return whether to give up on a mail that cannot be read, so that those after it go on."""
        if isinstance(exc, NotDelivered) and not isinstance(exc, MailWithheld):
            return False  # the connection, and no fault of the mail
        which = (box.validity, uid)
        self._failures[which] = self._failures.get(which, 0) + 1
        if self._failures[which] < MAX_TRIES:
            return False
        self._failures.clear()
        log.error("mail passed over", channel=self.name, uid=uid, error=type(exc).__name__)
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
