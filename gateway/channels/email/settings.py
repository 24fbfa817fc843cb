"""Settings of `[channels.email]`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from gateway.channels.email.sender import ADDRESS
from gateway.platform.access import ID_LISTS, LOOPBACK, AccessSettings, IdForm, read_channel
from shared.settings import Secret

Tls = Literal["tls", "starttls", "off"]

IDS: Final = IdForm(
    person=ADDRESS.pattern,
    group=r"(?!)",
    words="people are mail addresses alone, such as anna@example.org; there are no groups",
)

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*")


class EmailSettings(AccessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`user` and `password` open the mailbox at `imap_host`, and send by `smtp_host`, unless
    `smtp_user` and `smtp_password` are set; with `smtp_login = false` sending needs no login.
    `address`: where people write to, if `user` is not an address. `tls`: encrypted from the start;
    `starttls`: upgraded by a command; `off`: only on this machine. `ca_file`: trusted certificates.

    Any From can be forged. It is trusted if the header `Authentication-Results` written by the mail
    server that calls itself `authserv_id` confirms it; or always, with `believe_from`. `pairing` is
    off: a reply to a stranger may go to a person who never wrote. Mails of strangers stay unread.

    `folder` is watched with IDLE, restarted every `idle_s`, or without IDLE polled every `poll_s`.
    Of a mail larger than `mail_mb` only the beginning is read. `per_s` and `burst` are the mails
    that the server accepts, over at most `connections` at once per gateway; `slow_down_s` is the
    wait when it says it is too much. `timeout_s` limits sending a mail or an answer of the mailbox."""

    imap_host: str
    smtp_host: str
    user: str
    password: Secret
    address: str = ""
    from_name: str = "Shoal"
    authserv_id: str = ""
    believe_from: bool = False
    pairing: bool = False
    imap_port: Annotated[int, Meta(ge=1, le=65535)] = 993
    imap_tls: Tls = "tls"
    smtp_port: Annotated[int, Meta(ge=1, le=65535)] = 465
    smtp_tls: Tls = "tls"
    smtp_login: bool = True
    smtp_user: str = ""
    smtp_password: Secret | None = None
    ca_file: Path | None = None
    folder: Annotated[str, Meta(min_length=1, max_length=200)] = "INBOX"
    idle_s: Annotated[float, Meta(ge=1, le=1500)] = 540.0
    poll_s: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    mail_mb: Annotated[int, Meta(ge=1, le=100)] = 25
    per_s: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    burst: Annotated[int, Meta(ge=1, le=1000)] = 20
    connections: Annotated[int, Meta(ge=1, le=100)] = 4
    slow_down_s: Annotated[float, Meta(ge=1, le=3600)] = 60.0
    timeout_s: Annotated[float, Meta(ge=1, le=120)] = 15.0

    @property
    def me(self) -> str:
        """Our address, in lower case."""
        return (self.address or self.user).lower()


def read_email(name: str, table: Mapping[str, Any]) -> EmailSettings:
    """Read the settings table, with the addresses of its lists in lower case: no mail server
    distinguishes Anna@ from anna@. Raises SettingsError."""
    lower = dict(table)
    for key in ID_LISTS:
        if isinstance(listed := table.get(key), list):
            lower[key] = [one.lower() if isinstance(one, str) else one for one in listed]
    return read_channel(EmailSettings, name, lower, ids=IDS, find_problems=_find_problems)


def _find_problems(key: str, settings: EmailSettings) -> Iterator[str]:
    if not ADDRESS.fullmatch(settings.me):
        where = "address" if settings.address else "user"
        yield f"{key}.{where} is {settings.me!r}, which is not a mail address; write one into {key}.address"
    imap = "imap", settings.imap_host, settings.imap_tls, settings.imap_port, 993, 143
    smtp = "smtp", settings.smtp_host, settings.smtp_tls, settings.smtp_port, 465, 587
    for protocol, host, tls, port, encrypted, usual in (imap, smtp):
        if not _HOST.fullmatch(host):
            yield f"{key}.{protocol}_host is {host!r}; write the name of the server, such as {protocol}.example.org"
        elif tls == "off" and host not in LOOPBACK:
            yield f'{key}.{protocol}_tls is off, and {host!r} is not this machine; write "tls" or "starttls"'
        if tls == "starttls" and port == encrypted:
            start = f"{key}.{protocol}_port {port} is encrypted from the start"
            yield f'{start}; with {key}.{protocol}_tls = "starttls" it is usually {usual}'
    if settings.smtp_password is not None and not settings.smtp_user:
        yield f"{key}.smtp_user is missing; {key}.smtp_password is of whom?"
    if settings.smtp_user and settings.smtp_password is None:
        yield f"{key}.smtp_password is missing; {key}.password is that of {key}.user"
    if not settings.smtp_login and settings.smtp_user:
        yield f"{key}.smtp_user is set, and {key}.smtp_login = false; leave one of them out"
    if settings.run not in (None, "exclusive"):
        yield f"{key}.run is {settings.run!r}; one gateway at a time watches a mailbox: leave it out"
    for name in ID_LISTS:
        for one in getattr(settings, name):
            if one.startswith("*@"):  # an address by its form, and nobody's
                yield f"{key}.{name} has {one!r}; there are no patterns: write each address, or let people in by codes"
    if settings.ca_file is not None and not os.access(settings.ca_file, os.R_OK):
        yield f"{key}.ca_file {str(settings.ca_file)!r} cannot be read; mount it, or name another"
    if settings.authserv_id and not re.fullmatch(r"[!-:<-~]{1,200}", settings.authserv_id):
        yield f"{key}.authserv_id is {settings.authserv_id!r}; write the first word of Authentication-Results"
    if not settings.authserv_id and not settings.believe_from:
        yield (
            f"{key}.authserv_id is missing: the name of your mail server in the header Authentication-Results, by "
            f"which a forged From is found out; or write {key}.believe_from = true if nobody can forge one there"
        )
