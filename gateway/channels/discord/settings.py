"""Settings of `[channels.discord]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from msgspec import Meta

from gateway.platform.access import AccessSettings, IdForm, read_channel
from shared.settings import Secret

IDS: Final = IdForm(
    person=r"\d{15,20}",
    group=r"\d{15,20}",
    words="ids are long numbers: switch on Developer Mode in Discord, then right-click and choose Copy ID",
)

_TOKEN: Final = re.compile(r"[\w-]{15,}\.[\w-]{4,}\.[\w-]{20,}", re.ASCII)


class DiscordSettings(AccessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`token` is the bot's, from Discord's Developer Portal. Without `message_content` the bot
    receives in groups only what mentions it or replies to it, and needs no privileged intent.
    `shards` is the number of connections that share the bot's servers; 0 = as many as Discord
    recommends. After a gap that Discord's replay does not cover, messages of known chats are read
    that are at most `history_s` seconds old; 0 = none. `api` is the address of the API,
    `files_from` are the addresses from which people's files are fetched. `timeout_s` limits a call.
    """

    token: Secret
    message_content: bool = True
    shards: Annotated[int, Meta(ge=0, le=1000)] = 0
    history_s: Annotated[float, Meta(ge=0, le=604_800)] = 86_400.0
    api: str = "https://discord.com/api/v10"
    files_from: tuple[str, ...] = ("https://cdn.discordapp.com", "https://media.discordapp.net")
    timeout_s: Annotated[float, Meta(ge=1, le=120)] = 20.0


def read_discord(name: str, table: Mapping[str, Any]) -> DiscordSettings:
    """Read the settings table. Raises SettingsError, one line per problem."""
    return read_channel(DiscordSettings, name, table, ids=IDS, find_problems=_find_problems)


def _find_problems(key: str, settings: DiscordSettings) -> Iterator[str]:
    if not _TOKEN.fullmatch(settings.token.reveal()):
        yield (
            f"{key}.token is not a bot token; copy it from the page Bot of the Developer Portal: three parts with dots"
        )
    addresses = [("api", settings.api), *(("files_from", one) for one in settings.files_from)]
    for where, address in addresses:
        if urlsplit(address).scheme not in ("https", "http") or not urlsplit(address).netloc:
            yield f"{key}.{where} has {address!r}; write an address that begins with https://"
    if settings.groups == "open" and not settings.message_content:
        yield f"{key}.groups is 'open', which needs {key}.message_content; set it to true"
