"""What a process says of itself: from its own metrics, over a short while."""

from __future__ import annotations

from console.top.fleet_snapshot import aggregate
from shared.metrics import (
    ANSWER_SECONDS,
    EVENT_LOOP_LAG_SECONDS,
    FIRST_TOKEN_SECONDS,
    MESSAGES_ACCEPTED,
    MESSAGES_REFUSED,
    TURN_BUCKETS_S,
    TURN_SECONDS,
    TURNS,
)
from shared.process.stats import StatsReader
from shared.store.fleet.presence import PRESENCE_EVERY_S, Presence, ProcessStats
from tests.helpers.clock import HandClock


class Life:
    """A process whose time is moved by hand."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.reader = StatsReader(self.clock)

    def later(self, readings: int = 1) -> ProcessStats:
        """So many announcements further."""
        for _ in range(readings):
            self.clock.at += PRESENCE_EVERY_S
            stats = self.reader.read()
        return stats


def test_a_process_that_does_nothing_says_so() -> None:
    """Whatever its metrics counted before: only what comes while it is watched is told."""
    TURNS.labels("done").inc(100)
    ANSWER_SECONDS.labels("done").observe(3)
    stats = Life().later()
    assert stats == ProcessStats(memory_bytes=stats.memory_bytes)
    assert 1e6 < stats.memory_bytes < 2e9


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    """Ended turns are those that do not run again; a turn that was given back is none of them."""
    life = Life()
    for outcome, count in (("done", 6), ("stopped", 1), ("dead", 2), ("quarantine_ended", 1), ("released", 50)):
        TURNS.labels(outcome).inc(count)
    MESSAGES_ACCEPTED.labels("web").inc(5)
    MESSAGES_ACCEPTED.labels("telegram").inc(10)
    MESSAGES_REFUSED.labels("web", "busy").inc(5)
    stats = life.later()
    assert (stats.ended_per_s, stats.failed_per_s) == (2.0, 0.4)
    assert (stats.accepted_per_s, stats.refused_per_s) == (3.0, 1.0)
    assert life.later().ended_per_s == 1.0
    assert life.later().ended_per_s == 0.0


def test_times_are_those_of_the_last_minute() -> None:
    """In the buckets of the metrics, and one above them; whatever the outcome."""
    life = Life()
    FIRST_TOKEN_SECONDS.observe(0.3)
    TURN_SECONDS.observe(0.01)
    TURN_SECONDS.observe(5000)
    ANSWER_SECONDS.labels("done").observe(2)
    ANSWER_SECONDS.labels("failed").observe(2)
    stats = life.later()
    assert stats.first_token == (0, 0, 0, 1, *[0] * 12)
    assert stats.turn == (1, *[0] * 14, 1)
    assert sum(stats.answer) == stats.answer[TURN_BUCKETS_S.index(2.5)] == 2
    assert life.later(11).turn == stats.turn
    assert life.later().turn == ()


def test_the_worst_lag_of_the_event_loop_shows_for_five_seconds() -> None:
    """Rounded up to a bucket; over all buckets it is the last one."""
    life = Life()
    EVENT_LOOP_LAG_SECONDS.observe(0.002)
    EVENT_LOOP_LAG_SECONDS.observe(0.3)
    assert life.later().lag_s == 0.5
    EVENT_LOOP_LAG_SECONDS.observe(100)
    assert life.later().lag_s == 60
    assert life.later().lag_s == 0.0


def process(**reader: object) -> Presence:
    stats = ProcessStats(**reader)  # type: ignore[arg-type]
    return Presence(kind="worker", name="w", host="h", pid=1, started_at=0, version="0", stats=stats)


def buckets(**counts: int) -> tuple[int, ...]:
    """`le_0_5=3`: three in the bucket up to 0.5 s."""
    found = {float(name.removeprefix("le_").replace("_", ".")): count for name, count in counts.items()}
    return tuple(found.get(float(bound), 0) for bound in (*TURN_BUCKETS_S, float("inf")))


def test_figures_add_up_what_processes_say() -> None:
    """Rates as sums, times from all buckets together; of a release without vitals nothing."""
    silent = Presence(kind="worker", name="old", host="h", pid=1, started_at=0, version="0")
    stats = aggregate(
        [
            process(ended_per_s=1.5, failed_per_s=0.1, turn=buckets(le_1=10)),
            process(ended_per_s=0.25, turn=buckets(le_2_5=10), accepted_per_s=2.0, refused_per_s=0.5),
            silent,
        ]
    )
    assert (stats.ended_per_s, stats.failed_per_s, stats.accepted_per_s, stats.refused_per_s) == (1.75, 0.1, 2.0, 0.5)
    assert (stats.turn.count, stats.turn.p50_s, stats.turn.p95_s) == (20, 1.0, 2.35)
    assert (stats.answer.count, stats.answer.p50_s, stats.answer.p95_s) == (0, None, None)


def test_a_quantile_lies_where_the_dashboards_show_it() -> None:
    """As Prometheus' histogram_quantile: evenly within a bucket, from 0 in the first, the last bound above all."""
    stats = aggregate([process(turn=buckets(le_0_05=2))]).turn
    assert (stats.p50_s, stats.p95_s) == (0.025, 0.048)
    stats = aggregate([process(turn=buckets(le_0_5=1, le_inf=9))]).turn
    assert (stats.p50_s, stats.p95_s) == (900, 900)


def test_buckets_of_another_release_are_left_out() -> None:
    """Nobody knows what they mean."""
    stats = aggregate([process(turn=(1, 2, 3)), process(turn=buckets(le_1=4))]).turn
    assert stats.count == 4
