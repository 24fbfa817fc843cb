"""Take each guard out of each Lua script, one at a time, and see whether a test notices.

`python -m tests.mutants [script ...]` works on a copy of the checkout, prints a table, and exits with 1 when a guard
could go unnoticed. It takes some minutes: every mutant gets the store's tests, and the state machine when those pass.
A guard is an `if` of a script; what the function of `lib.lua` guards is taken out in `lib.lua`.
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
COPIED: Final = ("shared", "worker", "gateway", "tests", "pyproject.toml")
TESTS: Final = (
    ("tests/shared/store", "-m", "not slow"),
    ("tests/shared/store/test_deliveries_machine.py",),
    ("tests/shared/store/test_state_machine.py",),
    ("tests/shared/test_console_session.py", "tests/gateway/test_ingress.py", "tests/worker/llm/test_throttle.py"),
    (
        "tests/gateway/test_jobs_command.py",
        "tests/gateway/test_approvals.py",
        "tests/gateway/test_schedules_in_chats.py",
    ),
    ("tests/worker/test_leases.py", "tests/worker/test_run_turn.py", "tests/worker/test_lease_worker.py"),
)
FIRST: Final = {
    "acquire": "test_protocol", "child": "test_children", "command": "test_generations", "commit": "test_protocol",
    "consolidate": "test_memory", "cron": "test_schedules", "delivery": "test_deliveries", "fair": "test_fair_share",
    "ingest": "test_joining", "ledger": "test_effects", "limit": "test_limits", "lock": "test_exclusive",
    "out": "test_delivery_troubles", "pair": "test_pairing", "park": "test_approvals",
    "release": "test_protocol", "request": "test_requests", "seen": "test_seen", "session": "test_session",
    "spend": "test_spending", "take": "test_joining", "withdraw": "test_joining",
}  # fmt: skip
"""Which file of the store's tests most likely notices, by the first word of a script's name."""

LIMIT_S: Final = 300.0

HARMLESS: Final = {
    # Not a guard: only spares the server work, or only limits what is kept.
    ("acquire", "if #taken == many then break end"),
    ("acquire", "if #taken == many or passed + left == 0 or #found < 2 * scan then return end"),
    ("fair", "if now - tonumber(redis.call('ZSCORE', SERVED, what) or 0) < ms then return true end"),
    ("fair", "if not best_over and best_at <= due then break end"),
    ("lib", "if not string.find(one, ':') then"),
    ("ingest", "if ARGV[20] == '' then return false end"),
    ("command", "if entries > 0 and redis.call('EXISTS', KEYS[7]) == 0 then"),
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


def noticed(copy: Path, mutant: Mutant) -> str:
    """The first test that fails with a mutant; '' when none does."""
    path = copy / LUA / f"{mutant.script}.lua"
    whole = path.read_text()
    path.write_text(mutant.source)
    try:
        likely = FIRST.get(mutant.script.partition("_")[0])
        for tests in (*([(f"tests/shared/store/{likely}.py",)] if likely else ()), *TESTS):
            command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *tests]
            try:
                told = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            except subprocess.TimeoutExpired:
                return "(no end)"
            if told.returncode != 0:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", told.stdout, re.MULTILINE)
                return failed[1].rpartition("::")[2] if failed else f"(exit code {told.returncode})"
    finally:
        path.write_text(whole)
    return ""


def main() -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", help="names of scripts (default: all)")
    names = parser.parse_args().scripts or sorted(path.stem for path in (ROOT / LUA).glob("*.lua"))
    table = Table("guard", "line", "noticed by")
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="shoal-mutants-") as folder:
        copy = Path(folder)
        for name in COPIED:
            whole = ROOT / name
            shutil.copytree(whole, copy / name) if whole.is_dir() else shutil.copy(whole, copy / name)
        for name in names:
            for mutant in mutants(name, (ROOT / LUA / f"{name}.lua").read_text()):
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
