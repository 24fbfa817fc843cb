"""What is called wrong, and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from console.top.fleet_snapshot import FleetSnapshot
from console.top.problems import Problem, problems
from shared.store.delivery.outbox import OutboxReading
from shared.store.fleet.presence import ProcessStats
from shared.store.fleet.provider_limits import RouteReading
from tests.helpers.fleet_seen import BROKEN, BUSY, IDLE, MODEL, REDIS, WAY, gateway, queue, worker


def wrong(found: FleetSnapshot, **fields: Any) -> list[Problem]:
    return problems(msgspec.structs.replace(found, **fields))


def test_nothing_is_wrong_with_a_fleet_that_works() -> None:
    """Idle or busy."""
    assert problems(IDLE) == problems(BUSY) == []


def test_everything_that_is_wrong_is_reported_the_worst_first() -> None:
    """One line each, and what to do in it."""
    found = problems(BROKEN)
    assert [one.code for one in found] == [
        "model_closed", "late", "late", "late", "undelivered", "stood_still", "replica", "fsync", "memory",
    ]  # fmt: skip
    assert all("\n" not in one.text for one in found)
    assert found[0].text == (f"nobody asks the model '{MODEL}' for 12 s: its provider asked for a pause; answers wait")


@pytest.mark.parametrize(("name", "limit_s"), [("turns", 30), ("background", 300), ("jobs", 300)])
def test_a_queue_is_late_when_somebody_would_be_called(name: str, limit_s: float) -> None:
    """From the age on at which the alerts fire; while nobody serves it that is what is told."""

    def queues(age_s: float) -> tuple[Any, ...]:
        return tuple(queue(one, 1, 0, age_s if one == name else 0.0) for one in ("turns", "background", "jobs"))

    assert wrong(IDLE, queues=queues(limit_s)) == []
    assert [one.code for one in wrong(IDLE, queues=queues(limit_s + 1))] == ["late"]
    nobody = wrong(IDLE, queues=queues(limit_s + 1), processes=(gateway(),))
    assert [one.code for one in nobody] == ["no_worker"] * 3


def test_who_is_late_is_given_a_reason() -> None:
    """Too few slots, or workers that do not take what they could."""
    late = (queue("turns", 5, 100, 31.0), queue("background"), queue("jobs"))
    [full] = wrong(IDLE, queues=late, processes=(gateway(), worker(running=100), worker("w2", draining=True)))
    assert full.text == "the oldest of 5 in queue 'turns' waits 31 s: all 100 slots are busy; start more workers"
    [free] = wrong(IDLE, queues=late, processes=(gateway(), worker(running=60)))
    assert free.text.endswith("waits 31 s: 40 of 100 slots are free, so look at the workers' logs")
    [jobs] = wrong(IDLE, queues=(queue("turns"), queue("background"), queue("jobs", 1, 1, 500.0)))
    assert "`shoal jobs list`" in jobs.text


def test_a_model_that_is_tried_again_is_no_problem_any_more() -> None:
    """Nor are a few faults in a row."""
    assert wrong(IDLE, provider_routes=(RouteReading(WAY, "trying", "overloaded"),)) == []
    assert wrong(IDLE, provider_routes=(RouteReading(WAY, "open", faults=4),)) == []
    [closed] = wrong(IDLE, provider_routes=(RouteReading("openai:ff", "closed", "overloaded", 3.0),))
    assert "'openai:ff' for 3.0 s: it failed for several chats in a row; answers wait" in closed.text


def test_nothing_is_well_while_turns_wait_for_a_model() -> None:
    """Also of a model that fails one chat alone, and of one that nobody asks."""
    [waits] = wrong(IDLE, model_waits=1)
    assert (waits.code, waits.text.startswith("1 turn waits for a model that failed")) == ("model_waits", True)
    closed = (RouteReading(WAY, "closed", "overloaded", 3.0),)
    [one] = wrong(IDLE, model_waits=7, provider_routes=closed)
    assert (one.code, one.text.endswith("7 turns wait")) == ("model_closed", True)


def test_a_refused_key_is_a_problem() -> None:
    """Until it is accepted."""
    [refused] = wrong(IDLE, provider_routes=(RouteReading(WAY, "open", refused=True),))
    assert (refused.code, refused.text.startswith(f"the provider of {MODEL!r} refuses the key")) == (
        "model_refused",
        True,
    )


def test_replies_may_wait_for_two_minutes() -> None:
    """A platform that asks for a pause is no emergency."""
    assert wrong(IDLE, outboxes=(OutboxReading("telegram", 900, 120.0), OutboxReading("slack", 0, 0.0))) == []
    [late] = wrong(IDLE, outboxes=(OutboxReading("telegram", 1, 121.0),))
    assert late.text.startswith("replies to 1 chat of 'telegram' are not delivered since up to 2 min 1 s")


def test_processes_that_stood_still_are_one_problem() -> None:
    """However many: three are named."""
    slow = tuple(worker(f"w{n}", stats=ProcessStats(lag_s=2.5)) for n in range(5))
    [result] = wrong(IDLE, processes=(gateway(), *slow, worker("fine", stats=ProcessStats(lag_s=1.0))))
    assert result.code == "stood_still"
    assert "worker w0 on host-of-w0, worker w1 on host-of-w1, worker w2 on host-of-w2 and 2 more" in result.text


def test_a_replica_that_is_mistaken_for_the_master_is_reported() -> None:
    """Everything looks idle there, and nothing can be written."""
    [result] = wrong(IDLE, redis=msgspec.structs.replace(REDIS, role="slave"))
    assert result.code == "replica"
    assert wrong(IDLE, redis=msgspec.structs.replace(REDIS, role=None)) == []
