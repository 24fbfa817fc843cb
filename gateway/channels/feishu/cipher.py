"""Verify that a webhook call comes from Feishu, and decrypt its body (open.feishu.cn/document,
"Receive events", "Send events to the developer's server"). Pure.

A body is encrypted with AES-256-CBC under the SHA-256 of the encrypt key, IV first, base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

SIGNATURE: Final = "x-lark-signature"
SIGNED_AT: Final = "x-lark-request-timestamp"
NONCE: Final = "x-lark-request-nonce"
OLD_S: Final = 300
"""A call signed longer ago, or this far in the future, is treated as a replay."""

_BLOCK: Final = 16
_SECONDS: Final = re.compile(r"[0-9]{1,12}")


class _EncryptedBody(msgspec.Struct, frozen=True):
    encrypt: str


def decrypt_body(encrypt_key: str, body: bytes) -> bytes:
    """Return the decrypted body. Raises msgspec.DecodeError, the same for every problem."""
    try:
        encrypted = msgspec.json.decode(body, type=_EncryptedBody).encrypt
        data = base64.b64decode(encrypted, validate=True)
        if len(data) < 2 * _BLOCK or len(data) % _BLOCK:
            raise ValueError("no whole blocks")
        key = hashlib.sha256(encrypt_key.encode()).digest()
        decryptor = Cipher(algorithms.AES(key), modes.CBC(data[:_BLOCK])).decryptor()
        unpadder = PKCS7(8 * _BLOCK).unpadder()
        padded = decryptor.update(data[_BLOCK:]) + decryptor.finalize()
        return unpadder.update(padded) + unpadder.finalize()
    except (msgspec.DecodeError, ValueError, binascii.Error) as exc:
        # One error for everything: telling bad padding from bad JSON would be a padding oracle.
        raise msgspec.DecodeError("this was not encrypted with our key") from exc


def is_signed(encrypt_key: str, headers: Mapping[str, str], body: bytes, *, now_s: float) -> bool:
    """Return whether it was signed within the last five minutes. Header names are in lower case."""
    at, nonce, given = (headers.get(name, "") for name in (SIGNED_AT, NONCE, SIGNATURE))
    if not _SECONDS.fullmatch(at) or abs(now_s - int(at)) > OLD_S:
        return False
    return is_same_secret(given, signature(encrypt_key, at, nonce, body))


def signature(encrypt_key: str, at: str, nonce: str, body: bytes) -> str:
    """Return the signature header for a body; `at` is the time in seconds."""
    signed = (at + nonce + encrypt_key).encode(errors="surrogatepass") + body
    return hashlib.sha256(signed).hexdigest()


def is_same_secret(given: str, known: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), known.encode())
