"""`python -m proof.bench <name>`: measurements, not tests. Each prints a table and says on which machine."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from proof.bench import every
from proof.bench.plan import Plan
from proof.bench.table import Report, machine, show, to_json

BENCHES: Final = (
    "capacity", "client", "drain", "exec", "inflight", "llm", "long", "memory", "nanobot", "pickup", "replicas",
    "scale", "scripts", "sockets", "startup", "tracing", "turn",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.bench", description="Measure Shoal.")
    parser.add_argument(
        "name", choices=["all", "targets", *BENCHES], help="what to measure; all: one after the other; targets: nothing"
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the figures there; a folder for all; for targets the one with the folders of all runs",
    )
    parser.add_argument("--rounds", type=int, default=0, help="how often each side is measured; 0: the bench's own")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; the figures mean little")
    parser.add_argument("--peer", default="", metavar="PYTHON", help="of nanobot: the Python that it is installed for")
    parser.add_argument(
        "--docs", type=Path, metavar="FILE", help="of targets: write the tables of this page anew, from all runs there"
    )
    given = parser.parse_args()
    plan = Plan(quick=given.quick, rounds=given.rounds, peer=given.peer)
    _many_files()
    if given.name == "all":
        return every.main(plan, given.json)
    if given.name == "targets":
        if given.json is None:
            parser.error("targets reads the figures of a run: --json FOLDER")
        every.tell(given.json, given.docs)
        return 0
    began, load = time.monotonic(), os.getloadavg()[0]
    report: Report = import_module(f"proof.bench.{given.name}").measure(plan)
    report = msgspec.structs.replace(
        report,
        machine=machine(),
        quick=plan.quick,
        seconds=round(time.monotonic() - began, 1),
        load=load,
        at=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    )
    show(report)
    if given.json:
        given.json.write_bytes(to_json(report))
    return 0


def _many_files() -> None:
    """Thousands of sockets, here and in every process that is started."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
