"""`python -m worker`, for tests.helpers.pod: without words of its own but those that are given."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from worker import __main__ as worker


def main(words: Sequence[str]) -> int:
    """Turns into the worker."""
    sys.argv = ["worker", *words]
    return worker.main()
