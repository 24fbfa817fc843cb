"""Verify that a webhook call comes from Slack
(docs.slack.dev/authentication/verifying-requests-from-slack). Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

SIGNATURE: Final = "x-slack-signature"
SIGNED_AT: Final = "x-slack-request-timestamp"
OLD_S: Final = 300
"""A call signed longer ago, or this far in the future, is treated as a replay."""

_SECONDS: Final = re.compile(r"[0-9]{1,12}")


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, *, now_s: float) -> bool:
    """Return whether this body was signed with the secret within the last five minutes. Header
    names are in lower case."""
    at, given = headers.get(SIGNED_AT, ""), headers.get(SIGNATURE, "")
    if not _SECONDS.fullmatch(at) or abs(now_s - int(at)) > OLD_S:
        return False
    # Constant time, so that a forger learns nothing from how long a refusal takes.
    return hmac.compare_digest(given.encode(), signature(secret, at, body).encode())


def signature(secret: str, at: str, body: bytes) -> str:
    """Return the signature header for a body; `at` is the time in seconds."""
    return "v0=" + hmac.new(secret.encode(), b"v0:" + at.encode() + b":" + body, hashlib.sha256).hexdigest()
