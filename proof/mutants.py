"""Take each guard out of each Lua script, one at a time, and see whether a test notices.

`python -m proof.mutants [script ...]` works on a copy of the checkout, prints a table, and exits with 1 when a guard
could go unnoticed. It takes some minutes: every mutant gets the store's tests, and the state machine when those pass.
A guard is an `if` of a script; what the function of `lib/` guards is taken out there.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).parents[1]
LUA: Final = Path("shared/store/lua")
COPIED: Final = ("console", "gateway", "proof", "shared", "shoal", "tests", "worker", "pyproject.toml", "conftest.py")
TESTS: Final = (
    # Without the tests of servers that change their part, which start processes: no script is about those.
    ("tests/shared/store", "-m", "not slow", "--ignore", "tests/shared/store/test_demoted.py"),
    ("tests/shared/store/test_deliveries_machine.py",),
    ("tests/shared/store/test_state_machine.py",),
    ("tests/console/test_session.py", "tests/gateway/ingress/test_ingress.py", "tests/worker/llm/test_throttle.py"),
    (
        "tests/gateway/commands/test_jobs_command.py",
        "tests/gateway/ingress/test_approvals.py",
        "tests/gateway/ingress/test_schedules_in_chats.py",
        "tests/reports/test_albums.py",
    ),
    (
        "tests/worker/lease/test_lease_loop.py",
        "tests/worker/attempt/test_run_turn.py",
        "tests/worker/arq/test_lease_worker.py",
        "tests/worker/titles/test_titler.py",
    ),
)
FIRST: Final = {
    "access": "test_pairing",
    "answers/branch": "answers/test_branches",
    "answers/rate": "answers/test_ratings",
    "delivery": "test_delivery_troubles",
    "fleet": "test_limits",
    "fleet/spend": "test_spending",
    "lib/delivery": "test_deliveries",
    "lib/fair": "test_fair_share",
    "schedules": "test_schedules",
    "sessions": "test_session",
    "commands": "test_session",
    "commands/approve": "test_approvals",
    "commands/reset": "test_generations",
    "commands/retry": "test_last_turn",
    "sessions/consolidate": "test_memory",
    "sessions/request_begin": "test_requests",
    "sessions/request_end": "test_requests",
    "subagents": "test_subagents",
    "turns": "test_protocol",
    "dedupe/newest_form": "test_seen",
    "turns/ingest": "test_joining",
    "turns/say": "test_effects",
    "turns/spawn": "test_effects",
    "turns/show_text": "test_shown_text",
    "waits/park": "test_approvals",
    "turns/take": "test_joining",
    "turns/withdraw": "test_joining",
}
"""The file of the store's tests that most likely notices, by a script's name or else by its folder."""

LIMIT_S: Final = 300.0

HARMLESS: Final = {
    # Not a guard: only spares the server work, or only limits what is kept.
    ("turns/acquire", "if #claimed == wanted or full or passed_over + left == 0 or #found < 2 * scan then return end"),
    ("turns/acquire", "if full then return false end"),  # nothing more fits, so nothing more is claimed
    ("lib/fair", "if ago >= 0 and ago < ms then return true end"),
    ("lib/fair", "if not best_over and best_at <= due then break end"),
    ("lib/schedules", "if not string.find(one, ':') then"),
    ("lib/attempts", "if not crashes and not isolated_crashes then return '0' end"),
    ("turns/ingest", "if echo == '' then return false end"),
    ("commands/reset", "if entries > 0 and redis.call('EXISTS', archive) == 0 then"),
}
"""Lines that may go without a failing test, each for a reason."""


class Mutant(NamedTuple):
    """One guard of one script, taken out."""

    script: str
    line: int
    guard: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.script}.lua:{self.line}"


def mutants(script: str, source: str) -> Iterator[Mutant]:
    """The script without one of its guards, for each of them."""
    lines = source.splitlines()
    for at, line in enumerate(lines):
        guard = line.strip()
        opened = re.fullmatch(r"(\s*)(?:else)?if (.+) then(.*)", line)
        if opened is None or (script, guard) in HARMLESS:
            continue
        changed = "" if guard.endswith(" end") else re.sub(r"if .+ then", "if false then", line, count=1)
        yield Mutant(script, at + 1, guard, "\n".join([*lines[:at], changed, *lines[at + 1 :]]) + "\n")


def noticed(copy: Path, mutant: Mutant, *, first: bool = False) -> str:
    """The first test that fails with a mutant, with `first` of those that most likely do; '' when none does."""
    path = copy / LUA / f"{mutant.script}.lua"
    whole = path.read_text()
    path.write_text(mutant.source)
    try:
        likely = FIRST.get(mutant.script) or FIRST.get(mutant.script.partition("/")[0])
        for tests in (*([(f"tests/shared/store/{likely}.py",)] if likely else ()), *(() if first else TESTS)):
            command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *tests]
            try:
                result = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            except subprocess.TimeoutExpired:
                return "(no end)"
            if result.returncode != 0:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", result.stdout, re.MULTILINE)
                return failed[1].rpartition("::")[2] if failed else f"(exit code {result.returncode})"
    finally:
        path.write_text(whole)
    return ""


def main() -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(prog="python -m proof.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", help="names of scripts (default: all)")
    names = parser.parse_args().scripts or sorted(
        path.relative_to(ROOT / LUA).with_suffix("").as_posix() for path in (ROOT / LUA).rglob("*.lua")
    )
    table = Table("guard", "line", "noticed by")
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="shoal-mutants-") as folder:
        copy = Path(folder)
        for name in COPIED:
            whole = ROOT / name
            shutil.copytree(whole, copy / name) if whole.is_dir() else shutil.copy(whole, copy / name)
        for name in names:
            source = (ROOT / LUA / f"{name}.lua").read_text()
            if gone := [guard for script, guard in HARMLESS if script == name and guard not in source]:
                raise SystemExit(f"{name}: not in the script any more: {gone[0]}")
            # A test that fails without a mutant, too, notices nothing.
            if failing := noticed(copy, Mutant(name, 0, "", source), first=True):
                raise SystemExit(f"{name}: {failing} fails with every guard in its place")
            for mutant in mutants(name, source):
                started = time.monotonic()
                test = noticed(copy, mutant)
                unnoticed += not test
                seconds = time.monotonic() - started
                print(f"{mutant.name:24} {seconds:6.1f} s  {test or 'NOTHING'}", flush=True)
                table.add_row(mutant.name, mutant.guard, test or "[red]nothing")
    Console(width=160).print(table)
    return int(unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main())
