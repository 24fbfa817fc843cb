"""E-mail: one mailbox, watched by one replica; every replica sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from gateway.channels.email.compose import compose_mail, message_id
from gateway.channels.email.listener import MailboxListener
from gateway.channels.email.render import render_reply
from gateway.channels.email.settings import EmailSettings, read_email
from gateway.channels.email.smtp import SmtpSender
from gateway.channels.unsupported import cannot_edit, cannot_find, cannot_hook, cannot_type
from gateway.platform.protocol import (
    Abilities,
    NotAccepted,
    NotDelivered,
    Post,
    PostRefused,
    Rate,
    RemoteFile,
    RunMode,
)
from gateway.platform.registry import BuiltPlatform, Cursor, PlatformContext

LATE_S: Final = 3_600.0
GIVE_UP_S: Final = 3 * 86_400.0
"""Mail servers retry for days."""

PIECE_BYTES: Final = 256 * 1024


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

    def __init__(self, name: str, settings: EmailSettings, cursor: Cursor) -> None:
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
        self._smtp = SmtpSender(settings)
        self._listener = MailboxListener(name, settings, cursor)
        self.listen, self.close = self._listener.run, self._smtp.close

    async def open(self) -> None:
        try:
            await self._smtp.check()
        except NotDelivered as exc:
            raise NotAccepted(exc.reason) from exc

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """Yield an attachment; it is available only while its mail is being accepted."""
        data = self._listener.files.get(file.handle)
        if data is None:
            raise PostRefused("the mail of this file is not at hand any more")
        for start in range(0, len(data), PIECE_BYTES):
            yield data[start : start + PIECE_BYTES]

    async def send(self, post: Post) -> str:
        """Send a mail. Mail servers that check the Message-ID merge the copies of a retry."""
        me = self._settings.me
        mail = await asyncio.to_thread(compose_mail, post, address=me, name=self._settings.from_name)
        await self._smtp.send(post.target.chat_id, mail)
        return message_id(post, me)
