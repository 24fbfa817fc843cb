"""`python -m tests.bench <name>`: measurements, not tests. Each prints a table and says on which machine."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

BENCHES: Final = {name: f"tests.bench.{name}" for name in ("capacity", "drain", "exec", "llm", "pickup", "tracing")}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure Shoal.")
    parser.add_argument("name", choices=sorted(BENCHES), help="what to measure")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=0, help="how often each side is measured; 0: the bench's own")
    given = parser.parse_args()
    import_module(BENCHES[given.name]).main(rounds=given.rounds, as_json=given.json)


if __name__ == "__main__":
    main()
