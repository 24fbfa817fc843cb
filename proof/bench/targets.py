"""What we want to reach, and whether a run has: each row is computed from the figures of a bench."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from proof.bench.table import Report

Reports = Mapping[str, Report]
"""By the name of the bench."""


class Row(NamedTuple):
    """One target. `reached`, the median of all runs, and `worst` are in the words of `wanted`; None when its bench has
    not run. `met` and `held` say whether the median and the worst run reached the target."""

    target: str
    wanted: str
    bench: str
    reached: str | None = None
    worst: str | None = None
    met: bool = False
    held: bool = False


class Target(NamedTuple):
    """`value` finds the figure in the reports of a run; `at_least` says on which side of `limit` it shall be."""

    target: str
    against: str
    bench: str
    value: Callable[[Reports], float]
    limit: float
    form: str
    at_least: bool = False

    def row(self, runs: Iterable[Reports]) -> Row:
        """What was reached. A bench that has not run has reached nothing."""
        sign = "≥" if self.at_least and not self.form.startswith("1/") else "≤"
        wanted = f"{sign} {self.form.format(self.limit)}{self.against}"
        values = [value for value in map(self._value_of, runs) if value is not None]
        if not values:
            return Row(self.target, wanted, self.bench)
        median, worst = statistics.median(values), min(values) if self.at_least else max(values)
        shown = self.form.format
        return Row(
            self.target,
            wanted,
            self.bench,
            shown(median),
            shown(worst),
            met=self._meets(median),
            held=self._meets(worst),
        )

    def _value_of(self, reports: Reports) -> float | None:
        try:
            return self.value(reports)
        except (KeyError, ZeroDivisionError):
            return None

    def _meets(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def _of(bench: str, name: str) -> Callable[[Reports], float]:
    return lambda reports: reports[bench].get(name)


def _ratio(bench: str, above: str, below: str) -> Callable[[Reports], float]:
    return lambda reports: reports[bench].times(above, below)


ARQ: Final = "arq, 1 worker"
OWN: Final = "shoal, 1 worker"
SLOW: Final = " of arq at its default"
SAME: Final = " of arq at poll 0.01"
STOCK: Final = " of stock LiteLLM"

TARGETS: Final = (
    Target("push → reply, p50", " shorter than arq at its default", "pickup",
           _ratio("pickup", "arq, poll 0.5 s: p50", "shoal: p50"), 250, "{:,.0f}x", at_least=True),
    Target("push → reply, p99", " shorter than arq at its default", "pickup",
           _ratio("pickup", "arq, poll 0.5 s: p99", "shoal: p99"), 50, "{:,.0f}x", at_least=True),
    Target("commands of an idle worker", "", "pickup", _of("pickup", "whole worker: idle"), 6, "{:.1f}/s"),
    Target("turns a second of a worker", SAME, "drain",
           _ratio("drain", f"{OWN}: rate", f"{ARQ}: rate"), 10, "{:.1f}x", at_least=True),
    Target("worker CPU a turn that does nothing", SAME, "drain",
           _ratio("drain", f"{ARQ}: worker", f"{OWN}: worker"), 10, "1/{:.1f}", at_least=True),
    Target("Redis CPU a turn that does nothing", SAME, "drain",
           _ratio("drain", f"{ARQ}: Redis", f"{OWN}: Redis"), 3.5, "1/{:.1f}", at_least=True),
    Target("a second worker on two cores", " of one", "scale",
           _ratio("scale", "2 busy: rate", "1 busy: rate"), 1.3, "{:.2f}x", at_least=True),
    Target("own CPU of a whole turn", "", "turn", _of("turn", "no client: all"), 2, "{:.2f} ms"),
    Target("own CPU of a whole turn", " of nanobot", "turn",
           lambda reports: reports["nanobot"].get("a turn") / reports["turn"].get("no client: all"),
           50, "1/{:.0f}", at_least=True),
    Target("CPU of a model call, direct", STOCK, "llm",
           _ratio("llm", "whole: stock", "whole: direct"), 50, "1/{:.0f}", at_least=True),
    Target("CPU of a streamed model call, direct", STOCK, "llm",
           _ratio("llm", "stream, together: stock", "stream, together: direct"), 50, "1/{:.0f}", at_least=True),
    Target("CPU of a model call, LiteLLM route", "", "llm", _of("llm", "whole: litellm"), 4, "{:.1f} ms"),
    Target("a delta, model → page, 5 ms apart", STOCK, "llm",
           _ratio("llm", "delta, 5 ms apart: stock LiteLLM's call alone", "delta, 5 ms apart: model to page"),
           8, "1/{:.1f}", at_least=True),
    Target("a delta, model → page, together", STOCK, "llm",
           _ratio("llm", "delta, together: stock LiteLLM's call alone", "delta, together: model to page"),
           20, "1/{:.1f}", at_least=True),
    Target("a second of a long answer, kept: Redis CPU", " of one only shown", "long",
           _ratio("long", "kept: Redis", "only shown: Redis"), 2, "{:.2f}x"),
    Target("1,000 two-second turns in one worker: added, p50", "", "inflight",
           lambda reports: reports["inflight"].get("1,000 spread: added p50") / 2 * 100, 10, "{:.1f} %"),
    Target("a turn that waits for its model", "", "inflight",
           _of("inflight", "1,000 that wait: worker"), 60, "{:.0f} kB"),
    Target("turns a second of a worker, model of 2 s", "", "inflight",
           _of("inflight", "1,000 sessions: rate"), 300, "{:,.0f}", at_least=True),
    Target("fleet: turns at once", "", "inflight", _of("inflight", "fleet: turns at once"), 2000, "{:,.0f}",
           at_least=True),
    Target("worker ready", "", "startup", _of("startup", "worker: ready"), 0.5, "{:.2f} s"),
    Target("gateway ready", "", "startup", _of("startup", "gateway: ready"), 0.5, "{:.2f} s"),
    Target("memory of a gateway", "", "startup", _of("startup", "gateway: memory when ready"), 60, "{:.0f} MB"),
    Target("memory of a worker without LiteLLM", "", "startup", _of("startup", "worker: memory then"), 80, "{:.0f} MB"),
    Target("a turn's CPU, 10 → 100,000 idle sessions", "", "scale",
           _ratio("scale", "100,000 sessions: all", "10 sessions: all"), 1.15, "{:.2f}x"),
    Target("a turn's commands, 1 → 100 idle workers", "", "scale",
           _ratio("scale", "100 workers: commands, inside of scripts too",
                  "1 workers: commands, inside of scripts too"), 1.05, "{:.2f}x"),
    Target("a turn's CPU, 10 → 100 idle workers", "", "scale",
           _ratio("scale", "100 workers: all", "10 workers: all"), 1.15, "{:.2f}x"),
    Target("an open page beyond its socket", "", "sockets",
           _of("sockets", "open socket: beyond the bare server"), 15, "{:.1f} kB"),
    Target("a delta at 1,000 deltas/s, 5,000 pages: late, p99", "", "sockets",
           _of("sockets", "spread: late p99"), 50, "{:.0f} ms"),
)  # fmt: skip


def rows(runs: Sequence[Reports]) -> Iterator[Row]:
    """All of them, over the runs that are given."""
    for target in TARGETS:
        yield target.row(runs)
