"""Settings of `[channels.whatsapp]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from gateway.platform.access import AccessSettings, IdForm, is_safe_address, read_channel
from shared.settings import Secret

IDS: Final = IdForm(
    person=r"[1-9][0-9]{6,19}",
    group=r"(?!)",
    words="people are named by their number with its country, digits alone, such as 491701234567; the log names who "
    "was not let in; there are no groups",
)

_NUMBER_ID: Final = re.compile(r"[0-9]{5,25}")
_TOKEN: Final = re.compile(r"[\x21-\x7e]{20,}")
_APP_SECRET: Final = re.compile(r"[0-9a-f]{32}")


class WhatsAppSettings(AccessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`access_token` belongs to a system user, `phone_number_id` identifies the number that we send
    from (it is not the number itself). WhatsApp calls the path `/hooks/whatsapp` of the gateways,
    signed with `app_secret`; it verifies the webhook once with `verify_token`, a word of your own.
    `api` is the address of the Graph API with its version. `timeout_s` limits a call."""

    access_token: Secret
    app_secret: Secret
    verify_token: Secret
    phone_number_id: str
    api: str = "https://graph.facebook.com/v23.0"
    timeout_s: Annotated[float, Meta(ge=1, le=120)] = 15.0


def read_whatsapp(name: str, table: Mapping[str, Any]) -> WhatsAppSettings:
    """Read the settings table. Raises SettingsError, one line per problem."""
    number = table.get("phone_number_id")
    if type(number) is int:  # all digits: it is easily written without quotes
        table = {**table, "phone_number_id": str(number)}
    return read_channel(WhatsAppSettings, name, table, ids=IDS, find_problems=_find_problems)


def _find_problems(key: str, settings: WhatsAppSettings) -> Iterator[str]:
    if not _TOKEN.fullmatch(settings.access_token.reveal()):
        yield f"{key}.access_token is no access token; generate one for a system user in the Business settings"
    if not _APP_SECRET.fullmatch(settings.app_secret.reveal()):
        yield f"{key}.app_secret is none; copy the 32 letters and digits of App settings, Basic, App secret"
    if len(settings.verify_token.reveal()) < 8:
        yield f"{key}.verify_token is too short; take a word of 8 letters or more, and write it into the webhook, too"
    if not _NUMBER_ID.fullmatch(settings.phone_number_id):
        yield (
            f"{key}.phone_number_id is {settings.phone_number_id!r}; copy the phone number ID of WhatsApp, API Setup: "
            "digits alone, and not the number itself"
        )
    if settings.run not in (None, "webhook"):
        yield f"{key}.run is {settings.run!r}; WhatsApp only calls: leave it out, or write webhook"
    if not is_safe_address(settings.api):
        yield f"{key}.api is {settings.api!r}; write an address that begins with https://"
