"""Settings of `[channels.telegram]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from gateway.platform.access import AccessSettings, IdForm, read_channel
from shared.settings import Secret

IDS: Final = IdForm(
    person=r"[1-9]\d*",
    group=r"-\d+",
    words="ids are numbers, those of groups begin with -; the log names who was not let in",
)

_TOKEN: Final = re.compile(r"\d+:[\w-]{20,}")
_WEBHOOK_SECRET: Final = re.compile(r"[\w-]{16,256}")


class TelegramSettings(AccessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`token` comes from @BotFather. With `run = "webhook"` Telegram calls `public_url` (https,
    leading to `/hooks/telegram` of the gateways) with `webhook_secret`, a word of your own. `api`
    is another Bot API server. A long poll is held open for `poll_s`; `timeout_s` limits any other
    call."""

    token: Secret
    webhook_secret: Secret | None = None
    public_url: str = ""
    api: str = "https://api.telegram.org"
    poll_s: Annotated[float, Meta(ge=1, le=50)] = 25.0
    timeout_s: Annotated[float, Meta(ge=1, le=120)] = 20.0


def read_telegram(name: str, table: Mapping[str, Any]) -> TelegramSettings:
    """Read the settings table. Raises SettingsError, one line per problem."""
    return read_channel(TelegramSettings, name, table, ids=IDS, find_problems=_find_problems)


def _find_problems(key: str, settings: TelegramSettings) -> Iterator[str]:
    if not _TOKEN.fullmatch(settings.token.reveal()):
        yield f"{key}.token is not a bot token; copy it from @BotFather, it looks like 123456789:AAbb…"
    if not settings.api.startswith(("https://", "http://")):
        yield f"{key}.api is {settings.api!r}; write an address that begins with https://"
    if settings.run != "webhook":
        return
    if settings.webhook_secret is None:
        yield f"{key}.webhook_secret is missing; the webhook believes only who knows it"
    elif not _WEBHOOK_SECRET.fullmatch(settings.webhook_secret.reveal()):
        yield f"{key}.webhook_secret must have 16 to 256 letters, digits, _ and -"
    if settings.public_url and not settings.public_url.startswith("https://"):
        yield f"{key}.public_url is {settings.public_url!r}; Telegram calls only https:// addresses"
