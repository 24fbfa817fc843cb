"""The end of a command's help: what one types."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """An epilog for click that keeps its lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
