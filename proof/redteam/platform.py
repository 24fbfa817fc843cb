"""Messages of a chat platform, taken by the real way in: a group, forwards, mails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final, cast

from msgspec.structs import replace

from gateway.channels.email.parse import EmailIdentity, parse_mail
from gateway.channels.email.wire import Mail
from gateway.platform.access import AccessSettings
from gateway.platform.inlet import PlatformInlet
from gateway.platform.protocol import Platform, PlatformMessage, RemoteFile
from proof.redteam.stage import Chat, Stage
from shared.messages.inbound import InboundMessage

CHANNEL: Final = "platform"
STRANGER: Final = "mallory"


class Door:
    """The way in of a platform: everybody may write in its groups, and the settings name one person."""

    name = CHANNEL

    def __init__(self, stage: Stage, person: str) -> None:
        rules = AccessSettings(allow_from=(person,), allow_groups=("*",), groups="open")
        platform, settings = cast(Platform, self), stage.settings
        self._inlet = PlatformInlet(platform, rules, stage.ingress, self, stage.client, settings)

    async def take(
        self, chat: Chat, text: str, *, sender: str, group: bool = False, forwarded: bool = False, mail: bool = False
    ) -> str:
        """Take a message, and return the text with which its turn ended; "" for a command."""
        message = chat.message(text, sender_id=sender)
        event = PlatformMessage(message=message, group=group, addressed=True, forwarded=forwarded, name=sender)
        if mail:
            event = _mail_of(message)
        verdict = await self._inlet.take(event)
        assert verdict in ("taken", "command"), verdict
        return await chat.ended(message.id) if verdict == "taken" else ""

    async def save_notes(self, session: str, notes: Mapping[str, str]) -> None:
        """Keep nothing."""

    async def fetch(self, file: RemoteFile) -> AsyncIterator[bytes]:
        """There are no files."""
        raise AssertionError(file)
        yield b""


def _mail_of(message: InboundMessage) -> PlatformMessage:
    """Return a message with the text and the mark that the parser of mails gives a mail."""
    mail = Mail(headers={"from": (f"{message.sender_id}@example.org",)}, text=message.content)
    found = parse_mail(message.channel, mail, "digest", EmailIdentity("bot@example.org"), now_ms=0).message
    return PlatformMessage(message=replace(message, content=found.content, sources=found.sources))
