"""Every metric, declared once. Names are a contract; labels have few values and never hold a chat id.

Each kind of process exports all of them; what it does not do stays at zero or without a series.
"""

from __future__ import annotations

from typing import Final

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
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 900)


def _counter(name: str, help: str, *labels: str) -> Counter:
    return Counter(f"shoal_{name}", help, labels, registry=REGISTRY)


def _gauge(name: str, help: str, *labels: str) -> Gauge:
    return Gauge(f"shoal_{name}", help, labels, registry=REGISTRY)


def _histogram(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(f"shoal_{name}", help, labels, buckets=buckets, registry=REGISTRY)


MESSAGES_ACCEPTED: Final = _counter("messages_accepted", "Messages from outside made durable.", "channel")
MESSAGES_REFUSED: Final = _counter("messages_refused", "Messages refused, by reason.", "channel", "reason")
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

PROCESSES: Final = _gauge("processes", "Gateways and workers that say in Redis that they live.", "kind")
REDIS_UP: Final = _gauge("redis_up", "1 when Redis answered the last reading, else 0.")
REDIS_MEMORY_BYTES: Final = _gauge("redis_memory_bytes", "Memory that Redis uses; NaN when it does not tell.")
REDIS_MEMORY_LIMIT_BYTES: Final = _gauge("redis_memory_limit_bytes", "Redis' maxmemory; 0 is none, NaN not told.")
REDIS_WRITES_OK: Final = _gauge("redis_writes_ok", "0 when the last write of Redis' log failed; NaN is not told.")
REDIS_CLOCK_AHEAD_SECONDS: Final = _gauge("redis_clock_ahead_seconds", "How far Redis' clock is ahead of ours.")
REDIS_COMMAND_SECONDS: Final = _histogram("redis_command_seconds", "How long Redis took, waiting calls apart.", _QUICK)
REDIS_RECONNECTS: Final = _counter("redis_reconnects", "Times Redis was away and came back.")
EVENT_LOOP_LAG_SECONDS: Final = _histogram("event_loop_lag_seconds", "How late the event loop ran a timer.", _QUICK)
BUILD_INFO: Final = _gauge("build_info", "Always 1; the release is in the label.", "version")
BUILD_INFO.labels(VERSION).set(1)


def render() -> tuple[bytes, str]:
    """All metrics in Prometheus' text format, and its content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST
