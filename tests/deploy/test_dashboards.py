"""The dashboards as they are committed: written by the program, in PromQL, over metrics that exist."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy.test_alerts import RUNBOOK, rules
from tests.deploy.test_metrics import declared
from tests.helpers.monitoring import filled_in
from tests.helpers.need import need
from tools.dashboards.boards import BOARDS
from tools.dashboards.panels import Board, Panel

ROOT: Final = Path(__file__).parents[2]
GRAFANA: Final = ROOT / "deploy" / "grafana"
FOLDER: Final = GRAFANA / "dashboards"
DEV: Final = "it is in the dev lock; `make lint` installs it"
LIBRARY: Final = frozenset(
    {
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    }
)
"""What the client library exports on its own."""


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def committed(board: Board) -> dict[str, Any]:
    """What Grafana is given."""
    found: dict[str, Any] = json.loads((FOLDER / f"{board.uid}.json").read_text())
    return found


def panels(board: Board) -> list[dict[str, Any]]:
    """Its pictures."""
    return [panel for panel in committed(board)["panels"] if panel["type"] != "row"]


def exprs(board: Board) -> list[str]:
    """What its pictures ask."""
    return [target["expr"] for panel in panels(board) for target in panel["targets"]]


def everything() -> dict[str, str]:
    """Every expression that is shipped, by where it stands."""
    found = {f"{board.uid} {n}": expr for board in BOARDS for n, expr in enumerate(exprs(board))}
    return found | {rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()}


def metrics_in(expr: str) -> set[str]:
    """The names of metrics and records in an expression."""
    plain = re.sub(r"\{[^}]*\}|\[[^\]]*\]|by \([^)]*\)|on \([^)]*\)", " ", expr)
    return set(re.findall(r"\b(?:shoal|process)[_:][a-zA-Z0-9_:]+", plain))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_committed_dashboard_is_what_the_program_writes(board: Board) -> None:
    """Nobody edits it by hand; `python -m tools.dashboards` writes them all."""
    need("grafana-foundation-sdk", install=DEV, found=installed("grafana_foundation_sdk"))
    program = importlib.import_module("tools.dashboards.__main__")
    assert (FOLDER / f"{board.uid}.json").read_text() == program.written(board)


def test_nothing_else_lies_there() -> None:
    """A dashboard that nobody makes any more is one that nobody mends."""
    assert {path.stem for path in FOLDER.iterdir()} == {board.uid for board in BOARDS}


def test_every_picture_has_a_name_words_and_the_chosen_source() -> None:
    """And numbers of its own in its dashboard."""
    for board in BOARDS:
        found = panels(board)
        assert len({panel["id"] for panel in found}) == len(found) == sum(len(row.panels) for row in board.rows)
        for panel in found:
            assert panel["title"]
            assert panel["description"]
            assert panel["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_no_picture_covers_another(board: Board) -> None:
    """On Grafana's grid of 24 columns."""
    accepted: set[tuple[int, int]] = set()
    for panel in committed(board)["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert accepted.isdisjoint(cells), panel["title"]
        accepted |= cells


def test_every_expression_is_promql() -> None:
    """By a parser that is not Prometheus' own; Grafana's variables are filled in first."""
    need("promql-parser", install=DEV, found=installed("promql_parser"))
    parse = importlib.import_module("promql_parser").parse
    for where, expr in everything().items():
        try:
            parse(filled_in(expr))
        except ValueError as exc:
            pytest.fail(f"{where}: {expr}: {exc}")


def test_every_expression_asks_for_what_exists() -> None:
    """A name that was changed in the code shows here, and not as an empty picture."""
    known = {record for rule in rules() if (record := rule.get("record"))} | LIBRARY
    for name, result in declared().items():
        known |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"} if result.type == "histogram" else {name}
    for where, expr in everything().items():
        assert metrics_in(expr), where
        assert metrics_in(expr) <= known, where


def test_every_picture_asks_for_the_chosen_installations_alone() -> None:
    """Each metric in it has the selector, and each rule keeps installations apart."""
    for board in BOARDS:
        [chosen] = [one for one in committed(board)["templating"]["list"] if one["name"] == "namespace"]
        assert chosen["allValue"] == ".*", "also where nothing adds the label"
        for expr in exprs(board):
            names = re.findall(r"\b(?:shoal|process)[_:]\w[\w:]*", expr)
            assert expr.count('{namespace=~"$namespace"') == len(names) > 0, expr
    for rule in rules():
        grouped = re.findall(r"\b(?:sum|min|max|group|count)\b(?: by \(([^)]*)\))?", rule["expr"])
        assert all("namespace" in labels for labels in grouped), rule["expr"]
        assert all("namespace" in labels for labels in re.findall(r"\bon \(([^)]*)\)", rule["expr"])), rule["expr"]


def test_every_label_in_an_expression_is_one_of_its_metrics() -> None:
    """`sum by (reason)` over a counter without reasons is one line that says nothing."""
    given = {label for result in declared().values() for label in result.labels} | {
        "instance",
        "job",
        "le",
        "namespace",
    }
    for where, expr in everything().items():
        grouped = re.findall(r"by \(([^)]*)\)", expr)
        used = {label.strip() for group in grouped for label in group.split(",")}
        used |= set(re.findall(r"[{,]\s*(\w+)\s*(?:=|!)", expr))
        assert used <= given, where


def test_every_metric_is_looked_at_somewhere() -> None:
    """In a dashboard or a rule; what nobody looks at need not be measured."""
    seen = {name for expr in everything().values() for name in metrics_in(expr)}
    for name, result in declared().items():
        wanted = {f"{name}_bucket", f"{name}_count"} if result.type == "histogram" else {name}
        assert wanted & seen, name


def test_every_bound_in_a_rule_is_a_bucket() -> None:
    """Prometheus finds nothing for `le="60"` where the page says 60.0."""
    from shared import metrics

    for rule in rules():
        for name, selector in re.findall(r"\b(shoal_\w+)_bucket\{([^}]*)\}", rule["expr"]):
            [le] = re.findall(r'le="([^"]+)"', selector)
            metric = getattr(metrics, name.removeprefix("shoal_").upper())
            assert le in {str(bound) for bound in metric._upper_bounds}, rule["record"]


def test_the_runbook_names_dashboards_and_pictures_that_exist() -> None:
    """In italics there: *Shoal: the fleet*, *Wait for a worker*."""
    titles = {board.title for board in BOARDS} | {panel.title for panel in all_panels()} | {"Targets"}
    named = set(re.findall(r"(?<!\*)\*([A-Z][^*\n]+)\*(?!\*)", RUNBOOK.read_text()))
    assert len(named) > 15
    assert named <= titles


def test_the_first_board_answers_at_a_glance_and_leads_to_the_runbook() -> None:
    """Its first row is about what is wrong now and what it costs; links lead to headings that exist."""
    first = BOARDS[0].rows[0]
    asked = metrics_in(" ".join(query.expr for panel in first.panels for query in panel.queries))
    wanted = "redis_up redis_memory_bytes processes worker_places places web_sockets api_seconds_count build_info"
    assert {f"shoal_{name}" for name in (*wanted.split(), "model_tokens_total", "model_cost_usd_total")} <= asked
    headings = {heading.lower() for heading in re.findall(r"(?m)^### (\w+)$", RUNBOOK.read_text())}
    links = [link["url"] for board in BOARDS for panel in panels(board) for link in panel.get("links", ())]
    assert len(links) > 10
    assert {link.partition("#")[2] for link in links} <= headings
    for board in BOARDS:
        marks = committed(board)["annotations"]["list"]
        assert "shoal_build_info" in next(mark["expr"] for mark in marks if mark["name"] == "Releases")


def all_panels() -> list[Panel]:
    return [panel for board in BOARDS for row in board.rows for panel in row.panels]


def test_grafana_is_given_the_source_and_the_folder() -> None:
    """The provisioning files, and the scrape interval from which Grafana takes `$__rate_interval`."""
    [source] = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    [provider] = yaml.safe_load((GRAFANA / "provisioning/dashboards/shoal.yaml").read_text())["providers"]
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text())["global"]["scrape_interval"]
    assert source["type"] == "prometheus"
    assert source["jsonData"]["timeInterval"] == scraped
    assert provider["type"] == "file"
