"""Whose mail it is: From alone, one address, and what our own mail server found out about it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.channels.email.sender import ADDRESS, address_of, is_proven

ANNA = "anna@people.example"
US = "mx.pond.example"


@pytest.mark.parametrize(
    "value",
    [
        ANNA,
        f"<{ANNA}>",
        f"Anna <{ANNA}>",
        f'"Anna, the <great>" <{ANNA}>',
        f'"eve@evil.example" <{ANNA}>',
        f"=?utf-8?q?eve=40evil.example?= <{ANNA}>",
        f"Anna <{ANNA}> (at home)",
        f"{ANNA} (Anna)",
        "Anna <Anna@People.Example>",
        f"Änna <{ANNA}>",
    ],
)
def test_the_address_is_what_counts(value: str) -> None:
    """Whatever name stands before it; small letters and capitals are the same."""
    assert address_of([value]) == ANNA


@pytest.mark.parametrize(
    "froms",
    [
        [],
        [""],
        ["Anna"],
        [ANNA, ANNA],
        [ANNA, "eve@evil.example"],
        [f"{ANNA}, eve@evil.example"],
        [f"<{ANNA}> <eve@evil.example>"],
        [f"{ANNA} <eve@evil.example>"],
        [f"<eve@evil.example> {ANNA}"],
        [f"Friends: {ANNA};"],
        [f"<@evil.example:{ANNA}>"],
        [f'"{ANNA}"@evil.example'],
        [f"Anna <{ANNA}"],
        [f"Anna {ANNA}>"],
        [f'"Anna <{ANNA}>'],
        [f"{ANNA}@evil.example"],
        ["anna@people.example)eve@evil.example"],
        ["anna@people..example"],
        ["anna@-people.example"],
        ["anna@people.example."],
        [".anna@people.example"],
        ["anna@[127.0.0.1]"],
        ["ann\u0430@people.example"],
        ["anna@people.e\u212aample"],
        [f"{'a' * 200}@people.example"],
        [f"{'x ' * 10_000}<{ANNA}>"],
    ],
)
def test_a_from_that_can_be_read_in_two_ways_is_nobodys(froms: list[str]) -> None:
    """Several addresses, none, groups, routes, letters that only look like others."""
    assert address_of(froms) is None


@given(st.lists(st.text(alphabet=st.sampled_from('anx@.<>(),;:"\\ é\udce9'), max_size=40), max_size=2))
def test_any_from_is_an_address_or_nobody(froms: list[str]) -> None:
    """It never fails, and what comes out is an address of one line."""
    found = address_of(froms)
    assert found is None or (ADDRESS.fullmatch(found) and found == found.lower())


@pytest.mark.parametrize(
    "header",
    [
        f"{US}; dmarc=pass header.from=people.example",
        f"{US} 1; dmarc=pass (p=reject dis=none) header.from=people.example",
        f"{US.upper()}; DMARC=PASS HEADER.FROM=People.Example",
        f"{US}; dmarc=pass",
        f'"{US}"; dmarc=pass header.from=people.example',
        f"{US}; spf=fail smtp.mailfrom=evil.example; dkim=pass header.d=people.example",
        f"{US}; dmarc=none header.from=people.example; dkim=pass header.d=people.example header.s=k1",
        f"{US}; spf=pass (sender is allowed) smtp.mailfrom=bounce@people.example",
        f"{US}; spf=pass smtp.mailfrom=people.example; dkim=neutral",
        f"{US} (the best; dmarc=fail); dkim=pass header.d=people.example",
        f"{US}; dkim=pass header.d=example",
    ],
)
def test_what_our_server_found_true_is_believed(header: str) -> None:
    """DMARC, or DKIM or SPF for the domain of the From or one above it."""
    assert is_proven([header], US, ANNA)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [f"{US}; none"],
        [f"{US}"],
        ["mx.evil.example; dmarc=pass header.from=people.example"],
        [f"{US}.evil.example; dmarc=pass header.from=people.example"],
        [f"evil {US}; dmarc=pass"],
        [f"({US}); dmarc=pass"],
        [f"{US}; dmarc=fail header.from=people.example; dkim=pass header.d=people.example"],
        [f"{US}; dkim=pass header.d=people.example", f"{US}; dmarc=fail"],
        [f"{US}; dmarc=pass header.from=evil.example"],
        [f"{US}; dkim=pass header.d=evil.example"],
        [f"{US}; dkim=pass header.d=evil.example header.i=@people.example"],
        [f"{US}; dkim=pass header.i=@people.example header.s=k1"],
        [f"{US}; dkim=pass header.d=mail.people.example"],
        [f"{US}; dkim=pass header.d=ople.example"],
        [f"{US}; dkim=pass"],
        [f"{US}; dkim=fail header.d=people.example"],
        [f"{US}; dkim=passed header.d=people.example"],
        [f"{US}; spf=pass smtp.mailfrom=anna@people.example.evil.example"],
        [f"{US}; spf=pass smtp.helo=people.example"],
        [f"{US}; spf=none (dmarc=pass)"],
        [f"{US}; spf=fail (a (nested; dmarc=pass) comment; dmarc=pass)"],
        [f'{US}; spf=pass smtp.mailfrom="x; dmarc=pass header.from=people.example"@evil.example'],
        [f'{US}; spf=fail reason="; dmarc=pass"'],
        [f'{US}; spf=fail reason="\\"; dmarc=pass"'],
        [f"{US}; arc=pass header.d=people.example"],
        [f"{US}; dmarc=pass {'x' * 20_000}"],
    ],
)
def test_nothing_else_is(headers: list[str]) -> None:
    """Other servers' words, other domains, results inside of comments and quotes, and a DMARC that failed."""
    assert not is_proven(headers, US, ANNA)


FORGED = f"{US}; dmarc=pass header.from=people.example"
"""What the sender of a mail may write into it."""


@pytest.mark.parametrize(
    ("headers", "on_top", "believed"),
    [
        ([f"{US}; spf=softfail; dkim=none; dmarc=none", FORGED], 0, False),
        ([f"{US}; spf=softfail; dkim=none; dmarc=none", FORGED], 1, False),
        ([f"{US}; none", FORGED], 0, False),
        (["mx.other.example; dmarc=pass", f"{US}; dmarc=none", FORGED], 1, False),
        ([f"{US}; dmarc=none", f"{US}; spf=none", FORGED], 2, False),
        ([f"{US}; dmarc=none", f"{US}; dkim=pass header.d=people.example"], 2, True),
        ([f"{US}; dmarc=none", f"{US}; dkim=pass header.d=people.example"], 0, False),
        ([FORGED], 0, True),  # of a server that writes it below its Received; the docs say what it must do
        (["mx.other.example; dmarc=fail", FORGED], 0, True),
        ([FORGED, f"{US}; dmarc=fail"], 1, False),
    ],
)
def test_what_a_sender_forges_below_what_our_server_wrote_counts_for_nothing(
    headers: list[str], on_top: int, believed: bool
) -> None:
    """Above the first Received only servers write; without one there, the topmost of ours is the server's."""
    assert is_proven(headers, US, ANNA, on_top=on_top) is believed


@given(st.lists(st.text(alphabet=st.sampled_from(f'{US} ;=()"\\dmarckipassfl'), max_size=60), max_size=3))
def test_any_results_are_an_answer(headers: list[str]) -> None:
    """It never fails."""
    assert is_proven(headers, US, ANNA) in (True, False)


def test_long_headers_take_no_time() -> None:
    """What strangers write is read in a blink."""
    began = time.process_time()
    for header in ("(" * 9_999, '"' * 9_999, "a@" * 4_999, "a.a" * 3_000, f"{US};" + "dkim=pass;" * 900, "<" * 9_999):
        address_of([header])
        is_proven([header], US, ANNA)
    assert time.process_time() - began < 5
