"""Text of PowerPoint presentations. The library is imported late: see `worker.documents.child`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from worker.documents.unread import Unread

_DEPTH: Final = 60
_LEFT_OUT: Final = {"pic": "picture", "chart": "chart", "relIds": "diagram", "oleObj": "embedded object"}


def slide_texts(file: BinaryIO) -> Iterator[str]:
    """Yield the texts of each slide in the order of its shapes, those in groups and tables too, then
    its notes, comments, and a line that names what was not read."""
    from pptx import Presentation

    slides = Presentation(file).slides
    yield f"[PowerPoint presentation, {len(slides)} slide{'' if len(slides) == 1 else 's'}]"
    for number, slide in enumerate(slides, 1):
        hidden = " (hidden)" if slide._element.get("show") in ("0", "false") else ""
        yield f"--- slide {number}{hidden} ---"
        unread = Unread()
        yield from _shapes(slide.shapes._spTree, unread)
        if slide.has_notes_slide:
            # Without the picture of the slide, and its number.
            frames = [one for one in slide.notes_slide.placeholders if "SLIDE_" not in str(one.placeholder_format.type)]
            texts = [text for frame in frames if (text := "\n".join(_shapes((frame._element,), Unread())))]
            if texts:
                yield f"Notes: {chr(10).join(texts)}"
        yield from _comments(slide)
        if note := unread.note():
            yield note


def _shapes(element: Any, unread: Unread, depth: int = 0) -> Iterator[str]:
    """Yield the text of every shape below an element: the library does not look into alternate
    contents, which newer programs write for what older ones do not know."""
    if depth > _DEPTH:
        raise RecursionError
    for child in element:
        tag = _tag(child)
        if tag == "txBody":
            if text := _text(child):
                yield text
        elif tag == "tr":
            yield " | ".join(" ".join(_text(cell).split()) for cell in child if _tag(cell) == "tc")
        elif tag in _LEFT_OUT:
            unread.add(_LEFT_OUT[tag])
        elif tag and tag != "Fallback":
            yield from _shapes(child, unread, depth + 1)


def _text(element: Any) -> str:
    """Return the paragraphs of a text, a line each."""
    paragraphs = (one for one in element.iter() if _tag(one) == "p")
    texts = ("".join(_piece(one) for one in paragraph.iter()) for paragraph in paragraphs)
    return "\n".join(texts).strip()


def _piece(element: Any) -> str:
    tag = _tag(element)
    return element.text or "" if tag == "t" else "\n" if tag == "br" else ""


def _comments(slide: Any) -> Iterator[str]:
    from pptx.oxml import parse_xml

    for relation in slide.part.rels.values():
        if not relation.is_external and relation.reltype.endswith("/comments"):
            for comment in parse_xml(relation.target_part.blob).iter():
                if _tag(comment) == "cm":
                    texts = (one.text or "" for one in comment.iter() if _tag(one) in ("text", "t"))
                    yield f"[comment] {' '.join(''.join(texts).split())}"


def _tag(element: Any) -> str:
    """Return the name of an element without its namespace; empty for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
