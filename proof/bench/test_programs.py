"""Whether every bench runs: a quick look of each, as a person starts it, for its columns and not for its figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from proof.bench.__main__ import BENCHES
from proof.bench.children import ROOT
from proof.bench.scripts import CONSTANT
from proof.bench.table import Report, from_json
from shared.store.client.scripts import script_names

WITHIN_S: Final = 110.0

COLUMNS: Final = {
    "capacity": {"CPU of the worker", "commands to Redis", "memory of an open page"},
    "client": {"redis-py: all", "own connection: worker", "redis-py: drain: worker", "own connection: drain: rate"},
    "drain": {"shoal, 1 worker: rate", "shoal, 2 workers: worker", "arq, 1 worker: Redis", "arq, 2 workers: rate"},
    "exec": {"bare"},
    "inflight": {
        "1,000 spread: added p50", "1,000 at once: added p99", "5,000 at once: added p50", "1,000 sessions: rate",
        "1,000 sessions: model server", "1,000 that wait: worker", "5,000 that wait: worker", "fleet: turns at once",
    },
    "llm": {
        "whole: direct", "stream, together: openai", "stream, 5 ms apart: socket", "ready: direct", "model server",
        "delta, together: model to page", "delta, 5 ms apart: gateway",
    },
    "long": {"kept: all", "kept: Redis", "only shown: worker", "only shown: commands, inside of scripts too"},
    "memory": {
        "session after one turn", "session of 40 messages, 21 kB", "turn that waits for its model",
        "open socket: gateway", "open socket: bare server", "message of 200 characters that waits",
    },
    "pickup": {
        "shoal: p50", "shoal: p99", "shoal: worker", "shoal: Redis", "arq, poll 0.01 s: p50", "arq, poll 0.5 s: p99",
        "whole worker: idle", "whole gateway: idle",
    },
    "replicas": {"copies = 1, 8 people: push to reply p50", "copies = 2, 1 person: Redis"},
    "scale": {
        "1 busy: rate", "2 busy: rate", "10 sessions: all", "1,000 sessions: Redis", "1 workers: all",
        "4 workers: push to reply p50",
    },
    "scripts": {"turns/acquire", "turns/take", "sessions/read", "sessions/restore", "delivery/acquire"},
    "sockets": {
        "open socket: gateway", "open socket: beyond the bare server", "spread: late p99", "shared: late p50",
        "nothing happens: gateway",
    },
    "startup": {"worker: ready", "gateway: ready", "gateway: memory when ready", "worker: guardian", "bare python"},
    "tracing": {"a span, off", "a message, on"},
    "turn": {"no client: all", "no client: gateway", "direct client: worker", "model server"},
}  # fmt: skip
"""Some of each; `nanobot` is not installed here."""


def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a bench to its end."""
    command = [sys.executable, "-m", "proof.bench", name, "--quick", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def looked_at(name: str, folder: Path) -> Report:
    """A quick look of a bench, which ends well, prints its table, and writes it as JSON with the machine."""
    path = folder / f"{name}.json"
    done = run(name, "--json", str(path))
    assert done.returncode == 0, done.stderr[-4000:]
    report = from_json(path.read_bytes())
    assert {figure.name for figure in report.figures} >= COLUMNS[name]
    assert all(figure.name in done.stdout for figure in report.figures)
    assert "Valkey" in report.machine
    return report


# Each bench in a test of its own, so that one that fails is the only one that runs again.
@pytest.mark.parametrize("name", sorted(COLUMNS.keys() - {"scripts"}))
def test_a_bench_runs_and_gives_its_columns(name: str, tmp_path: Path) -> None:
    """It ends well, prints its table, and writes it as JSON with medians, extremes and the machine."""
    looked_at(name, tmp_path)


def test_the_bench_of_scripts_knows_each_of_them(tmp_path: Path) -> None:
    """A new script has a case with the largest data that its limits allow, or data without a size of its own."""
    measured = {figure.name for figure in looked_at("scripts", tmp_path).figures}
    assert measured | CONSTANT == {*script_names()}


def test_every_bench_is_looked_at() -> None:
    """A new one gets its line above."""
    assert {*COLUMNS, "nanobot"} == {*BENCHES}


def test_without_its_peer_the_bench_says_how_to_install_it(tmp_path: Path) -> None:
    """One command, and code 2."""
    done = run("nanobot", "--peer", str(tmp_path / "python"))
    assert done.returncode == 2
    assert "pip install nanobot-ai" in done.stderr
