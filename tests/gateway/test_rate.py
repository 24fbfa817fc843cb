from __future__ import annotations

import contextlib

import pytest
from structlog.testing import capture_logs

from gateway.channels.web.http.rates import NETWORKS, LoginBrake
from shared.errors import Refused
from shared.metrics import LOGINS_REFUSED, totals
from shared.process.token_bucket import TokenBucket
from tests.helpers.clock import HandClock

LONG, SHORT = "0123456789abcdef", "1234"


def test_a_burst_passes_and_then_the_rate() -> None:
    """Twenty at once, then five a second; a refusal says how long to wait."""
    bucket = TokenBucket(20, 5, 0.0)
    assert [bucket.try_acquire(0.0) for _ in range(20)] == [0.0] * 20
    assert bucket.try_acquire(0.0) == 0.2
    assert bucket.try_acquire(0.1) > 0
    assert bucket.try_acquire(0.2) == 0.0
    assert bucket.try_acquire(0.2) > 0


def test_waiting_never_saves_up_more_than_a_burst() -> None:
    """An hour of silence is no right to flood."""
    bucket = TokenBucket(3, 1, 0.0)
    assert [bucket.try_acquire(3600.0) for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]


def show(brake: LoginBrake, token: str, host: str = "10.0.0.1", *, right: bool = False) -> bool:
    """Whether a token passes the brake."""
    with contextlib.suppress(Refused):
        brake.check(token, host, right=right)
        return True
    return False


def test_an_address_has_ten_wrong_tokens_and_then_ten_a_minute() -> None:
    """The refusal says how long to wait. Other addresses do not notice it."""
    clock = HandClock()
    brake = LoginBrake(clock)
    assert [show(brake, f"wrong-{number}") for number in range(30)] == [True] * 10 + [False] * 20
    with pytest.raises(Refused, match="too many wrong tokens") as refused:
        brake.check("wrong", "10.0.0.1", right=False)
    assert 0 < refused.value.retry_after_s <= 6
    assert show(brake, "wrong", "10.0.0.2")
    clock.at += 6
    assert [show(brake, "wrong") for _ in range(2)] == [True, False]


def test_a_right_token_passes_unless_it_can_be_guessed() -> None:
    """People share the address of their proxy with whoever guesses. A short token that is right is refused like a
    wrong one, so 3,000 guesses of four digits are 10 that are answered."""
    brake = LoginBrake(HandClock())
    assert show(brake, SHORT, right=True)
    for number in range(3000):
        show(brake, str(number))
    assert show(brake, LONG, right=True)
    assert not show(brake, SHORT, right=True)
    assert show(brake, SHORT, "10.0.0.2", right=True)


def test_wrong_tokens_are_one_line_a_minute_and_counted() -> None:
    """However many come; the rest is logged when the minute is over."""
    clock = HandClock()
    brake = LoginBrake(clock)
    before = sum(totals(LOGINS_REFUSED).values())
    with capture_logs() as logs:
        for number in range(3000):
            show(brake, f"wrong-{number}", f"10.0.{number % 3}.1")
            brake.report()
        clock.at += 60
        brake.report()
        brake.report()
    assert [(line["event"], line["count"], line["addresses"]) for line in logs] == [
        ("logins refused", 1, 1),
        ("logins refused", 2999, 3),
    ]
    assert sum(totals(LOGINS_REFUSED).values()) == before + 3000


def test_only_so_many_addresses_are_remembered() -> None:
    """Memory is bounded, and the one that was wrong least recently is forgotten."""
    brake = LoginBrake(HandClock())
    for _ in range(11):
        show(brake, "wrong")
    for number in range(NETWORKS + 10):
        show(brake, "wrong", f"10.{number >> 8}.{number & 255}.9")
    assert len(brake._wrong) == NETWORKS
    assert show(brake, "wrong")
