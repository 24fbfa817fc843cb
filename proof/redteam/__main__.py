"""Attack a fleet by what strangers write, and count what gets through when nobody says yes.

`python -m proof.redteam` plays our own corpus of laundering paths, each with a control, and AgentDojo's suites with a
worst-case model, on real workers. It prints a table; the exit code is 1 when anything got through, when a control was
refused or asked about, or when fewer than three quarters of AgentDojo's user tasks are done with one question.
`--only corpus` needs no AgentDojo; `--quick` plays every 23rd case.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from proof.redteam import corpus, dojo
from shared import log
from shared.settings import LogSettings

QUICK: Final = 23


def main() -> int:
    """Play, print, keep the logs when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m proof.redteam", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["corpus", "agentdojo"])
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    given = parser.parse_args()
    if given.only != "corpus" and not dojo.installed():
        sys.stderr.write(f"AgentDojo is not installed; `{dojo.INSTALL}` does it, `--only corpus` does without\n")
        return 2
    log.configure(LogSettings(level="error"), process="redteam")
    folder, every = Path(tempfile.mkdtemp(prefix="shoal-redteam-")), QUICK if given.quick else 1
    rows: list[tuple[str, str, bool | None]] = []
    if given.only != "agentdojo":
        rows += corpus.rows_of(asyncio.run(corpus.measure(folder / "corpus", every=every)))
    if given.only != "corpus":
        rows += dojo.rows_of(asyncio.run(dojo.measure(folder / "agentdojo", every=every)))
    table = Table("", "value", "promise", title="text of strangers, and nobody says yes")
    for name, value, kept in rows:
        table.add_row(name, value, "" if kept is None else "kept" if kept else "[red]broken")
    Console(width=max(120, Console().width)).print(table)
    if any(kept is False for _, _, kept in rows):
        sys.stdout.write(f"logs are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
