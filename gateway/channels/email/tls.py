"""Encrypted connections to mail servers: whom we believe."""

from __future__ import annotations

import ssl
from typing import Final

from gateway.channels.email.settings import EmailSettings

DEEPEST: Final = 10
"""So many errors may stand behind each other."""


def context_of(settings: EmailSettings) -> ssl.SSLContext:
    """What certificates are checked against: `ca_file`, else the system's list. Reads files."""
    return ssl.create_default_context(cafile=settings.ca_file)


def untrusted(exc: BaseException) -> str | None:
    """What is wrong with a certificate, if that is at the bottom of an error."""
    found: BaseException | None = exc
    for _ in range(DEEPEST):
        if isinstance(found, ssl.SSLCertVerificationError):
            return str(found.verify_message)
        found = (found.__cause__ or found.__context__) if found is not None else None
    return None
