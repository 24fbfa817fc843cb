"""The long run of the state machine: `pytest tests/shared/store/test_state_machine.py --hypothesis-profile=long`."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import HealthCheck, settings

settings.register_profile(
    "long",
    max_examples=20_000,
    stateful_step_count=100,
    deadline=timedelta(minutes=1),
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
