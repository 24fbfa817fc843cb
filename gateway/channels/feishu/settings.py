"""Settings of `[channels.feishu]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from gateway.platform.access import AccessSettings, IdForm, is_safe_address, read_channel
from shared.settings import Secret

IDS: Final = IdForm(
    person=r"ou_[0-9A-Za-z]+",
    group=r"oc_[0-9A-Za-z]+",
    words="a person's is their open_id, which begins with ou_ and differs from app to app, a group's begins with oc_; "
    "the log names who was not let in, and a group's settings show its id at their foot",
)

SERVERS: Final = {"feishu": "https://open.feishu.cn", "lark": "https://open.larksuite.com"}

_APP_ID: Final = re.compile(r"cli_[0-9A-Za-z]{8,}")
_SECRET: Final = re.compile(r"[\x21-\x7e]{8,}")


class FeishuSettings(AccessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`app_id` and `app_secret` belong to a self-built app, in `domain` feishu (feishu.cn) or lark
    (larksuite.com). Events arrive over a long connection, or, with `run = "webhook"`, at the path
    `/hooks/feishu` of the gateways, encrypted and signed with `encrypt_key`, with
    `verification_token` inside.

    With `threads`, an answer in a group starts a topic at its question, and each topic is a
    conversation; without, a group is one, and so is each topic that people start. `api` replaces
    the domain's address. `timeout_s` limits a call.
    """

    app_id: str
    app_secret: Secret
    domain: Literal["feishu", "lark"] = "feishu"
    encrypt_key: Secret | None = None
    verification_token: Secret | None = None
    threads: bool = True
    api: str | None = None
    timeout_s: Annotated[float, Meta(ge=1, le=120)] = 15.0

    @property
    def server(self) -> str:
        """Address of the API, without a trailing slash."""
        return (self.api or SERVERS[self.domain]).rstrip("/")


def read_feishu(name: str, table: Mapping[str, Any]) -> FeishuSettings:
    """Read the settings table. Raises SettingsError, one line per problem."""
    return read_channel(FeishuSettings, name, table, ids=IDS, find_problems=_find_problems)


def _find_problems(key: str, settings: FeishuSettings) -> Iterator[str]:
    if not _APP_ID.fullmatch(settings.app_id):
        yield f"{key}.app_id is {settings.app_id!r}; copy the App ID of Credentials & Basic Info (cli_…)"
    if not _SECRET.fullmatch(settings.app_secret.reveal()):
        yield f"{key}.app_secret is none; copy the App Secret of Credentials & Basic Info"
    if settings.run == "exclusive":
        yield f"{key}.run is 'exclusive'; write socket or webhook"
    if settings.run == "webhook":
        for word, value in (
            ("encrypt_key", settings.encrypt_key),
            ("verification_token", settings.verification_token),
        ):
            if value is None:
                yield f"{key}.{word} is missing; it is shown under Events & Callbacks, Encryption Strategy"
            elif not _SECRET.fullmatch(value.reveal()):
                yield f"{key}.{word} is too short or has blanks; copy it from Events & Callbacks, Encryption Strategy"
    if settings.api is not None and not is_safe_address(settings.api):
        yield f"{key}.api is {settings.api!r}; write an address that begins with https://"
