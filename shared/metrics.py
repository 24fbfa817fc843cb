"""Every metric, declared once. Names are a contract; labels have few values and never hold a chat
id. Each kind of process exports all of them; what it does not do stays at zero or has no series."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final, TypeVar

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
from prometheus_client.metrics import MetricWrapperBase

from shared.version import VERSION

# A second series for each counter, which no dashboard reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY: Final = CollectorRegistry()
_PROCESS: Final = ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 900)
TURN_BUCKETS_S: Final = _LONG  # upper bounds of the turn times in presence records
COUNTERS: Final[dict[str, Counter]] = {}  # by name without the prefix
Kind = TypeVar("Kind", Counter, Gauge, Histogram)


# A turn makes about 25 calls of metrics. The library's `labels` validates and locks (1.9 us against
# 0.1), its `observe` walks all buckets (1.8 us against 0.6): 4 % of the CPU of a whole turn. Our
# label sets are few and never removed, so a series can be kept once it was made.


def _kept(metric: Kind) -> Kind:
    """Let a metric keep each labelled series after its first use."""
    metric.labels = cache(metric.labels)  # type: ignore[method-assign]
    return metric


class _Histogram(Histogram):
    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Add an observation; the bucket is found by bisection."""
        assert exemplar is None
        self._sum.inc(amount)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(1)


def _count(name: str, help: str, *labels: str) -> Counter:
    COUNTERS[name] = _kept(Counter(f"shoal_{name}", help, labels, registry=REGISTRY))
    return COUNTERS[name]


def _gauge(name: str, help: str, *labels: str) -> Gauge:
    return _kept(Gauge(f"shoal_{name}", help, labels, registry=REGISTRY))


def _times(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return _kept(_Histogram(f"shoal_{name}", help, labels, buckets=buckets, registry=REGISTRY))


MESSAGES_ACCEPTED = _count("messages_accepted", "Messages from outside made durable.", "channel")
MESSAGES_REFUSED = _count("messages_refused", "Messages refused, by reason.", "channel", "reason")
MESSAGES_IGNORED = _count("messages_ignored", "Messages not meant for us, by reason.", "channel", "reason")
MESSAGES_DUPLICATE = _count("messages_duplicate", "Messages seen before and answered alike.", "channel")

MESSAGES_JOINED = _count("messages_joined", "Messages that joined a turn that another one began.")
MESSAGES_WITHDRAWN = _count("messages_withdrawn", "Messages taken back while they waited.", "channel")
ANSWERS_RATED = _count("answers_rated", "Ratings that people gave answers, or took back.", "rating")
APPROVALS = _count("approvals", "Questions whether a tool may run, and what became of them.", "outcome")
CLIENT_CALLS = _count("client_calls", "Calls of functions of programs, and what became of them.", "outcome")
WEBHOOKS = _count("webhooks", "Calls of webhooks of programs, in and out, by outcome.", "direction", "outcome")

TURNS = _count("turns", "Turns ended, by outcome.", "outcome")
TURN_SECONDS = _times("turn_seconds", "From the claim of a turn until this worker was done with it.", _LONG)
FIRST_TOKEN_SECONDS = _times(
    "first_token_seconds", "From the claim of a turn to its first text that people have not seen.", _LONG
)
TURNS_CONTINUED = _count("turns_continued", "Answers that went on with the text that was there, by reason.", "reason")
CHARACTERS_KEPT = _count("turns_continued_characters", "Characters that were not asked for again.", "reason")
ANSWER_SECONDS = _times(
    "answer_seconds", "From a message's acceptance to the end of its turn, by what the end was.", _LONG, "outcome"
)
TURNS_RUNNING = _gauge("turns_running", "Turns that run in this process now.")
TURN_TAKEOVERS = _count("turn_takeovers", "Turns taken over from another worker, by cause.", "cause")
STALE_WRITES_REFUSED = _count("stale_writes_refused", "Writes of a worker that had lost its lease.")
DEAD_LETTERS = _count("dead_letters", "Messages set aside, by reason.", "reason")
LEASE_RENEW_LATE = _count("lease_renew_late", "Leases renewed later than half their length.")
QUARANTINES = _count("quarantines", "Turns run in a child of their worker after two crashes, by the end.", "outcome")

OUTBOX_WAITING = _gauge("outbox_waiting", "Chats of which something is not delivered yet, in Redis.", "channel")
OUTBOX_OLDEST_SECONDS = _gauge("outbox_oldest_seconds", "How long the oldest undelivered line waits.", "channel")

QUEUE_WAIT_SECONDS = _times("queue_wait_seconds", "From due to claimed.", _QUICK, "queue")
QUEUE_DUE = _gauge("queue_due", "Entries that may run now and have no owner, in Redis.", "queue")
QUEUE_RUNNING = _gauge("queue_running", "Entries under a lease, in Redis.", "queue")
QUEUE_OLDEST_DUE_SECONDS = _gauge("queue_oldest_due_seconds", "How long the oldest due entry waits.", "queue")

MODEL_REQUESTS = _count("model_requests", "Model calls ended, by outcome.", "model", "outcome")
MODEL_SECONDS = _times("model_seconds", "From request to the reply's last token.", _LONG, "model")
MODEL_FIRST_TOKEN_SECONDS = _times(
    "model_first_token_seconds", "From a streamed request to the first piece of its reply.", _LONG, "model"
)
MODEL_TOKENS = _count("model_tokens", "Tokens used; direction is input or output.", "model", "direction")
MODEL_TOKENS_ESTIMATED = _count(
    "model_tokens_estimated", "Those tokens of model_tokens that no provider has counted.", "model", "direction"
)
MODEL_COST_USD = _count("model_cost_usd", "What model calls cost, as far as prices are known.", "model")
MODEL_THROTTLED = _count("model_throttled", "Calls held back for the fleet, by reason.", "model", "reason")
MODEL_BAD_REPLIES = _count("model_bad_replies", "Answers with an unusual field; most are read.", "model", "field")
TURNS_WAIT_FOR_MODEL = _gauge(
    "turns_wait_for_model", "Turns and subagents that wait because their model did not answer, in Redis."
)
CONSOLIDATIONS = _count("consolidations", "Pieces of conversations consolidated, by outcome.", "outcome")
HISTORY_DROPPED = _count("history_dropped", "Entries of conversations dropped because they were too long.")
COMMANDS = _count("commands", "Chat commands answered, by name.", "channel", "command")
SCHEDULES_FIRED = _count("schedules_fired", "Ticks of schedules, by what came of them.", "outcome")
BUDGETS_REACHED = _count("budgets_reached", "Turns ended because a chat's daily budget was used.", "budget")
TOOL_CALLS = _count("tool_calls", "Tool calls ended, by outcome.", "tool", "outcome")
TOOL_SECONDS = _times("tool_seconds", "How long tools ran.", _LONG, "tool")
SUBAGENTS = _count("subagents", "Subagents ended, by outcome.", "outcome")
SUBAGENT_RESULTS_DROPPED = _count("subagent_results_dropped", "Results whose conversation was over.")

DELIVERIES = _count("deliveries", "Lines that left the outbox of a chat, by outcome.", "channel", "outcome")
DELIVERY_UNKNOWN = _count("delivery_unknown", "Posts sent again after a send whose outcome was unknown.", "channel")
DELIVERY_NOT_FOUND = _count("delivery_not_found", "Posts sent again after a look-up did not find them.", "channel")
DELIVERY_FAILED_LATER = _count(
    "delivery_failed_later", "Posts that a platform took and then did not deliver.", "channel"
)
DELIVERY_SECONDS = _times("delivery_seconds", "From a line's time to its last post.", _LONG, "channel")
DELIVERY_CALLS = _count("delivery_calls", "Calls of chat platforms, by outcome.", "channel", "outcome")
CHANNEL_ON = _gauge("channel_on", "1 while a chat platform is connected, 0 while it is off or away.", "channel")

WEB_SOCKETS = _gauge("web_sockets", "Open web sockets of pages at this gateway.")
API_SECONDS = _times(
    "api_seconds", "Requests below /v1 and to /mcp, to the end of their answer, by HTTP status.", _LONG, "status"
)
PLACES = _gauge("places", "Work that all workers may run at once, draining ones apart, in Redis.", "queue")
WORKER_PLACES = _gauge("worker_places", "Work that the largest worker, all its processes, may run at once.", "queue")

PROCESSES = _gauge("processes", "Gateways and workers that say in Redis that they live.", "kind")
REDIS_UP = _gauge("redis_up", "1 when Redis answered the last reading, else 0.")
REDIS_MEMORY_BYTES = _gauge("redis_memory_bytes", "Memory that Redis uses; NaN when it does not tell.")
REDIS_MEMORY_LIMIT_BYTES = _gauge("redis_memory_limit_bytes", "Redis' maxmemory; 0 is none, NaN not told.")
REDIS_WRITES_OK = _gauge("redis_writes_ok", "0 when the last write of Redis' log failed; NaN is not told.")
REDIS_AOF_BYTES = _gauge("redis_aof_bytes", "Size of Redis' append-only file; NaN is not told.")
REDIS_AOF_BUSY_SECONDS = _gauge(
    "redis_aof_busy_seconds", "How long Redis was writing and syncing that file since its start; NaN is not told."
)
REDIS_LOSS_WINDOW_SECONDS = _gauge(
    "redis_loss_window_seconds", "How much that it confirmed Redis may forget in a crash; NaN is not told."
)
REDIS_LOSS_WINDOW_SECONDS.set(math.nan)
REDIS_KEYS_BROKEN = _gauge("redis_keys_broken", "Keys of the whole fleet that are of another type.")
REDIS_RESTART_SAFE = _gauge("redis_restart_safe", "0 when a restart may forget nearly everything; NaN is not told.")
REDIS_RESTART_SAFE.set(math.nan)
REDIS_CLOCK_AHEAD_SECONDS = _gauge("redis_clock_ahead_seconds", "How far Redis' clock is ahead of ours.")
REDIS_CLOCK_FELL_BACK = _count("redis_clock_fell_back", "Queues whose times were moved, as Redis' clock fell back.")
REDIS_SHORT_WRITES = _count("redis_short_writes", "Writes that fewer servers had in time than redis.copies.", "outcome")
REDIS_COMMAND_SECONDS = _times("redis_command_seconds", "How long Redis took, waiting calls apart.", _QUICK)
REDIS_RECONNECTS = _count("redis_reconnects", "Times Redis was away and came back.")
VOLUME_ROOM_BYTES = _gauge(
    "volume_room_bytes", "Room for files on a volume; below 0 they are refused. NaN: it does not answer.", "volume"
)
CONNECTION_PLACES = _gauge("connection_places", "Most connections that a listener keeps.", "listener", "who")
CONNECTIONS = _gauge("connections", "Connections that a listener has now.", "listener", "who")
CONNECTIONS_CUT = _count("connections_cut", "Connections that a listener ended, by reason.", "listener", "reason")
LOGINS_REFUSED = _count("logins_refused", "Wrong tokens, by whether their address had sent too many.", "braked")
FANOUT_GAPS = _count("fanout_gaps", "Times pub/sub was cut, and logs were read for what was said meanwhile.")
TRACE_SPANS_DROPPED = _count("trace_spans_dropped", "Spans of traces that no collector got.", "reason")
EVENT_LOOP_LAG_SECONDS = _times("event_loop_lag_seconds", "How late the event loop ran a timer.", _QUICK)
BUILD_INFO = _gauge("build_info", "Always 1; the release is in the label.", "version")
BUILD_INFO.labels(VERSION).set(1)


def _samples(metric: MetricWrapperBase, suffix: str) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield label values and value of this process's samples whose name ends so."""
    for family in metric.collect():
        for sample in family.samples:
            if sample.name.endswith(suffix):
                yield tuple(sample.labels.values()), sample.value


def totals(counter: Counter) -> dict[tuple[str, ...], float]:
    """Return the values of a counter in this process, by label values."""
    return dict(_samples(counter, "_total"))


def bucket_counts(histogram: Histogram) -> dict[float, int]:
    """Count our observations in each bucket, by its upper bound in s, over all labels."""
    upto: dict[float, int] = {}
    for (*_, bound), count in _samples(histogram, "_bucket"):
        upto[float(bound)] = upto.get(float(bound), 0) + int(count)
    pairs = pairwise([-1.0, *sorted(upto)])
    return {bound: upto[bound] - upto.get(below, 0) for below, bound in pairs}


def observed(histogram: Histogram) -> dict[tuple[str, ...], tuple[int, float]]:
    """Return number and sum of this process's observations, by label values."""
    sums = dict(_samples(histogram, "_sum"))
    return {labels: (int(n), sums[labels]) for labels, n in _samples(histogram, "_count") if n}


def memory_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not say."""
    for one in _PROCESS.collect():
        if one.name.endswith("_resident_memory_bytes"):
            return int(one.samples[0].value)
    return 0


def render() -> tuple[bytes, str]:
    """Render all metrics in Prometheus' text format; returns the text and its content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST
