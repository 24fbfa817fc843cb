"""Settings of `[channels.matrix]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from gateway.platform.access import AccessSettings, IdForm, read_channel
from shared.settings import Secret

IDS: Final = IdForm(
    person=r"@[^\s:]+:\S+",
    group=r"!\S+",
    words="people are @name:server, rooms !id:server (an alias that begins with # is not an id); the log names who was "
    "not let in",
)

_HOMESERVER: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")


class MatrixSettings(AccessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`homeserver` is the address of the client-server API. Either `access_token`, or `user` and
    `password`: then each replica logs in as a device of its own, and keeps its token only in
    memory.

    `join`: follow the invitations of people who may talk to the bot, or of everybody. `per_s` and
    `burst` limit messages and edits of one user in all rooms; the defaults fit an unchanged
    Synapse. `poll_s` is how long a sync is held open; `timeout_s` limits any other call.
    """

    homeserver: str
    access_token: Secret | None = None
    user: str = ""
    password: Secret | None = None
    join: Literal["allowed", "everybody"] = "allowed"
    per_s: Annotated[float, Meta(gt=0, le=1000)] = 0.2
    burst: Annotated[int, Meta(ge=1, le=1000)] = 10
    poll_s: Annotated[float, Meta(ge=1, le=120)] = 25.0
    timeout_s: Annotated[float, Meta(ge=1, le=120)] = 20.0


def read_matrix(name: str, table: Mapping[str, Any]) -> MatrixSettings:
    """Read the settings table. Raises SettingsError, one line per problem."""
    return read_channel(MatrixSettings, name, table, ids=IDS, find_problems=_find_problems)


def _find_problems(key: str, settings: MatrixSettings) -> Iterator[str]:
    if not _HOMESERVER.fullmatch(settings.homeserver):
        yield f"{key}.homeserver is {settings.homeserver!r}; write its address, such as https://matrix.example.org"
    if settings.access_token is not None:
        if settings.password is not None or settings.user:
            yield f"{key} has access_token and user or password; one of the two ways to be known is enough"
    elif settings.password is None:
        yield f"{key}.access_token is missing; write it, or {key}.user and {key}.password"
    elif not settings.user:
        yield f"{key}.user is missing; the password is of whom? Write it as @name:server"
