"""The text of a PowerPoint presentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from pptx import Presentation


def texts(file: BinaryIO) -> Iterator[str]:
    """Slide after slide: texts, tables and the speaker's notes."""
    slides = Presentation(file).slides
    yield f"[PowerPoint presentation, {len(slides)} slides]"
    for number, slide in enumerate(slides, 1):
        yield f"--- slide {number} ---"
        for shape in slide.shapes:
            if shape.has_text_frame and (text := shape.text_frame.text.strip()):
                yield text
            if shape.has_table:
                for row in shape.table.rows:
                    yield " | ".join(" ".join(cell.text.split()) for cell in row.cells)
        if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None and notes.text.strip():
            yield f"Notes: {notes.text.strip()}"
