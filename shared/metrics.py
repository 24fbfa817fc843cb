"""Every metric, declared once. Names are a contract; labels have few values and never hold a chat
id.

Each kind of process exports all of them; what it does not do stays at zero or has no series.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any, Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from shared.version import VERSION

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter that no dashboard reads

REGISTRY: Final = CollectorRegistry()
_PROCESS: Final = ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 900)
TURN_BUCKETS_S: Final = _LONG
"""Upper bounds of the turn times in presence records."""


COUNTERS: Final[dict[str, Counter]] = {}
"""Every counter, by its name without the prefix."""


# A turn makes about 25 calls of metrics. The library's `labels` validates and locks (1.9 us against
# 0.1), its `observe` walks all buckets (1.8 us against 0.6): 4 % of the CPU of a whole turn. Our
# label sets are few and never removed, so a series can be kept once it was made.


class _KeptSeries:
    """Mixin that keeps each labelled series after its first use."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._kept: dict[tuple[str, ...], Any] = {}
        super().__init__(*args, **options)

    def labels(self, *values: Any, **named: Any) -> Any:
        """Return the series of these label values."""
        if named:
            return super().labels(*values, **named)  # type: ignore[misc]
        try:
            return self._kept[values]
        except KeyError:
            return self._kept.setdefault(values, super().labels(*values))  # type: ignore[misc]


class _Counter(_KeptSeries, Counter):
    pass


class _Gauge(_KeptSeries, Gauge):
    pass


class _Histogram(_KeptSeries, Histogram):
    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Add an observation; the bucket is found by bisection."""
        assert exemplar is None
        self._sum.inc(amount)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(1)


def _counter(name: str, help: str, *labels: str) -> Counter:
    COUNTERS[name] = _Counter(f"shoal_{name}", help, labels, registry=REGISTRY)
    return COUNTERS[name]


def _gauge(name: str, help: str, *labels: str) -> Gauge:
    return _Gauge(f"shoal_{name}", help, labels, registry=REGISTRY)


def _histogram(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return _Histogram(f"shoal_{name}", help, labels, buckets=buckets, registry=REGISTRY)


MESSAGES_ACCEPTED: Final = _counter("messages_accepted", "Messages from outside made durable.", "channel")
MESSAGES_REFUSED: Final = _counter("messages_refused", "Messages refused, by reason.", "channel", "reason")
MESSAGES_IGNORED: Final = _counter("messages_ignored", "Messages not meant for us, by reason.", "channel", "reason")
MESSAGES_DUPLICATE: Final = _counter("messages_duplicate", "Messages seen before and answered alike.", "channel")

MESSAGES_JOINED: Final = _counter("messages_joined", "Messages that joined a turn that another one began.")
MESSAGES_WITHDRAWN: Final = _counter("messages_withdrawn", "Messages taken back while they waited.", "channel")
APPROVALS: Final = _counter("approvals", "Questions whether a tool may run, and what became of them.", "outcome")

TURNS: Final = _counter("turns", "Turns ended, by outcome.", "outcome")
TURN_SECONDS: Final = _histogram("turn_seconds", "From the claim of a turn until this worker was done with it.", _LONG)
FIRST_TOKEN_SECONDS: Final = _histogram("first_token_seconds", "From the claim of a turn to its first text.", _LONG)
ANSWER_SECONDS: Final = _histogram(
    "answer_seconds", "From a message's acceptance to the end of its turn, by what the end was.", _LONG, "outcome"
)
TURNS_RUNNING: Final = _gauge("turns_running", "Turns that run in this process now.")
TURN_TAKEOVERS: Final = _counter("turn_takeovers", "Turns taken over from another worker, by cause.", "cause")
STALE_WRITES_REFUSED: Final = _counter("stale_writes_refused", "Writes of a worker that had lost its lease.")
DEAD_LETTERS: Final = _counter("dead_letters", "Messages set aside, by reason.", "reason")
LEASE_RENEW_LATE: Final = _counter("lease_renew_late", "Leases renewed later than half their length.")
QUARANTINES: Final = _counter("quarantines", "Turns run in a process of their own, by what became of it.", "outcome")

OUTBOX_WAITING: Final = _gauge("outbox_waiting", "Chats of which something is not delivered yet, in Redis.", "channel")
OUTBOX_OLDEST_SECONDS: Final = _gauge("outbox_oldest_seconds", "How long the oldest undelivered line waits.", "channel")

QUEUE_WAIT_SECONDS: Final = _histogram("queue_wait_seconds", "From due to claimed.", _QUICK, "queue")
QUEUE_DUE: Final = _gauge("queue_due", "Entries that may run now and have no owner, in Redis.", "queue")
QUEUE_RUNNING: Final = _gauge("queue_running", "Entries under a lease, in Redis.", "queue")
QUEUE_OLDEST_DUE_SECONDS: Final = _gauge("queue_oldest_due_seconds", "How long the oldest due entry waits.", "queue")

MODEL_REQUESTS: Final = _counter("model_requests", "Model calls ended, by outcome.", "model", "outcome")
MODEL_SECONDS: Final = _histogram("model_seconds", "From request to the reply's last token.", _LONG, "model")
MODEL_TOKENS: Final = _counter("model_tokens", "Tokens used; direction is input or output.", "model", "direction")
MODEL_COST_USD: Final = _counter("model_cost_usd", "What model calls cost, as far as prices are known.", "model")
MODEL_THROTTLED: Final = _counter("model_throttled", "Calls held back for the fleet, by reason.", "model", "reason")
CONSOLIDATIONS: Final = _counter("consolidations", "Pieces of conversations consolidated, by outcome.", "outcome")
HISTORY_DROPPED: Final = _counter("history_dropped", "Entries of conversations dropped because they were too long.")
COMMANDS: Final = _counter("commands", "Chat commands answered, by name.", "channel", "command")
SCHEDULES_FIRED: Final = _counter("schedules_fired", "Ticks of schedules, by what came of them.", "outcome")
BUDGETS_REACHED: Final = _counter("budgets_reached", "Turns ended because a chat's daily budget was used.", "budget")
TOOL_CALLS: Final = _counter("tool_calls", "Tool calls ended, by outcome.", "tool", "outcome")
TOOL_SECONDS: Final = _histogram("tool_seconds", "How long tools ran.", _LONG, "tool")
SUBAGENTS: Final = _counter("subagents", "Subagents ended, by outcome.", "outcome")
SUBAGENT_RESULTS_DROPPED: Final = _counter("subagent_results_dropped", "Results whose conversation was over.")

DELIVERIES: Final = _counter("deliveries", "Lines that left the outbox of a chat, by outcome.", "channel", "outcome")
DELIVERY_UNKNOWN: Final = _counter("delivery_unknown", "Posts sent again, as nobody knew of the first time.", "channel")
DELIVERY_FAILED_LATER: Final = _counter(
    "delivery_failed_later", "Posts that a platform took and then did not deliver.", "channel"
)
DELIVERY_SECONDS: Final = _histogram("delivery_seconds", "From a line's time to its last post.", _LONG, "channel")
DELIVERY_CALLS: Final = _counter("delivery_calls", "Calls of chat platforms, by outcome.", "channel", "outcome")
CHANNEL_ON: Final = _gauge("channel_on", "1 while a chat platform is connected, 0 while it is off or away.", "channel")

PROCESSES: Final = _gauge("processes", "Gateways and workers that say in Redis that they live.", "kind")
REDIS_UP: Final = _gauge("redis_up", "1 when Redis answered the last reading, else 0.")
REDIS_MEMORY_BYTES: Final = _gauge("redis_memory_bytes", "Memory that Redis uses; NaN when it does not tell.")
REDIS_MEMORY_LIMIT_BYTES: Final = _gauge("redis_memory_limit_bytes", "Redis' maxmemory; 0 is none, NaN not told.")
REDIS_WRITES_OK: Final = _gauge("redis_writes_ok", "0 when the last write of Redis' log failed; NaN is not told.")
REDIS_LOSS_WINDOW_SECONDS: Final = _gauge(
    "redis_loss_window_seconds", "How much that it confirmed Redis may forget in a crash; NaN is not told."
)
REDIS_LOSS_WINDOW_SECONDS.set(math.nan)
REDIS_CLOCK_AHEAD_SECONDS: Final = _gauge("redis_clock_ahead_seconds", "How far Redis' clock is ahead of ours.")
REDIS_COMMAND_SECONDS: Final = _histogram("redis_command_seconds", "How long Redis took, waiting calls apart.", _QUICK)
REDIS_RECONNECTS: Final = _counter("redis_reconnects", "Times Redis was away and came back.")
FANOUT_GAPS: Final = _counter("fanout_gaps", "Times pub/sub was cut, and logs were read for what was said meanwhile.")
TRACE_SPANS_DROPPED: Final = _counter("trace_spans_dropped", "Spans of traces that no collector got.", "reason")
EVENT_LOOP_LAG_SECONDS: Final = _histogram("event_loop_lag_seconds", "How late the event loop ran a timer.", _QUICK)
BUILD_INFO: Final = _gauge("build_info", "Always 1; the release is in the label.", "version")
BUILD_INFO.labels(VERSION).set(1)


def totals(counter: Counter) -> dict[tuple[str, ...], float]:
    """Return the values of a counter in this process, by label values."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in counter.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }


def bucket_counts(histogram: Histogram) -> dict[float, int]:
    """Count this process's observations in each bucket, by its upper bound in s, over all
    labels."""
    upto: dict[float, int] = {}
    for family in histogram.collect():
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                bound = float(sample.labels["le"])
                upto[bound] = upto.get(bound, 0) + int(sample.value)
    bounds = sorted(upto)
    return {bound: upto[bound] - upto.get(below, 0) for below, bound in zip([-1.0, *bounds], bounds, strict=False)}


def observed(histogram: Histogram) -> dict[tuple[str, ...], tuple[int, float]]:
    """Return number and sum of this process's observations, by label values."""
    many: dict[tuple[str, ...], int] = {}
    sums: dict[tuple[str, ...], float] = {}
    for family in histogram.collect():
        for sample in family.samples:
            labels = tuple(sample.labels.values())
            if sample.name.endswith("_count"):
                many[labels] = int(sample.value)
            elif sample.name.endswith("_sum"):
                sums[labels] = sample.value
    return {labels: (count, sums[labels]) for labels, count in many.items() if count}


def memory_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not say."""
    return next(
        (int(one.samples[0].value) for one in _PROCESS.collect() if one.name.endswith("_resident_memory_bytes")), 0
    )


def render() -> tuple[bytes, str]:
    """Render all metrics in Prometheus' text format; returns the text and its content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST
