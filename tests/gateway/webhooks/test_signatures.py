"""Signatures of webhooks: the published examples, and everything that is not one."""

from __future__ import annotations

import pytest

from gateway.webhooks.signatures import CLOCK_S, sign, verified_id
from shared.settings import Secret
from shared.settings.sections.webhooks import signing_key

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, AT_S, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
"""The example of the specification's own libraries."""

HEADERS = {"webhook-id": ID, "webhook-timestamp": str(AT_S), "webhook-signature": SIGNATURE}


def standard(headers: dict[str, str] | None = None, body: bytes = BODY, now_s: float = AT_S) -> str | None:
    return verified_id("standard", [Secret(SECRET)], HEADERS | (headers or {}), body, now_s=now_s)


def test_the_published_example_is_made_and_verified() -> None:
    """Whoever follows the specification is understood, and understands."""
    assert sign(signing_key(SECRET), ID, AT_S, BODY) == SIGNATURE
    assert standard() == ID


def test_while_a_secret_is_replaced_both_count() -> None:
    """On our side, and on the sender's, who then shows two signatures."""
    other = Secret("whsec_" + "A" * 43 + "=")
    assert verified_id("standard", [other, Secret(SECRET)], HEADERS, BODY, now_s=AT_S) == ID
    assert standard({"webhook-signature": f"v1,AAAA v1a,BBBB {SIGNATURE}"}) == ID
    assert verified_id("standard", [other], HEADERS, BODY, now_s=AT_S) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"webhook-id": ""},
        {"webhook-id": "msg_other"},
        {"webhook-id": "x" * 257},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "now"},
        {"webhook-timestamp": "١٦١٤٢٦٥٣٣٠"},
        {"webhook-timestamp": "1614265330.5"},
        {"webhook-timestamp": "-1614265330"},
        {"webhook-timestamp": "9" * 400},
        {"webhook-timestamp": str(AT_S + 1)},
        {"webhook-signature": ""},
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,\xff\udcff"},
        {"webhook-signature": SIGNATURE[:-1]},
        {"webhook-signature": SIGNATURE.removeprefix("v1,")},
        {"webhook-signature": "v2" + SIGNATURE[2:]},
        {"webhook-signature": SIGNATURE.lower()},
        {"webhook-signature": "v1,AA " * 16 + SIGNATURE},
    ],
)
def test_what_is_not_exactly_signed_is_nothing(headers: dict[str, str]) -> None:
    """Malformed headers are a refusal, never an error."""
    assert standard(headers) is None


@pytest.mark.parametrize("body", [b"", b"{}", BODY + b" ", BODY.replace(b"4", b"5"), b"\xff\xfe"])
def test_another_body_is_not_signed(body: bytes) -> None:
    """The bytes as they came count, in any encoding."""
    assert standard(body=body) is None


@pytest.mark.parametrize("off_s", [-CLOCK_S - 1, CLOCK_S + 1])
def test_an_old_signature_and_one_of_the_future_do_not_count(off_s: int) -> None:
    """Five minutes, in both directions."""
    assert standard(now_s=AT_S + off_s) is None
    assert standard(now_s=AT_S + (off_s // abs(off_s)) * CLOCK_S) == ID


def test_the_example_of_github_is_verified() -> None:
    """As its documentation has it; the id is that of the delivery."""
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-hub-signature-256": signature, "x-github-delivery": "72d3162e"}
    secret = [Secret("It's a Secret to Everybody")]
    assert verified_id("github", secret, headers, b"Hello, World!", now_s=0) == "72d3162e"
    assert verified_id("github", secret, headers, b"Hello, World", now_s=0) is None
    assert verified_id("github", secret, headers | {"x-github-delivery": ""}, b"Hello, World!", now_s=0) is None
    assert verified_id("github", secret, {"x-github-delivery": "1"}, b"Hello, World!", now_s=0) is None


def test_a_bearer_token_is_compared_whole_and_the_body_is_the_id() -> None:
    """Senders of this kind have no ids."""
    secret = [Secret("sesame-open-the-door")]
    shown = {"authorization": "Bearer sesame-open-the-door"}
    id = verified_id("bearer", secret, shown, b"{}", now_s=0)
    assert id is not None
    assert id == verified_id("bearer", secret, shown, b"{}", now_s=9)
    assert id != verified_id("bearer", secret, shown, b"[]", now_s=0)
    for wrong in ("", "Bearer", "Bearer sesame", "sesame-open-the-door", "Bearer sesame-open-the-doorx", "Bearer \xff"):
        assert verified_id("bearer", secret, {"authorization": wrong}, b"{}", now_s=0) is None
