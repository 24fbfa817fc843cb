"""Certificate checks for connections to mail servers."""

from __future__ import annotations

import ssl
from typing import Final

from gateway.channels.email.settings import EmailSettings

DEEPEST: Final = 10
"""Limit for the chain of causes that is searched."""


def make_tls_context(settings: EmailSettings) -> ssl.SSLContext:
    """Return a context that trusts `ca_file`, else the system's list. Reads files."""
    return ssl.create_default_context(cafile=settings.ca_file)


def certificate_problem(exc: BaseException) -> str | None:
    """Return the problem of a certificate, if one caused the error."""
    found: BaseException | None = exc
    for _ in range(DEEPEST):
        if isinstance(found, ssl.SSLCertVerificationError):
            return str(found.verify_message)
        found = (found.__cause__ or found.__context__) if found is not None else None
    return None
