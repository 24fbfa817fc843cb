"""The figures in docs/performance.md: tables between marks, written anew from the reports of all runs.

A table stands between `<!-- figures: name -->` and `<!-- end -->`. What no report says is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from proof.bench import targets
from proof.bench.table import merged
from proof.bench.targets import Reports, Row

_BLOCK: Final = re.compile(r"(<!-- figures: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
BUSY: Final = 2.5
"""A load above this before a bench is not that of the bench before it."""

SHOWN: Final = 0.01
"""Parts of less than this share of a turn are one row."""


def filled(page: str, runs: Sequence[Reports]) -> str:
    """The page with the tables of these runs. Raises KeyError for a mark that no table has."""
    tables: dict[str, Callable[[], list[str]]] = {name: partial(table, merged(runs)) for name, table in TABLES.items()}
    tables |= {"machine": partial(machine, runs), "targets": partial(reached, runs)}

    def fill(match: re.Match[str]) -> str:
        lines = tables[match[2]]()
        return match[0] if not lines else match[1] + "".join(f"{line}\n" for line in lines) + match[4]

    return _BLOCK.sub(fill, page)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return lines if len(lines) > 2 else []


def machine(runs: Sequence[Reports]) -> list[str]:
    """Where and when the figures are from."""
    reports = [report for run in runs for report in run.values()]
    result = {report.machine for report in reports}
    quick = " These are from a quick look and mean little." if any(one.quick for one in reports) else ""
    most = max((report.load for report in reports), default=0.0)
    busy = f" Other work was on the machine (load up to {most:.1f}): nothing here is final." if most > BUSY else ""
    times = sorted(report.at for report in reports if report.at)
    when = f" {len(runs)} runs, {times[0]} to {times[-1]} UTC." if times else ""
    return [f"Measured on: {one}.{when}{quick}{busy}" for one in sorted(result)]


def reached(runs: Sequence[Reports]) -> list[str]:
    """The table of targets."""
    rows = (
        (row.target, row.wanted, row.reached or "-", row.worst or "-", _verdict(row), f"`{row.bench}`")
        for row in targets.rows(runs)
    )
    return _table(("target", "wanted", "median run", "worst run", "", "bench"), rows) if runs else []


def _verdict(row: Row) -> str:
    if row.reached is None:
        return "-"
    return "yes" if row.held else "**not always**" if row.met else "**no**"


def pickup(reports: Reports) -> list[str]:
    """How long from a push to its reply, at each pace."""
    if "pickup" not in reports:
        return []
    report = reports["pickup"]
    sides = [one.name.removesuffix(": p50") for one in report.figures if one.name.endswith(": p50")]
    columns = (("p50", "{:.2f}"), ("p99", "{:.2f}"), ("worker", "{:.2f}"), ("Redis", "{:.2f}"))
    rows = ((side, *(form.format(report.get(f"{side}: {what}")) for what, form in columns)) for side in sides)
    return _table(("side", "p50, ms", "p99, ms", "worker, ms CPU a turn", "Redis, ms CPU a turn"), rows)


def profile(reports: Reports) -> list[str]:
    """Where the CPU of a turn goes."""
    if "turn" not in reports:
        return []
    report, rows = reports["turn"], []
    whole = report.get("no client: all")
    for process in ("worker", "gateway"):
        parts = [
            (one.name.partition(": ")[2], one.median) for one in report.figures if one.name.startswith(f"{process}: ")
        ]
        small = sum(ms for _, ms in parts if ms < SHOWN * whole)
        rows += [(process, part, f"{ms:.2f}") for part, ms in parts if ms >= SHOWN * whole]
        rows += [(process, "the rest", f"{small:.2f}")]
    rows.append(("Redis", "scripts, pub/sub, log on disk", f"{report.get('no client: Redis'):.2f}"))
    rows.append(("all", "", f"**{whole:.2f}**"))
    client = report.get("direct client: worker") - report.get("no client: worker")
    rows.append(("", "besides: the direct client of models", f"{client:.2f}"))
    return _table(("process", "part", "ms CPU a turn"), rows)


def growth(reports: Reports) -> list[str]:
    """What a turn costs in small and large fleets."""
    if "scale" not in reports:
        return []
    report = reports["scale"]
    beside = [one.name.removesuffix(": all") for one in report.figures if one.name.endswith(": all")]
    figures = (("workers", ".3f"), ("Redis", ".3f"), ("idle commands, inside of scripts too", ".0f"))
    rows = (
        [f"{name}, idle", *(format(report.get(f"{name}: {what}"), form) for what, form in figures)] for name in beside
    )
    return _table(("beside", "workers, ms CPU a turn", "Redis, ms CPU a turn", "commands a second at rest"), rows)


def memory(reports: Reports) -> list[str]:
    """What there are many of."""
    if "memory" not in reports:
        return []
    rows = [
        (one.name.strip(), f"{one.median:.1f} {one.unit}")
        for one in reports["memory"].figures
        if not one.name.startswith(" ")
    ]
    return _table(("one", "holds"), rows)


def capacity(reports: Reports) -> list[str]:
    """How much one Redis carries, and what a million people need."""
    if not {"turn", "memory"} <= reports.keys():
        return []
    turn, held = reports["turn"], reports["memory"]
    cpu = {name: turn.get(f"no client: {name}") for name in ("Redis", "worker", "gateway")}
    few, many = held.get("session after one turn"), held.get("session of 40 messages, 21 kB")
    rested = few + (many - few) / 38 * (IDLE_KEEP - 2)
    socket, wait = held.get("open socket: gateway"), held.get("turn that waits for its model")
    peak = PEOPLE * TURNS_A_DAY / 86_400 * PEAK
    online, inflight = PEOPLE * ONLINE, peak * MODEL_S
    memory_gb = PEOPLE * ((1 - ONLINE) * rested + ONLINE * many) / 2**20
    rows = [
        ("turns a second of one Redis core at 70 %", f"{700 / cpu['Redis']:,.0f}"),
        (f"people, with {TURNS_A_DAY} turns a day each", f"{PEOPLE:,}"),
        (f"turns a second at the peak, {PEAK} times the mean", f"{peak:,.0f}"),
        ("that takes of a Redis core", f"{peak * cpu['Redis'] / 1000:.0%}"),
        (
            f"Redis memory: a chat each, at rest ({IDLE_KEEP} messages), {ONLINE:.0%} of them with 40",
            f"{memory_gb:,.0f} GB",
        ),
        (f"pages open at the peak, {ONLINE:.0%}", f"{online:,.0f}"),
        ("gateways for them, 5,000 each", f"{online / 5000:,.0f} of {(GATEWAY_KB + 5000 * socket) / 2**20:.1f} GB"),
        ("gateway cores for their turns, at 60 %", f"{peak * cpu['gateway'] / 600:,.1f}"),
        (f"turns in flight, {MODEL_S} s each", f"{inflight:,.0f}, {inflight * wait / 2**20:,.1f} GB in all workers"),
        ("worker cores, at 60 %", f"{peak * cpu['worker'] / 600:,.1f}"),
    ]
    return _table(("what", "how much"), rows)


PEOPLE: Final = 1_000_000
TURNS_A_DAY: Final = 10
PEAK: Final = 3
ONLINE: Final = 0.05
MODEL_S: Final = 5
GATEWAY_KB: Final = 60 * 1024
IDLE_KEEP: Final = 8
"""What `memory.idle_keep` leaves of a conversation after a quarter of an hour."""

TABLES: Final[dict[str, Callable[[Reports], list[str]]]] = {
    "pickup": pickup,
    "profile": profile,
    "growth": growth,
    "memory": memory,
    "capacity": capacity,
}
