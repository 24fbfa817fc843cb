"""Whether a call of the webhook is WhatsApp's (developers.facebook.com/docs/graph-api/webhooks).
Pure.

No time is signed: a call that somebody wrote down and makes again is signed well, and its messages
are known by their ids.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

SIGNATURE: Final = "x-hub-signature-256"


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether this body was signed with the app's secret. Names of headers in lower case."""
    given = headers.get(SIGNATURE, "")
    return hmac.compare_digest(given.encode(), signature(secret, body).encode())


def signature(secret: str, body: bytes) -> str:
    """What WhatsApp puts beside a body."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def challenge(verify_token: str, query: Mapping[str, str]) -> str | None:
    """What WhatsApp wants to hear before it believes that the webhook is ours; None for somebody
    else."""
    given = query.get("hub.verify_token", "")
    known = hmac.compare_digest(given.encode(errors="surrogatepass"), verify_token.encode())
    return query.get("hub.challenge", "") if known and query.get("hub.mode") == "subscribe" else None
