"""The one store, as Shoal sees it."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import RATE, Board, Panel, Query, Row, newest, number, rate_by, spread

REDIS: Final = Board(
    "shoal-redis",
    "Shoal: Redis",
    "As Shoal sees its one store.",
    (
        Row(
            "Server",
            (
                number("Answers", "short", "min(shoal_redis_up)", "1 when it answered every process.", warn=1, bad=0.5),
                number(
                    "Writes its log",
                    "short",
                    "min(shoal_redis_writes_ok)",
                    "0: its disk is full or broken, and it refuses writes.",
                    warn=1,
                    bad=0.5,
                ),
                number(
                    "May forget",
                    "s",
                    "max(shoal_redis_loss_window_seconds)",
                    "Of what it confirmed, in a crash; no data: it does not tell.",
                    warn=0.001,
                    bad=60,
                ),
                number(
                    "Broken keys",
                    "short",
                    "max(shoal_redis_keys_broken)",
                    "Keys of the whole fleet of another type; `shoal doctor` names them.",
                    warn=1,
                    bad=1,
                ),
                number(
                    "Room for files",
                    "bytes",
                    "min(shoal_volume_room_bytes)",
                    "On the fullest volume, above what must stay free; below 0 files are refused.",
                    warn=1e9,
                    bad=0,
                ),
                number(
                    "Restart is safe",
                    "short",
                    "min(shoal_redis_restart_safe)",
                    "0: the next restart may forget nearly everything; no data: it does not tell.",
                    warn=1,
                    bad=0.5,
                ),
            ),
        ),
        Row(
            "Memory",
            (
                Panel(
                    "Memory",
                    "bytes",
                    (
                        Query("max(shoal_redis_memory_bytes)", "used"),
                        Query("max(shoal_redis_memory_limit_bytes)", "limit (0: none)"),
                    ),
                    "At the limit new messages are refused.",
                    width=24,
                ),
            ),
        ),
        Row(
            "Append-only file",
            (
                Panel(
                    "Size of its log",
                    "bytes",
                    newest("shoal_redis_aof_bytes"),
                    "It falls when Redis rewrites it, which needs as much room again.",
                    width=12,
                    alert="ShoalDiskFull",
                ),
                Panel(
                    "Writing and syncing",
                    "percentunit",
                    (Query(f"max(rate(shoal_redis_aof_busy_seconds[{RATE}]))", "of its time"),),
                    "With appendfsync always every message waits for this. No data: Redis before 7.2 does not tell.",
                    width=12,
                    alert="ShoalRedisSlow",
                ),
            ),
        ),
        Row(
            "Commands",
            (
                Panel(
                    "How long",
                    "s",
                    spread("shoal_redis_command_seconds"),
                    "On the way and in the server; calls that wait for work apart.",
                ),
                Panel(
                    "How many",
                    "ops",
                    rate_by("shoal_redis_command_seconds_count", "instance"),
                    "Scripts and commands; a pipeline is one.",
                ),
                Panel(
                    "Clock ahead",
                    "s",
                    (Query("shoal_redis_clock_ahead_seconds", "{{instance}}"),),
                    "Of each process's own.",
                ),
                Panel(
                    "Clock fell back",
                    "short",
                    (Query("sum(increase(shoal_redis_clock_fell_back_total[15m]))", "queues"),),
                    "Queues whose times were moved for it in 15 minutes.",
                ),
                Panel(
                    "Too few copies",
                    "ops",
                    rate_by("shoal_redis_short_writes_total", "outcome"),
                    "Writes that fewer servers had in time than redis.copies.",
                ),
                Panel(
                    "Away and back", "ops", rate_by("shoal_redis_reconnects_total"), "Each process counts for itself."
                ),
                Panel(
                    "Pub/sub cut",
                    "ops",
                    rate_by("shoal_fanout_gaps_total"),
                    "Gateways read the logs then: nothing is missing, words come late.",
                ),
            ),
        ),
    ),
)
