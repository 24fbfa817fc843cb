"""Events of Discord's gateway in the forms that its documentation shows, for tests."""

from __future__ import annotations

from typing import Any, Final

from gateway.channels.discord.parse import ConversationInfo, parse_event
from gateway.channels.discord.wire import DiscordIdentity, Interaction, Message, read_event
from gateway.platform.protocol import PlatformMessage
from tests.fakes.discord import BOT

ME: Final = DiscordIdentity(str(BOT["id"]), str(BOT["username"]))
MASON: Final = {
    "id": "53908099506183680",
    "username": "mason",
    "discriminator": "0",
    "global_name": "Mason Lee",
    "avatar": "a_bab14f271d565501444b2ca3be944b25",
    "public_flags": 131141,
}
ALONE: Final = "345678901234567890"
CHANNEL: Final = "290926798999357250"
SERVER: Final = "290926798626357260"
ON_SERVER: Final[dict[str, Any]] = {
    "channel_id": CHANNEL,
    "guild_id": SERVER,
    "member": {"roles": [], "nick": "Mace", "mute": False},
}
WRITTEN_MS: Final = 1_462_015_105_796
MESSAGE: Final[dict[str, Any]] = {
    "id": "175928847299117063",
    "type": 0,
    "channel_id": ALONE,
    "channel_type": 1,
    "author": MASON,
    "content": "Supa Hot",
    "timestamp": "2016-04-30T11:18:25.796000+00:00",
    "edited_timestamp": None,
    "tts": False,
    "mention_everyone": False,
    "mentions": [],
    "mention_roles": [],
    "attachments": [],
    "embeds": [],
    "components": [],
    "pinned": False,
    "flags": 0,
    "nonce": "175928847299117062",
}


def event(kind: str, data: Any, room: ConversationInfo | None = None) -> PlatformMessage | None:
    """An event, as it is heard."""
    found = read_event(kind, data)
    assert found is None or isinstance(found, Message | Interaction)
    return None if found is None else parse_event("discord", found, room or ConversationInfo(str(found.channel_id)), ME)


def gateway_event(kind: str = "MESSAGE_CREATE", **changes: Any) -> PlatformMessage | None:
    """A message with something else in it."""
    return event(kind, MESSAGE | changes)


def pressed(custom_id: str, *, label: str = "Yes", **changes: Any) -> PlatformMessage | None:
    """A press of a button."""
    button = {"type": 2, "style": 2, "id": 3, "label": label, "custom_id": custom_id}
    row = {"type": 1, "id": 1, "components": [button]}
    press = {
        "id": "846462639134605312",
        "application_id": str(BOT["id"]),
        "type": 3,
        "token": "aW50ZXJhY3Rpb24=",
        "version": 1,
        "channel_id": ALONE,
        "channel": {"id": ALONE, "type": 1},
        "user": MASON,
        "message": MESSAGE | {"author": BOT, "components": [row]},
        "data": {"component_type": 2, "custom_id": custom_id, "id": 3},
        "locale": "en-US",
        "entitlements": [],
        "context": 1,
    }
    return event("INTERACTION_CREATE", press | changes)


def sure(found: PlatformMessage | None) -> PlatformMessage:
    """Something was said."""
    assert found is not None
    return found
