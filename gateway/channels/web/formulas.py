"""Renders TeX formulas as MathML, which browsers draw without a script or a font of ours."""

from __future__ import annotations

import contextlib
import html
from typing import Final

from latex2mathml.converter import convert

FORMULA_CHARS: Final = 4_000


def mathml(tex: str, *, block: bool) -> str:
    """Return a formula as MathML. One that cannot be read is shown as it was written."""
    if len(tex) <= FORMULA_CHARS:
        with contextlib.suppress(Exception):  # its own errors, and IndexError or RecursionError for other odd input
            return convert(tex, display="block" if block else "inline")
    return f"<code>{html.escape(tex, quote=False)}</code>"
