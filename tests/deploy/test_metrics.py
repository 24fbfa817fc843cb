"""The metrics: one table for people, one file in the code, and each of them filled somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client import Counter, Gauge, Histogram

from shared import metrics

ROOT: Final = Path(__file__).parents[2]
DOC: Final = (ROOT / "docs" / "metrics.md").read_text()
FILLS: Final = frozenset({"dec", "inc", "observe", "set", "set_function", "time"})

LABELS: Final = frozenset(
    {
        "braked",
        "budget",
        "cause",
        "channel",
        "command",
        "direction",
        "field",
        "kind",
        "listener",
        "model",
        "outcome",
        "rating",
        "queue",
        "reason",
        "status",
        "tool",
        "version",
        "volume",
        "who",
    }
)
"""Every label there may be. A new one needs a thought: how many values can it have, and who chooses them?"""

CONTRACT: Final = """
messages_accepted_total{channel} messages_refused_total{channel,reason} messages_duplicate_total{channel}
turns_total{outcome} turn_seconds queue_wait_seconds{queue} queue_due{queue} queue_running{queue}
queue_oldest_due_seconds{queue} turns_running turn_takeovers_total{cause} stale_writes_refused_total
dead_letters_total{reason} model_requests_total{model,outcome} model_seconds{model}
model_tokens_total{model,direction} model_cost_usd_total{model} tool_calls_total{tool,outcome} tool_seconds{tool}
subagents_total{outcome} outbox_waiting{channel} outbox_oldest_seconds{channel} deliveries_total{channel,outcome}
delivery_unknown_total{channel} delivery_seconds{channel} redis_command_seconds redis_reconnects_total
lease_renew_late_total event_loop_lag_seconds build_info{version}
""".split()
"""What was promised to whoever writes dashboards and alerts."""


class Reported(NamedTuple):
    """A metric, as the table or the code has it."""

    type: str
    labels: frozenset[str]
    meaning: str


def declared() -> dict[str, Reported]:
    """What shared/metrics.py declares, by its name on the page."""
    found = {}
    for value in vars(metrics).values():
        if isinstance(value, (Counter, Gauge, Histogram)):
            name = f"{value._name}_total" if isinstance(value, Counter) else value._name
            found[name] = Reported(value._type, frozenset(value._labelnames), value._documentation)
    return found


def table(last: str) -> dict[str, Reported]:
    """The rows of the tables of docs/metrics.md whose last column has this head."""
    blocks = re.findall(rf"^\| name \| type \| labels \| {last} \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", DOC, re.MULTILINE)
    found = {}
    for line in "".join(blocks).splitlines():
        name, type, labels, meaning = (cell.strip() for cell in line.strip("|").split("|"))
        found[name.strip("`")] = Reported(type, frozenset(re.findall(r"`(\w+)`", labels)), meaning)
    return found


def test_the_table_says_what_the_code_declares() -> None:
    """Name, type, labels and meaning, both ways."""
    assert table("meaning") == declared()


def test_every_metric_of_the_contract_is_there_or_says_what_it_waits_for() -> None:
    """With the labels that were promised; one that is there waits for nothing."""
    here, later = declared(), table("waits for")
    assert set(here).isdisjoint(later)
    for promise in CONTRACT:
        name, _, labels = promise.partition("{")
        wanted = frozenset(filter(None, labels.rstrip("}").split(",")))
        assert (here | later)[f"shoal_{name}"].labels == wanted, name


def test_every_name_is_declared_once_and_begins_alike() -> None:
    """One object for each name, in the one file that may make them."""
    made = [value for value in vars(metrics).values() if isinstance(value, (Counter, Gauge, Histogram))]
    assert len(made) == len(declared()) == len({id(one) for one in made})
    assert all(name.startswith("shoal_") for name in declared())


def filled_in(tree: ast.AST) -> set[str]:
    """The names of whatever is told something by one of the methods that fill a metric."""
    calls = (
        node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )
    targets = (func.value for func in calls if func.attr in FILLS)
    nodes = [node for target in targets for node in ast.walk(target)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_every_metric_is_filled_somewhere() -> None:
    """One that is declared and never set is a flat line on which somebody relies."""
    used: set[str] = set()
    for package in ("console", "gateway", "shared", "shoal", "worker"):
        for path in (ROOT / package).rglob("*.py"):
            used |= filled_in(ast.parse(path.read_text()))
    names = {name for name, value in vars(metrics).items() if isinstance(value, (Counter, Gauge, Histogram))}
    assert names - used == set()


def test_an_unfilled_metric_is_found() -> None:
    """The check above can fail: looking at a metric, or naming a label, fills nothing."""
    text = (
        "A.labels(1).inc()\n(B if x else C).labels(2).inc()\nwith D.time(): pass\nE.labels(3)\nprint(F)\nm.G.inc()\nm.H"
    )
    assert set("ABCDEFGH") & filled_in(ast.parse(text)) == set("ABCDG")


def test_labels_are_few_and_none_names_a_chat() -> None:
    """Each label is one that was thought about, and each is explained."""
    used = {label for one in declared().values() for label in one.labels}
    explained = set(re.findall(r"^\| `(\w+)` \| (?:`\w+\*?`|, )+ \|", DOC, re.MULTILINE))
    assert used == LABELS == explained
