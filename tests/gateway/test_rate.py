from __future__ import annotations

from gateway.channels.web.http.auth import TokenBucket


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
