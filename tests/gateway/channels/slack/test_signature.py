"""Only what Slack signed is believed."""

from __future__ import annotations

import pytest
from slack_sdk.signature import SignatureVerifier

from gateway.channels.slack.wire import is_signed, signature

# The example of docs.slack.dev/authentication/verifying-requests-from-slack.
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
AT = "1531420618"
BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SIGNED = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
NOW = int(AT)


def headers(signed: str | None = SIGNED, at: str | None = AT) -> dict[str, str]:
    given = {"x-slack-signature": signed, "x-slack-request-timestamp": at}
    return {name: value for name, value in given.items() if value is not None}


def test_the_example_of_the_documentation_is_signed_well() -> None:
    """The same value comes out as Slack shows, and as its SDK computes."""
    assert signature(SECRET, AT, BODY) == SIGNED
    assert SignatureVerifier(SECRET).generate_signature(timestamp=AT, body=BODY) == SIGNED
    assert is_signed(SECRET, headers(), BODY, now_s=NOW)


@pytest.mark.parametrize(
    ("given", "body", "now_s", "believed"),
    [
        (headers(), BODY, NOW + 300, True),
        (headers(), BODY, NOW + 301, False),
        (headers(), BODY, NOW - 300, True),
        (headers(), BODY, NOW - 301, False),
        (headers(None), BODY, NOW, False),
        (headers(""), BODY, NOW, False),
        (headers("v0="), BODY, NOW, False),
        (headers(SIGNED.upper()), BODY, NOW, False),
        (headers(SIGNED.removeprefix("v0=")), BODY, NOW, False),
        (headers("v1=" + SIGNED[3:]), BODY, NOW, False),
        (headers(SIGNED + "ü"), BODY, NOW, False),
        (headers(at=None), BODY, NOW, False),
        (headers(at=""), BODY, NOW, False),
        (headers(at=AT + "0" * 20), BODY, NOW, False),
        (headers(at=" " + AT), BODY, NOW, False),
        (headers(at="-" + AT), BODY, NOW, False),
        (headers(at="١٥٣١٤٢٠٦١٨"), BODY, NOW, False),
        (headers(at=str(NOW + 1)), BODY, NOW, False),
        (headers(signature("another", AT, BODY)), BODY, NOW, False),
        (headers(signature("", AT, BODY)), BODY, NOW, False),
        (headers(), BODY + b"\n", NOW, False),
        (headers(), BODY.replace(b"%2F", b"%2f"), NOW, False),
        (headers(), b"", NOW, False),
        ({}, BODY, NOW, False),
    ],
)
def test_nothing_else_is(given: dict[str, str], body: bytes, now_s: float, believed: bool) -> None:
    """Missing, blank, wrong, old, of the future, one byte changed, encoded anew."""
    assert is_signed(SECRET, given, body, now_s=now_s) is believed
