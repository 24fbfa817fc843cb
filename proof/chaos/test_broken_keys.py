"""A few broken keys in every `make test-all`; `python -m proof.chaos.broken_keys` breaks all, in four ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.chaos.broken_keys import Case, broken_keys
from shared.store import keys

CASES: list[Case] = [
    (keys.session, "wrong type"),
    (keys.session, "deleted"),
    (keys.session, "random bytes"),
    (keys.outbox, "wrong type"),
    (keys.inbox, "deleted"),
    (keys.PRESENCE, "wrong type"),
    (keys.FAIR_KEYS, "wrong type"),
    (keys.IDLE, "wrong type"),
    (keys.wake, "wrong type"),
]


@pytest.mark.timeout(300)
async def test_a_broken_key_ends_no_process_closes_no_socket_and_makes_nobody_mute(tmp_path: Path) -> None:
    """Every chat is answered once it is mended. That p99 of the others at most doubles is for the program to judge:
    a few seconds of messages, with other tests on the machine, do not show it."""
    rows = await broken_keys(tmp_path, cases=CASES, seconds=0.1, seed=3, lease_s=5, before_s=0.5)
    assert [row for row in rows if row.kept is False and "p99" not in row.name] == []
