"""The bodies of the webhook: AES-256-CBC under the SHA-256 of the encrypt key, IV in front, base64
(open.feishu.cn/ document, "Send events to the developer's server")."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

_BLOCK: Final = 16


class Sealed(msgspec.Struct, frozen=True):
    """The form of every body."""

    encrypt: str


def opened(encrypt_key: str, body: bytes) -> bytes:
    """What is in a body. Raises msgspec.DecodeError, the same for everything that is wrong with
    it."""
    try:
        data = base64.b64decode(msgspec.json.decode(body, type=Sealed).encrypt, validate=True)
        if len(data) < 2 * _BLOCK or len(data) % _BLOCK:
            raise ValueError("no whole blocks")
        decryptor = _cipher(encrypt_key, data[:_BLOCK]).decryptor()
        unpadder = PKCS7(8 * _BLOCK).unpadder()
        padded = decryptor.update(data[_BLOCK:]) + decryptor.finalize()
        return unpadder.update(padded) + unpadder.finalize()
    except (msgspec.DecodeError, ValueError, binascii.Error) as exc:
        raise msgspec.DecodeError("this was not encrypted with our key") from exc


def sealed(encrypt_key: str, text: bytes, iv: bytes) -> bytes:
    """A body with this in it."""
    padder = PKCS7(8 * _BLOCK).padder()
    encryptor = _cipher(encrypt_key, iv).encryptor()
    data = encryptor.update(padder.update(text) + padder.finalize()) + encryptor.finalize()
    return msgspec.json.encode(Sealed(base64.b64encode(iv + data).decode()))


def _cipher(encrypt_key: str, iv: bytes) -> Cipher[modes.CBC]:
    return Cipher(algorithms.AES(hashlib.sha256(encrypt_key.encode()).digest()), modes.CBC(iv))
