"""Settings of `[channels.slack]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from gateway.platform.access import AccessSettings, IdForm, is_safe_address, read_channel
from shared.settings import Secret

IDS: Final = IdForm(
    person=r"[UW][A-Z0-9]+",
    group=r"[CG][A-Z0-9]+",
    words="a person's begins with U or W, a channel's with C or G; Slack shows them in a profile under "
    "the three dots, and at the foot of a channel's details",
)

_BOT_TOKEN: Final = re.compile(r"xoxb-[\w-]{10,}", re.ASCII)
_APP_TOKEN: Final = re.compile(r"xapp-[\w-]{10,}", re.ASCII)
_SIGNING_SECRET: Final = re.compile(r"[\x21-\x7e]{16,}")
_COMMAND: Final = re.compile(r"/[a-z0-9_-]{1,31}")


class SlackSettings(AccessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`token` is the bot's (xoxb-). Events arrive by Socket Mode with `app_token` (xapp-), or, with
    `run = "webhook"`, at the path `/hooks/slack` of the gateways, signed with `signing_secret`.

    With `threads`, an answer in a channel is posted in the thread of its question, and each thread
    is a conversation; without, the whole channel is one. The text after the slash command `command`
    is a message; other slash commands of the app are messages including their name. `api` is the
    address of the Web API. `timeout_s` limits a call.
    """

    token: Secret
    app_token: Secret | None = None
    signing_secret: Secret | None = None
    threads: bool = True
    command: str = "/shoal"
    api: str = "https://slack.com/api/"
    timeout_s: Annotated[float, Meta(ge=1, le=120)] = 15.0


def read_slack(name: str, table: Mapping[str, Any]) -> SlackSettings:
    """Read the settings table. Raises SettingsError, one line per problem."""
    return read_channel(SlackSettings, name, table, ids=IDS, find_problems=_find_problems)


def _find_problems(key: str, settings: SlackSettings) -> Iterator[str]:
    if not _BOT_TOKEN.fullmatch(settings.token.reveal()):
        yield f"{key}.token is not a bot token; copy the one of OAuth & Permissions that begins with xoxb-"
    if settings.run == "webhook":
        if settings.signing_secret is None:
            yield f"{key}.signing_secret is missing; it is shown under Basic Information, App Credentials"
        elif not _SIGNING_SECRET.fullmatch(settings.signing_secret.reveal()):
            yield f"{key}.signing_secret is none; copy it from Basic Information, App Credentials"
    elif settings.app_token is None:
        yield f"{key}.app_token is missing; make one under Basic Information, App-Level Tokens, with connections:write"
    elif not _APP_TOKEN.fullmatch(settings.app_token.reveal()):
        yield f"{key}.app_token is not an app-level token; it begins with xapp-"
    if not _COMMAND.fullmatch(settings.command):
        yield f"{key}.command is {settings.command!r}; write it as Slack has it, such as /shoal"
    if not is_safe_address(settings.api):
        yield f"{key}.api is {settings.api!r}; write an address that begins with https://"
