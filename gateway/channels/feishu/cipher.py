"""Encrypt and decrypt webhook bodies: AES-256-CBC under the SHA-256 of the encrypt key, IV first,
base64 (open.feishu.cn/document, "Send events to the developer's server")."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

_BLOCK: Final = 16


class EncryptedBody(msgspec.Struct, frozen=True):
    """The form of every body."""

    encrypt: str


def decrypt_body(encrypt_key: str, body: bytes) -> bytes:
    """Return the decrypted body. Raises msgspec.DecodeError, the same for every problem."""
    try:
        data = base64.b64decode(msgspec.json.decode(body, type=EncryptedBody).encrypt, validate=True)
        if len(data) < 2 * _BLOCK or len(data) % _BLOCK:
            raise ValueError("no whole blocks")
        decryptor = _cipher(encrypt_key, data[:_BLOCK]).decryptor()
        unpadder = PKCS7(8 * _BLOCK).unpadder()
        padded = decryptor.update(data[_BLOCK:]) + decryptor.finalize()
        return unpadder.update(padded) + unpadder.finalize()
    except (msgspec.DecodeError, ValueError, binascii.Error) as exc:
        # One error for everything: telling bad padding from bad JSON would be a padding oracle.
        raise msgspec.DecodeError("this was not encrypted with our key") from exc


def encrypt_body(encrypt_key: str, text: bytes, iv: bytes) -> bytes:
    """Return an encrypted body with this text."""
    padder = PKCS7(8 * _BLOCK).padder()
    encryptor = _cipher(encrypt_key, iv).encryptor()
    data = encryptor.update(padder.update(text) + padder.finalize()) + encryptor.finalize()
    return msgspec.json.encode(EncryptedBody(base64.b64encode(iv + data).decode()))


def _cipher(encrypt_key: str, iv: bytes) -> Cipher[modes.CBC]:
    return Cipher(algorithms.AES(hashlib.sha256(encrypt_key.encode()).digest()), modes.CBC(iv))
