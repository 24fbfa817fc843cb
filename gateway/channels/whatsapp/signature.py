"""Verify that a webhook call comes from WhatsApp (developers.facebook.com/docs/graph-api/webhooks).
Pure.

The signature covers no time: a replayed call has a valid signature, and its messages are recognised
by their ids.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

SIGNATURE: Final = "x-hub-signature-256"


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether this body was signed with the app's secret. Header names are in lower case."""
    given = headers.get(SIGNATURE, "")
    return hmac.compare_digest(given.encode(), signature(secret, body).encode())


def signature(secret: str, body: bytes) -> str:
    """Return the signature header for a body."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def answer_challenge(verify_token: str, query: Mapping[str, str]) -> str | None:
    """Return the word by which WhatsApp verifies that the webhook is ours; None if the caller does
    not know the token."""
    given = query.get("hub.verify_token", "")
    known = hmac.compare_digest(given.encode(errors="surrogatepass"), verify_token.encode())
    return query.get("hub.challenge", "") if known and query.get("hub.mode") == "subscribe" else None
