"""All benches one after the other, each in a process of its own with a limit, and the table of targets behind them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from proof.bench import pages, targets
from proof.bench.children import Children
from proof.bench.plan import Plan
from proof.bench.table import Report, from_json, machine

ORDER: Final = (
    "turn",
    "inflight",
    "startup",
    "memory",
    "pickup",
    "drain",
    "scale",
    "llm",
    "long",
    "sockets",
    "nanobot",
)
LIMIT_S: Final = 420.0
MISSING: Final = 2
"""The code of a bench whose peer is not installed."""


def main(plan: Plan, folder: Path | None) -> int:
    """Run them and print what was reached. The exit code: 1 when a bench did not come to its end."""
    failed = []
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as other:
        kept = folder or Path(other)
        kept.mkdir(parents=True, exist_ok=True)
        for name in ORDER:
            began = time.monotonic()
            code = _run(name, plan, kept)
            how = {0: "done", MISSING: "not installed, left out"}.get(code, "FAILED")
            print(f"{name}: {how}, {time.monotonic() - began:.0f} s", flush=True)
            if code not in (0, MISSING):
                failed.append(name)
        tell(kept)
    return 1 if failed else 0


def tell(folder: Path, page: Path | None = None) -> None:
    """Print the table of targets from the runs that lie in a folder, and write the tables of `page` anew."""
    runs = read(folder)
    print(f"\n{machine()}; runs: {len(runs)}\n")
    rows = list(targets.rows(runs))
    width = max(len(row.target) for row in rows), max(len(row.wanted) for row in rows)
    for row in rows:
        reached, worst = row.reached or "-", row.worst or "-"
        print(
            f"{row.target:{width[0]}}  {row.wanted:{width[1]}}  {reached:>9}  {worst:>9}  {_how(row):12}  {row.bench}"
        )
    if page is not None:
        page.write_text(pages.filled(page.read_text(), runs))


def _how(row: targets.Row) -> str:
    if row.reached is None:
        return "not measured"
    return "reached" if row.held else "not always" if row.met else "MISSED"


def read(folder: Path) -> list[targets.Reports]:
    """The runs of a folder: the reports that lie in it, and those in each folder of it, each by the name of its bench.
    What cannot be read is left out."""
    inner = sorted(path for path in folder.iterdir() if path.is_dir())
    return [found for found in map(_read_run, (folder, *inner)) if found]


def _read_run(folder: Path) -> dict[str, Report]:
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = from_json(path.read_bytes())
        except msgspec.DecodeError as exc:
            print(f"{path.name} is no report: {exc}", file=sys.stderr)
    return found


def _run(name: str, plan: Plan, folder: Path) -> int:
    words = [name, "--json", str(folder / f"{name}.json")]
    words += ["--quick"] if plan.quick else []
    words += ["--rounds", str(plan.rounds)] if plan.rounds else []
    words += ["--peer", plan.peer] if plan.peer else []
    with Children() as start:
        child = start("proof.bench", *words, log=folder / f"{name}.log")
        try:
            return child.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return -1
