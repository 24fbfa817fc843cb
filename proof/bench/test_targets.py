"""What a run has reached, and the page that tells it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from proof.bench import pages, targets
from proof.bench.__main__ import BENCHES
from proof.bench.every import ORDER, read
from proof.bench.table import Figure, Report, from_json, merged, times, to_json

MARKS: Final = "a\n<!-- figures: targets -->\nold\n<!-- end -->\nb\n<!-- figures: memory -->\nkept\n<!-- end -->\n"
PAGE: Final = Path(__file__).parents[2] / "docs" / "performance.md"


def report(**figures: float) -> Report:
    """One with a round of each."""
    made = tuple(Figure(name, "ms", (value,)) for name, value in figures.items())
    return Report(title="a bench", figures=made, machine="a machine")


def pickup(theirs: float, ours: float) -> dict[str, Report]:
    return {"pickup": report(**{"arq, poll 0.5 s: p50": theirs, "shoal: p50": ours})}


@pytest.mark.parametrize(("ours", "met"), [(1.0, True), (2.0, False)])
def test_a_target_is_reached_or_missed_by_its_figures(ours: float, met: bool) -> None:
    """256 ms against 1 ms are 256 times, against 2 ms 128."""
    row = next(targets.rows([pickup(256.0, ours)]))
    assert (row.reached, row.met, row.held) == (f"{256 / ours:.0f}x", met, met)


def test_the_worst_run_says_whether_a_target_holds() -> None:
    """The median of three is 300, the worst 200: reached, but not always."""
    runs = [pickup(theirs, 1.0) for theirs in (200.0, 300.0, 400.0)]
    row = next(targets.rows(runs))
    assert (row.reached, row.worst, row.met, row.held) == ("300x", "200x", True, False)
    assert "| 300x | 200x | **not always** | `pickup` |" in pages.filled(MARKS, runs)


def test_several_runs_have_the_rounds_of_all_of_them() -> None:
    """In the tables beside that of targets; a bench that one run lacks is that of the others."""
    runs = [pickup(200.0, 1.0), pickup(300.0, 2.0), {"memory": report(page=4.0)}]
    both = merged(runs)
    assert both["pickup"].figure("shoal: p50").values == (1.0, 2.0)
    assert both["memory"].get("page") == 4.0


def test_what_the_machine_drifts_by_is_in_no_ratio() -> None:
    """Each round is a ratio of its own; of figures that were not measured in the same rounds it is that of medians."""
    theirs, ours = Figure("theirs", "ms", (2.0, 30.0, 400.0)), Figure("ours", "ms", (1.0, 10.0, 100.0))
    assert times(theirs, ours) == 3.0
    drifted = Figure("theirs", "ms", (40.0, 2.0, 15.0)), Figure("ours", "ms", (10.0, 1.0, 5.0))
    assert times(*drifted) == 3.0
    assert times(Figure("alone", "ms", (9.0,)), ours) == 0.9


def test_a_target_whose_bench_has_not_run_is_neither() -> None:
    """It is said, and counts as nothing."""
    assert all(row.reached is None and not row.met for row in targets.rows([]))


def test_every_target_is_of_a_bench_that_runs_with_all() -> None:
    """Or it would never be measured."""
    assert {target.bench for target in targets.TARGETS} <= {*ORDER} <= {*BENCHES}


def test_a_report_comes_back_from_its_json(tmp_path: Path) -> None:
    """With its rounds; a file that is none is left out."""
    made = Report(title="t", figures=(Figure("a", "ms", (1.0, 3.0, 2.0)),), notes=("so",), machine="m", seconds=1.5)
    assert from_json(to_json(made)) == made
    assert b'"median": 2.0' in to_json(made)
    tmp_path.joinpath("turn.json").write_bytes(to_json(made))
    tmp_path.joinpath("llm.json").write_bytes(b"{}")
    assert read(tmp_path) == [{"turn": made}]
    later = tmp_path / "2"
    later.mkdir()
    later.joinpath("drain.json").write_bytes(to_json(made))
    assert read(tmp_path) == [{"turn": made}, {"drain": made}]


def test_tables_of_the_page_are_written_anew_and_nothing_else() -> None:
    """Between the marks stands what the reports say; a table that they do not tell stays as it is."""
    filled = pages.filled(MARKS, [pickup(300.0, 1.0)])
    assert "| push → reply, p50 | ≥ 250x shorter than arq at its default | 300x | 300x | yes | `pickup` |" in filled
    assert "old" not in filled
    assert filled.endswith("b\n<!-- figures: memory -->\nkept\n<!-- end -->\n")


def test_the_page_has_every_table_and_every_target() -> None:
    """docs/performance.md names all targets, with what is wanted as it is measured, and commands that there are."""
    text = PAGE.read_text()
    assert set(re.findall(r"<!-- figures: (\w+) -->", text)) == {*pages.TABLES, "machine", "targets"}
    for row in targets.rows([]):
        assert f"| {row.target} | {row.wanted} |" in text
    named = set(re.findall(r"python -m proof\.bench (\w+)", text))
    assert named <= {*BENCHES, "all", "targets"}
