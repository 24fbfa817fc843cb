from __future__ import annotations

from pathlib import Path

import pytest

from gateway.platform.registry import PLATFORMS
from tests.gateway.text.readers import READERS
from tests.gateway.text.shown import renderer

SAMPLES = Path(__file__).with_name("samples")


def rendered(name: str) -> str:
    """The pieces of the document as a person reads them: markup, then plain text."""
    pieces = renderer(name)((SAMPLES / "document.md").read_text("utf-8"))
    return "".join(f"===== text =====\n{piece.text}\n===== plain =====\n{piece.plain}\n" for piece in pieces)


@pytest.mark.parametrize("name", READERS)
def test_the_sample_document_looks_as_somebody_checked_by_eye(name: str) -> None:
    """`python -m tests.gateway.text.test_samples` writes the files anew; then look at what changed."""
    assert rendered(name) == (SAMPLES / f"{name}.txt").read_text("utf-8")


def test_the_markup_of_every_platform_has_a_reader() -> None:
    """Without one its renderer is in none of the tests of this folder."""
    assert set(READERS) == set(PLATFORMS)


if __name__ == "__main__":
    for each in READERS:
        (SAMPLES / f"{each}.txt").write_text(rendered(each), "utf-8")
