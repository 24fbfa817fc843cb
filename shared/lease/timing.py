"""The times of a lease. One rule for turns, jobs, chat deliveries and listeners. Standard library
only: the guardian imports it."""

from __future__ import annotations

from typing import Final

RENEWALS_PER_LEASE: Final = 5

SAFE_SHARE: Final = 0.75
"""Part of the lease, counted from when its last granted renewal was sent, in which its owner may
act. The rest is for clocks that differ and for writes that are on their way."""


def renewal_period_s(lease_s: float) -> float:
    """Return the seconds between two renewals."""
    return lease_s / RENEWALS_PER_LEASE


def safe_period_s(lease_s: float) -> float:
    """Return the seconds after a granted renewal was sent in which its owner may act."""
    return SAFE_SHARE * lease_s
