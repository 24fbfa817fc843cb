"""What a dashboard is made of, as data."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

RATE = "$__rate_interval"
"""Grafana puts in at least four scrapes."""


class Query(NamedTuple):
    """One expression in PromQL; `legend` names its series."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """One picture: `line` over time, or `number` now. `warn` and `bad` are where the colour of a number changes; with
    `bad` below `warn` small numbers are the bad ones. `width` is in 24ths."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str
    kind: Literal["line", "number"] = "line"
    warn: float | None = None
    bad: float | None = None
    width: int = 8
    alert: str = ""
    """A heading of the runbook, mostly the name of an alert: the picture links to it."""


def replace(panel: Panel, **fields: Any) -> Panel:
    """A panel with other values for some fields."""
    return panel._replace(**fields)


class Row(NamedTuple):
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


class Board(NamedTuple):
    """A dashboard. `uid` is its address in Grafana and its file's name, and stays."""

    uid: str
    title: str
    about: str
    rows: tuple[Row, ...]


def spread(histogram: str, selector: str = "") -> tuple[Query, ...]:
    """Half, 95 % and 99 % of what a histogram saw."""
    return tuple(
        Query(
            f"histogram_quantile({part:g}, sum by (le) (rate({histogram}_bucket{selector}[{RATE}])))",
            f"p{part * 100:g}",
        )
        for part in (0.5, 0.95, 0.99)
    )


def slow_by(histogram: str, label: str) -> tuple[Query, ...]:
    """What 95 % stayed below, for each value of a label."""
    return (
        Query(f"histogram_quantile(0.95, sum by (le, {label}) (rate({histogram}_bucket[{RATE}])))", f"{{{{{label}}}}}"),
    )


def rate_by(counter: str, *labels: str, selector: str = "") -> tuple[Query, ...]:
    """How many a second, for each value of the labels; of all together without one."""
    rate = f"rate({counter}{selector}[{RATE}])"
    if not labels:
        return (Query(f"sum({rate})", "all"),)
    return (Query(f"sum by ({', '.join(labels)}) ({rate})", " ".join(f"{{{{{label}}}}}" for label in labels)),)


def newest(gauge: str, *labels: str, selector: str = "", legend: str = "now") -> tuple[Query, ...]:
    """A reading of Redis, which every process exports alike."""
    if not labels:
        return (Query(f"max({gauge}{selector})", legend),)
    return (Query(f"max by ({', '.join(labels)}) ({gauge}{selector})", " ".join(f"{{{{{one}}}}}" for one in labels)),)


def number(
    title: str,
    unit: str,
    expr: str,
    about: str,
    *,
    warn: float | None = None,
    bad: float | None = None,
    alert: str = "",
) -> Panel:
    """One number, six to a row."""
    return Panel(title, unit, (Query(expr),), about, "number", warn, bad, 4, alert)
