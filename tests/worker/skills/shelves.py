"""Skills of a test's own."""

from __future__ import annotations

from pathlib import Path


def write_skill(
    folder: Path, name: str, description: str = "A skill.", *, metadata: str = "{}", text: str = "Do it."
) -> Path:
    """`<folder>/<name>/SKILL.md`."""
    path = folder / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: {description}\nmetadata: {metadata}\n---\n\n{text}\n")
    return path
