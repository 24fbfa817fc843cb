"""Verify that a webhook call comes from Feishu (open.feishu.cn/document, "Receive events").
Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

SIGNATURE: Final = "x-lark-signature"
SIGNED_AT: Final = "x-lark-request-timestamp"
NONCE: Final = "x-lark-request-nonce"
OLD_S: Final = 300
"""A call signed longer ago, or this far in the future, is treated as a replay."""

_SECONDS: Final = re.compile(r"[0-9]{1,12}")


def is_signed(encrypt_key: str, headers: Mapping[str, str], body: bytes, *, now_s: float) -> bool:
    """Return whether this body was signed with the key within the last five minutes. Header names
    are in lower case."""
    at, nonce, given = headers.get(SIGNED_AT, ""), headers.get(NONCE, ""), headers.get(SIGNATURE, "")
    if not _SECONDS.fullmatch(at) or abs(now_s - int(at)) > OLD_S:
        return False
    return is_same_secret(given, signature(encrypt_key, at, nonce, body))


def signature(encrypt_key: str, at: str, nonce: str, body: bytes) -> str:
    """Return the signature header for a body; `at` is the time in seconds."""
    return hashlib.sha256((at + nonce + encrypt_key).encode(errors="surrogatepass") + body).hexdigest()


def is_same_secret(given: str, known: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), known.encode())
