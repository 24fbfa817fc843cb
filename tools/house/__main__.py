"""Prints how readable the code is, in counts: `python -m tools.house`, or `make house`."""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import Final

from tools.house.files import read_house
from tools.house.report import render_json, render_lists, render_table

ROOT: Final = Path(__file__).parents[2]


def main() -> None:
    """Print the counts of this checkout, or of another one."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument("--repo", type=Path, default=ROOT, metavar="DIR", help="count another checkout")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the counts as JSON")
    form.add_argument("--lists", action="store_true", help="print what was counted, with file and line")
    gc.disable()  # every syntax tree lives until the end; scanning them takes a third of the time
    asked = parser.parse_args()
    render = render_json if asked.json else render_lists if asked.lists else render_table
    sys.stdout.write(render(read_house(asked.repo)) + "\n")


if __name__ == "__main__":
    main()
