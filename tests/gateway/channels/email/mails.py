"""Mails as people's programs write them."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.channels.email.body import read_mail
from gateway.channels.email.parse import EmailIdentity, parse_mail
from gateway.platform.protocol import PlatformMessage

ME = "shoal@pond.example"
ANNA = "anna@people.example"
SERVER = "mx.pond.example"
US = EmailIdentity(ME, SERVER)
NOW_MS = 1_770_000_000_000

USUAL: Mapping[str, str] = {
    "Return-Path": f"<{ANNA}>",
    "Authentication-Results": f"{SERVER}; dmarc=pass header.from=people.example",
    "From": f"Anna <{ANNA}>",
    "To": ME,
    "Subject": "Ponds",
    "Date": "Mon, 05 Jan 2026 10:00:00 +0100",
    "Message-ID": "<CA+1@mail.people.example>",
    "MIME-Version": "1.0",
    "Content-Type": "text/plain; charset=utf-8",
}


def raw(body: str | bytes = "hello\n", *extra: str, **changes: str | None) -> bytes:
    """A usual one with other headers: `None` leaves one out, `_` stands for `-`; `extra` are lines on top."""
    given = {name.replace("_", "-").lower(): value for name, value in changes.items()}
    lines = list(extra)
    for name, value in USUAL.items():
        changed = given.pop(name.lower(), value)
        lines += [] if changed is None else [f"{name}: {changed}"]
    lines += [f"{name}: {value}" for name, value in given.items() if value is not None]
    data = body.encode() if isinstance(body, str) else body
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + data.replace(b"\n", b"\r\n")


def parsed_mail(body: str | bytes = "hello\n", *extra: str, **changes: str | None) -> PlatformMessage:
    """What is heard of it."""
    return parse_mail("email", read_mail(raw(body, *extra, **changes)), "d1", US, now_ms=NOW_MS)


def believed(body: str = "hello", *extra: str, **changes: str | None) -> PlatformMessage:
    """The same where every From is believed."""
    return parse_mail("email", read_mail(raw(body, *extra, **changes)), "d1", EmailIdentity(ME), now_ms=NOW_MS)
