"""Only what Feishu signed and encrypted is believed."""

from __future__ import annotations

import base64
import hashlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.feishu.cipher import decrypt_body, is_signed, signature
from tests.fakes.feishu_parts import encrypt_body

KEY = "test key"
AT = "1752346850"
NONCE = "950646929"
BODY = b'{"encrypt":"P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="}'
SIGNED = signature(KEY, AT, NONCE, BODY)
NOW = int(AT)


def headers(signed: str | None = SIGNED, at: str | None = AT, nonce: str | None = NONCE) -> dict[str, str]:
    given = {"x-lark-signature": signed, "x-lark-request-timestamp": at, "x-lark-request-nonce": nonce}
    return {name: value for name, value in given.items() if value is not None}


def test_the_signature_is_the_one_of_the_documentation() -> None:
    """sha256(timestamp + nonce + key + body), as hex; written out here."""
    assert hashlib.sha256((AT + NONCE + KEY).encode() + BODY).hexdigest() == SIGNED


@pytest.mark.parametrize(
    ("given", "body", "now_s", "believed"),
    [
        (headers(), BODY, NOW, True),
        (headers(), BODY, NOW + 300, True),
        (headers(), BODY, NOW + 301, False),
        (headers(), BODY, NOW - 300, True),
        (headers(), BODY, NOW - 301, False),
        (headers(None), BODY, NOW, False),
        (headers(""), BODY, NOW, False),
        (headers(" "), BODY, NOW, False),
        (headers(SIGNED.upper()), BODY, NOW, False),
        (headers(SIGNED[:-1]), BODY, NOW, False),
        (headers(SIGNED + "ü"), BODY, NOW, False),
        (headers("\ud800"), BODY, NOW, False),
        (headers(at=None), BODY, NOW, False),
        (headers(at=""), BODY, NOW, False),
        (headers(at=AT + "0" * 20), BODY, NOW, False),
        (headers(at=" " + AT), BODY, NOW, False),
        (headers(at="-" + AT), BODY, NOW, False),
        (headers(at="١٧٥٢٣٤٦٨٥٠"), BODY, NOW, False),
        (headers(at=str(NOW + 1)), BODY, NOW, False),
        (headers(nonce=None), BODY, NOW, False),
        (headers(nonce="950646928"), BODY, NOW, False),
        (headers(signature("another", AT, NONCE, BODY)), BODY, NOW, False),
        (headers(signature("", AT, NONCE, BODY)), BODY, NOW, False),
        (headers(signature(KEY, AT, NONCE, b"")), BODY, NOW, False),
        (headers(), BODY + b"\n", NOW, False),
        (headers(), BODY.replace(b"P37", b"P38"), NOW, False),
        (headers(), json.dumps(json.loads(BODY)).encode(), NOW, False),
        (headers(), b"", NOW, False),
        ({}, BODY, NOW, False),
    ],
)
def test_what_is_signed_well_is_believed_and_nothing_else(
    given: dict[str, str], body: bytes, now_s: float, believed: bool
) -> None:
    """Missing, blank, wrong, old, of the future, one byte changed, encoded anew."""
    assert is_signed(KEY, given, body, now_s=now_s) is believed


def test_the_example_of_the_documentation_is_opened() -> None:
    """With the key and the text that it names."""
    assert decrypt_body("test key", BODY) == b"hello world"


@given(key=st.text(min_size=1, max_size=40), text=st.binary(max_size=200), iv=st.binary(min_size=16, max_size=16))
def test_what_was_sealed_is_opened(key: str, text: bytes, iv: bytes) -> None:
    """Of any length."""
    assert decrypt_body(key, encrypt_body(key, text, iv)) == text


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'{"encrypt":7}', b'{"encrypt":""}', b'{"encrypt":"=="}', b'{"encrypt":"\xff"}',
        json.dumps({"encrypt": base64.b64encode(b"x" * 16).decode()}).encode(),
        json.dumps({"encrypt": base64.b64encode(b"x" * 33).decode()}).encode(),
        json.dumps({"encrypt": base64.b64encode(b"x" * 32).decode()}).encode(),
        encrypt_body("another key", b"hello world", b"i" * 16),
    ],
)  # fmt: skip
def test_everything_else_is_refused_in_the_same_words(body: bytes) -> None:
    """So that nobody learns from an answer how far a guess went."""
    with pytest.raises(msgspec.DecodeError, match=r"^this was not encrypted with our key$"):
        decrypt_body("test key", body)
