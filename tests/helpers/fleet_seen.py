"""Fleets as the console sees them, made by hand: an idle, a busy and a broken one."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from console.top.fleet_snapshot import FleetSnapshot
from shared.store.delivery.outbox import OutboxReading
from shared.store.fleet.presence import Presence, ProcessStats, QueueReading
from shared.store.fleet.provider_limits import RouteReading
from shared.store.fleet.redis_server import ServerFacts
from shared.store.turns.dead_letters import DeadLetterEntry

NOW_MS: Final = 1_800_000_000_000
WAY: Final = "anthropic:0123456789ab"
MODEL: Final = "anthropic/claude"

REDIS: Final = ServerFacts(
    product="valkey", version="9.1.2", speaks="7.2.4", policy="noeviction", append_only=True, fsync="always",
    writes_ok=True, restart_safe=True, used_bytes=40 << 20, limit_bytes=1 << 30, clients=42, clients_limit=10_000,
    commands_per_s=8412, evicted_keys=0, role="master", up_s=86_400, clock_ahead_s=0.0, ping_s=0.0003,
)  # fmt: skip


def worker(name: str = "w1", **fields: Any) -> Presence:
    """One that runs 12 of 100 turns; `stats` as given."""
    given: dict[str, Any] = {
        "host": f"host-of-{name}", "pid": 7, "started_at": NOW_MS - 3_600_000, "version": "0.1.0", "running": 12,
        "slots": 100, "details": {"model": MODEL, "queues": "turns,jobs"}, "provider_routes": {MODEL: WAY},
        "stats": ProcessStats(memory_bytes=120 << 20, lag_s=0.0025, ended_per_s=3.0),
    }  # fmt: skip
    return Presence(kind="worker", name=name, **{**given, **fields})


def gateway(name: str = "g1", **fields: Any) -> Presence:
    """One of the web channel with 30 sockets."""
    given: dict[str, Any] = {
        "host": f"host-of-{name}", "pid": 8, "started_at": NOW_MS - 3_600_000, "version": "0.1.0",
        "details": {"channels": "web", "web.address": "127.0.0.1:8080", "web.sockets": "30"},
        "stats": ProcessStats(memory_bytes=70 << 20, lag_s=0.001, accepted_per_s=2.5),
    }  # fmt: skip
    return Presence(kind="gateway", name=name, **{**given, **fields})


def queue(name: str, due: int = 0, running: int = 0, oldest_due_s: float = 0.0) -> QueueReading:
    return QueueReading(name, due, running, 0, oldest_due_s)


IDLE: Final = FleetSnapshot(
    queues=(queue("turns"), queue("background"), queue("jobs")), processes=(gateway(), worker(running=0)),
    redis=REDIS, dead_letters=0, at_ms=NOW_MS, provider_routes=(RouteReading(WAY, "open"),),
)  # fmt: skip

BUSY: Final = msgspec.structs.replace(
    IDLE,
    queues=(queue("turns", 40, 600, 1.5), queue("background", 3, 1, 12.0), queue("jobs", 0, 9)),
    processes=(*(gateway(f"gateway-{n}") for n in range(3)), *(worker(f"worker-{n:02}") for n in range(20))),
    outboxes=(OutboxReading("telegram", 7, 3.0),),
)

BROKEN: Final = msgspec.structs.replace(
    BUSY,
    queues=(queue("turns", 40, 300, 96.0), queue("background", 3, 1, 400.0), queue("jobs", 2, 9, 301.0)),
    processes=(
        gateway(stats=ProcessStats(refused_per_s=1.5)),
        *(worker(f"worker-{n}", running=100, stats=ProcessStats(lag_s=2.5 * n, failed_per_s=0.2)) for n in range(3)),
        worker("worker-3", draining=True, version="0.2.0"),
    ),
    redis=msgspec.structs.replace(REDIS, fsync="everysec", role="slave", used_bytes=900 << 20, evicted_keys=5),
    provider_routes=(RouteReading(WAY, "closed", "rate_limit", 12.0),),
    outboxes=(OutboxReading("telegram", 7, 400.0),),
    dead_letters=3,
    newest_letter=DeadLetterEntry(f"{NOW_MS - 60_000}-0", "ab12cd34", "model_away", "web:owner/a", 1, 100),
)
