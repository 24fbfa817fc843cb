"""Lengths of files and lines."""

from __future__ import annotations

import math
from typing import Final

from tools.house.counting import Count, share
from tools.house.files import House, Source, is_empty_init

WIDE: Final = 100
"""Columns that fit beside a second window."""


def median_length(house: House) -> Count:
    """Return the median length of the product's Python files."""
    return _quantile(house, 0.5)


def p95_length(house: House) -> Count:
    """Return the length that 95 of 100 Python files of the product do not exceed."""
    return _quantile(house, 0.95)


def wide_lines(house: House) -> Count:
    """Return the share of Python lines over 100 columns; empty lines do not count."""
    lines = [
        (source.path, number, line)
        for source in house.python
        for number, line in enumerate(source.lines, start=1)
        if line.strip()
    ]
    wide = [f"{path}:{number}" for path, number, line in lines if len(line) > WIDE]
    return share(wide, len(lines))


def product_lines(house: House) -> Count:
    """Count the lines of every file of the product, in all languages."""
    return _lines(house.product)


def python_lines(house: House) -> Count:
    """Count the lines of the product's Python."""
    return _lines(house.python)


def lines_of_tests(house: House) -> Count:
    """Count the lines of Python in tests and proofs."""
    return _lines(house.test_python)


def _lines(sources: list[Source]) -> Count:
    return Count(sum(source.content.count(b"\n") for source in sources))


def _quantile(house: House, part: float) -> Count:
    """Return the nearest-rank quantile of file lengths; an empty `__init__.py` is not a file to read."""
    files = [source for source in house.python if not is_empty_init(source)]
    files.sort(key=lambda source: len(source.lines))
    if not files:
        return Count(0)
    length = len(files[math.ceil(part * len(files)) - 1].lines)
    longer = [f"{source.path}: {len(source.lines)}" for source in files if len(source.lines) > length]
    return Count(length, tuple(longer))
