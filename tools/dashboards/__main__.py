"""Writes deploy/grafana/dashboards: `python -m tools.dashboards`. Needs `grafana-foundation-sdk` of the dev lock."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLink,
    DashboardLinkType,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)

from tools.dashboards.boards import BOARDS
from tools.dashboards.panels import Board, Panel

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG: Final = "shoal"
RELEASED: Final = "count by (version) (shoal_build_info) unless count by (version) (shoal_build_info offset 5m)"
"""Five minutes with a new release, which the pictures mark."""

RUNBOOK: Final = "deploy/RUNBOOK.md"
"""Where links lead; `make runbook-links` sets another place in the rules and here in what is written."""

_METRIC: Final = re.compile(r"\b((?:shoal|process)[_:][\w:]+)(?:\{(.*?)\})?")


def written(board: Board) -> str:
    """The dashboard as Grafana imports it."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.about)
        .tags([TAG])
        .readonly()
        .time("now-3h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("namespace")
            .label("Installation")
            .datasource(SOURCE)
            .query("label_values(shoal_build_info, namespace)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
        .with_variable(dashboard.TextBoxVariable("budget").label("Dollars a day").default_value("10"))
        .annotation(
            dashboard.AnnotationQuery()
            .name("Releases")
            .datasource(SOURCE)
            .icon_color("blue")
            .enable(True)
            .expr(scoped(RELEASED))
        )
        .link(
            dashboard.DashboardLink("Shoal")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    id = 0
    for row in board.rows:
        id += 1
        made = made.with_row(dashboard.Row(row.title).id(id))
        for panel in row.panels:
            id += 1
            made = made.with_panel((_number if panel.kind == "number" else _line)(panel).id(id))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _links(panel: Panel) -> list[Builder[DashboardLink]]:
    if not panel.alert:
        return []
    link = dashboard.DashboardLink(f"Runbook: {panel.alert}").type(DashboardLinkType.LINK)
    return [link.url(f"{RUNBOOK}#{panel.alert.lower()}").target_blank(True)]


def _line(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.about)
        .unit(panel.unit)
        .links(_links(panel))
        .datasource(SOURCE)
        .axis_soft_min(0)
        .fill_opacity(8)
        .span(panel.width)
        .height(8)
        .tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    )
    for query in _targets(panel):
        made = made.with_target(query.range())
    return made


def _number(panel: Panel) -> stat.Panel:
    made = (
        stat.Panel()
        .title(panel.title)
        .description(panel.about)
        .unit(panel.unit)
        .links(_links(panel))
        .datasource(SOURCE)
        .span(panel.width)
        .height(4)
        .graph_mode(common.BigValueGraphMode.AREA)
        .thresholds(_colours(panel))
    )
    for query in _targets(panel):
        made = made.with_target(query.range())
    return made


def scoped(expr: str) -> str:
    """The expression over the chosen installations alone. All of them are `.*`, also where nothing adds the label."""
    return _METRIC.sub(lambda one: f'{one[1]}{{namespace=~"$namespace"{", " + one[2] if one[2] else ""}}}', expr)


def _targets(panel: Panel) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery().ref_id(letter).expr(scoped(query.expr)).legend_format(query.legend or panel.title)
        for letter, query in zip(string.ascii_uppercase, panel.queries, strict=False)
    ]


def _colours(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [Threshold(value=None, color="green")]
    if panel.warn is not None and panel.bad is not None:
        if panel.bad < panel.warn:
            steps = [Threshold(None, "red"), Threshold(panel.bad, "orange"), Threshold(panel.warn, "green")]
        else:
            steps += [Threshold(panel.warn, "orange"), Threshold(panel.bad, "red")]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def main() -> None:
    """Write every dashboard."""
    for board in BOARDS:
        (FOLDER / f"{board.uid}.json").write_text(written(board))


if __name__ == "__main__":
    main()
