"""Signatures of webhooks: Standard Webhooks (https://www.standardwebhooks.com), which OpenAI's
clients verify too, those of GitHub, and plain bearer tokens. Pure.

The official library is used by the tests and not here: these are a few lines of HMAC, and it raises
a bare ValueError for some forged headers and signs a time of any zone as if it were UTC."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Final

from shared.settings.secret import Secret
from shared.settings.sections.webhooks import Verification, signing_key

CLOCK_S: Final = 300
"""Seconds by which the time of a signature may differ from our clock, in both directions."""

ID_CHARS: Final = 256


def sign(key: bytes, id: str, at_s: int, body: bytes) -> str:
    """Return the signature of a webhook, as one part of the header `webhook-signature` has it."""
    signed = f"{id}.{at_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def verified_id(
    verify: Verification, secrets: Iterable[Secret], headers: Mapping[str, str], body: bytes, *, now_s: float
) -> str | None:
    """Return the id by which a call is recognised when it comes again, once one of the secrets
    verifies it; None for anything else. Names of `headers` are in lower case."""
    words = [secret.reveal() for secret in secrets]
    match verify:
        case "standard":
            return _standard_id(words, headers, body, now_s)
        case "github":
            return _github_id(words, headers, body)
        case "bearer":
            wanted = (f"Bearer {word}" for word in words)
            shown = headers.get("authorization", "")
            return hashlib.sha256(body).hexdigest() if _equals_any(shown, wanted) else None


def _standard_id(words: Iterable[str], headers: Mapping[str, str], body: bytes, now_s: float) -> str | None:
    id = headers.get("webhook-id", "")
    at = headers.get("webhook-timestamp", "")
    # Digits of other alphabets are digits to `isdigit` as well.
    if not 0 < len(id) <= ID_CHARS or not (at.isascii() and at.isdigit() and len(at) < 16):
        return None
    if abs(now_s - int(at)) > CLOCK_S:
        return None
    wanted = [sign(signing_key(word), id, int(at), body) for word in words]
    # The sender has several while it replaces its key.
    found = [_equals_any(shown, wanted) for shown in headers.get("webhook-signature", "").split(" ")[:16]]
    return id if any(found) else None


def _github_id(words: Iterable[str], headers: Mapping[str, str], body: bytes) -> str | None:
    wanted = ("sha256=" + hmac.digest(word.encode(), body, "sha256").hex() for word in words)
    id = headers.get("x-github-delivery", "")
    known = _equals_any(headers.get("x-hub-signature-256", ""), wanted)
    return id if known and 0 < len(id) <= ID_CHARS else None


def _equals_any(shown: str, wanted: Iterable[str]) -> bool:
    """Compare in constant time. As bytes: a header may hold any character, of which the comparison
    of texts takes only ASCII."""
    data = shown.encode("utf-8", "surrogateescape")
    return any(hmac.compare_digest(data, one.encode("utf-8", "surrogateescape")) for one in wanted)
