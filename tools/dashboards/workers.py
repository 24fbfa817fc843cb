"""Leases, tools, background work and processes."""

from __future__ import annotations

from typing import Final

from tools.dashboards.panels import RATE, Board, Panel, Query, Row, rate_by, slow_by, spread

OF_SHOAL: Final = "and on (namespace, instance, job) shoal_build_info"
"""Leaves out what Prometheus scrapes beside Shoal."""

WORKERS: Final = Board(
    "shoal-workers",
    "Shoal: workers",
    "Leases, tools and processes.",
    (
        Row(
            "Turns",
            (
                Panel("Running", "short", (Query("shoal_turns_running", "{{instance}}"),), "In each process."),
                Panel(
                    "Ends of turns",
                    "ops",
                    rate_by("shoal_turns_total", "outcome"),
                    "`released` is a drain or a border.",
                ),
                Panel(
                    "Taken over",
                    "short",
                    (Query("sum by (cause) (shoal:turn_takeovers:increase15m)", "{{cause}}"),),
                    "In 15 minutes: `crash` is a worker that died, `lapsed` a lease that ran out.",
                ),
                Panel(
                    "Lost leases",
                    "ops",
                    rate_by("shoal_stale_writes_refused_total"),
                    "Turns whose lease was gone when they ended: the fence at work, or a `/new`.",
                ),
                Panel(
                    "Late renewals", "ops", rate_by("shoal_lease_renew_late_total"), "Redis or the event loop was slow."
                ),
                Panel(
                    "Quarantine",
                    "ops",
                    rate_by("shoal_quarantines_total", "outcome"),
                    "Turns that were in two crashes, run in child processes; `guilty` is one that kills.",
                ),
                Panel(
                    "History dropped",
                    "ops",
                    rate_by("shoal_history_dropped_total"),
                    "Entries of conversations that grew too long before they were consolidated.",
                ),
            ),
        ),
        Row(
            "Tools and background work",
            (
                Panel("Tool calls", "ops", rate_by("shoal_tool_calls_total", "tool", "outcome"), "By tool and end."),
                Panel("Approvals", "ops", rate_by("shoal_approvals_total", "outcome"), "Tools that ask people first."),
                Panel(
                    "Functions of programs",
                    "ops",
                    rate_by("shoal_client_calls_total", "outcome"),
                    "Calls that programs run themselves.",
                ),
                Panel("Slow tools", "s", slow_by("shoal_tool_seconds", "tool"), "95 % were quicker."),
                Panel(
                    "Wait of jobs",
                    "s",
                    spread("shoal_queue_wait_seconds", '{queue="jobs"}'),
                    "Subagents, memory, schedules.",
                ),
                Panel("Subagents", "ops", rate_by("shoal_subagents_total", "outcome"), "By end."),
                Panel(
                    "Subagents' results dropped",
                    "ops",
                    rate_by("shoal_subagent_results_dropped_total"),
                    "Their conversation was over.",
                ),
                Panel(
                    "Memory",
                    "ops",
                    rate_by("shoal_consolidations_total", "outcome"),
                    "`raw` and `put_off`: no model could sum a piece up.",
                ),
                Panel(
                    "Schedules",
                    "ops",
                    rate_by("shoal_schedules_fired_total", "outcome"),
                    "Ticks, by what came of them.",
                ),
            ),
        ),
        Row(
            "Processes",
            (
                Panel(
                    "Event loop late",
                    "s",
                    slow_by("shoal_event_loop_lag_seconds", "instance"),
                    "95 % of timers were less late. Leases are renewed by this loop.",
                ),
                Panel(
                    "CPU",
                    "percentunit",
                    (Query(f"rate(process_cpu_seconds_total[{RATE}]) {OF_SHOAL}", "{{instance}}"),),
                    "Of one core.",
                ),
                Panel(
                    "Memory in use",
                    "bytes",
                    (Query(f"process_resident_memory_bytes {OF_SHOAL}", "{{instance}}"),),
                    "Resident.",
                ),
                Panel(
                    "Open files",
                    "percentunit",
                    (Query(f"process_open_fds / process_max_fds {OF_SHOAL}", "{{instance}}"),),
                    "Of what the process may open.",
                ),
                Panel(
                    "Connections",
                    "percentunit",
                    (Query("shoal_connections / shoal_connection_places", "{{instance}} {{listener}} {{who}}"),),
                    "Of the places that a listener has. Strangers are those without a valid token or signature.",
                ),
                Panel(
                    "Connections ended early",
                    "ops",
                    rate_by("shoal_connections_cut_total", "listener", "reason"),
                    "Too slow, or to make room for others.",
                ),
                Panel(
                    "Wrong tokens",
                    "ops",
                    rate_by("shoal_logins_refused_total", "braked"),
                    "`yes`: their address had sent too many.",
                ),
                Panel(
                    "Up for",
                    "s",
                    (Query(f"time() - process_start_time_seconds {OF_SHOAL}", "{{instance}}"),),
                    "A saw is a process that dies again and again.",
                ),
                Panel(
                    "Traces lost",
                    "ops",
                    rate_by("shoal_trace_spans_dropped_total", "reason"),
                    "Spans that no collector got; `failed`: it is away or refuses them.",
                ),
            ),
        ),
    ),
)
