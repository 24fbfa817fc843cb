"""Write a leaf of a document in a markup of marks around words."""

from __future__ import annotations

from collections.abc import Callable

from gateway.text.leaves import Leaf, bold
from gateway.text.marks import Pen
from gateway.text.plain import RULE


def write_leaf(leaf: Leaf, pen: Pen, code: Callable[[Leaf], str]) -> str:
    """Return a leaf without the marks of its lists and quotes. `code` writes a block of code;
    headings are bold text."""
    match leaf.kind:
        case "code":
            return code(leaf)
        case "rule":
            return RULE
        case "heading":
            return pen.write(bold(leaf.runs))
        case _:
            return pen.write(leaf.runs)
