"""Text of Word documents, from their XML: the library's own view of a paragraph leaves out what stands
in tracked changes, content controls, text boxes and nested tables. Its parser is imported late: see
`worker.documents.child`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from worker.documents.unread import Unread

_DEPTH: Final = 60
_PARTS: Final = ("header", "footer", "footnotes", "endnotes", "comments")
_NOTES: Final = {"footnote": "^", "endnote": "^e", "comment": "comment "}
_SIGNS: Final = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_LEFT_OUT: Final = {
    "del": "tracked deletion",
    "blip": "picture",
    "imagedata": "picture",
    "chart": "chart",
    "relIds": "diagram",
    "OLEObject": "embedded object",
    "altChunk": "embedded document",
}
# Text that is not the document's: deleted, moved away, codes of fields, and properties.
_NO_TEXT: Final = frozenset(("moveFrom", "instrText", "delInstrText", "delText", "Fallback", "sdtPr"))


def word_texts(file: BinaryIO) -> Iterator[str]:
    """Yield paragraphs and table rows in document order, then headers, footers, notes and comments;
    headings are marked with `#`, and the last line names what was not read."""
    import docx
    from docx.oxml import parse_xml

    document = docx.Document(file)
    names = {style.style_id: style.name or "" for style in document.styles}
    reader = _WordReader(names)
    yield "[Word document]"
    yield from reader.blocks(document.element.body)
    parts = [
        (kind, relation.target_part.blob)
        for relation in document.part.rels.values()
        if not relation.is_external and (kind := relation.reltype.rpartition("/")[2]) in _PARTS
    ]
    seen: set[str] = set()
    for kind, blob in sorted(parts, key=lambda part: _PARTS.index(part[0])):
        root = parse_xml(blob)
        text = "\n".join(reader.notes(root) if kind.endswith("s") else reader.blocks(root))
        if text.strip() and (line := f"--- {kind} ---\n{text}") not in seen:
            seen.add(line)
            yield line
    if note := reader.unread.note():
        yield note


class _WordReader:
    """Walks elements of WordprocessingML. `styles` are names of styles by their ids."""

    def __init__(self, styles: dict[str, str]) -> None:
        self.unread = Unread()
        self._styles = styles
        self._boxes: list[Any] = []

    def blocks(self, element: Any, depth: int = 0) -> Iterator[str]:
        """Yield the text of each paragraph and table row below an element."""
        if depth > _DEPTH:
            raise RecursionError
        for child in element:
            tag = _tag(child)
            if tag == "p":
                yield from self._paragraph(child, depth)
            elif tag == "tbl":
                yield from self._rows(child, depth)
            elif not self._is_left_out(child, tag):
                yield from self.blocks(child, depth + 1)

    def notes(self, root: Any) -> Iterator[str]:
        """Yield footnotes, endnotes or comments, each with the mark that its place has."""
        for note in root:
            text = " ".join(" ".join(self.blocks(note)).split())
            if text and (mark := _NOTES.get(_tag(note))):
                author = _attribute(note, "author")
                yield f"[{mark}{_attribute(note, 'id')}]{f' {author}' if author else ''}: {text}"

    def _paragraph(self, paragraph: Any, depth: int) -> Iterator[str]:
        outer = self._boxes
        self._boxes = []
        text = "".join(self._inline(paragraph, depth))
        boxes = self._boxes
        self._boxes = outer
        if text.strip():
            level = self._style(paragraph).removeprefix("Heading ")
            yield f"{'#' * int(level)} {text}" if level.isdigit() and len(level) == 1 else text
        for box in boxes:
            if inner := "\n".join(self.blocks(box, depth + 1)):
                yield f"[text box] {inner}"

    def _inline(self, element: Any, depth: int) -> Iterator[str]:
        if depth > _DEPTH:
            raise RecursionError
        for child in element:
            tag = _tag(child)
            if tag == "t":
                yield child.text or ""
            elif tag in _SIGNS and not len(child):
                yield _SIGNS[tag]
            elif tag == "txbxContent":
                self._boxes.append(child)
            elif tag == "sym":
                yield _symbol(child)
            elif tag.endswith("Reference") and (mark := _NOTES.get(tag.removesuffix("Reference"))):
                yield f"[{mark}{_attribute(child, 'id')}]"
            elif not self._is_left_out(child, tag):
                yield from self._inline(child, depth + 1)

    def _rows(self, table: Any, depth: int) -> Iterator[str]:
        for row in _inside(table, "tr"):
            if any(_tag(mark) == "del" for properties in _inside(row, "trPr") for mark in properties):
                self.unread.add("tracked deletion")
                continue
            cells = (self._cell(cell, depth + 1) for cell in _inside(row, "tc"))
            yield " | ".join(cells)

    def _cell(self, cell: Any, depth: int) -> str:
        """Return a cell in one line; a table in it keeps its rows apart."""
        if depth > _DEPTH:
            raise RecursionError
        parts: list[str] = []
        for child in cell:
            if _tag(child) == "tbl":
                rows = (" ".join(row.split()) for row in self._rows(child, depth + 1))
                parts.append(f"[table: {'; '.join(rows)}]")
            else:
                parts += self.blocks((child,), depth + 1)
        return " ".join(" ".join(parts).split())

    def _is_left_out(self, child: Any, tag: str) -> bool:
        if not tag or tag in _NO_TEXT:
            return True
        if (what := _LEFT_OUT.get(tag)) is None:
            return False
        # The mark of a deleted end of a paragraph holds nothing.
        if tag != "del" or any(_tag(one) == "delText" for one in child.iter()):
            self.unread.add(what)
        return True

    def _style(self, paragraph: Any) -> str:
        for properties in _inside(paragraph, "pPr"):
            for style in _inside(properties, "pStyle"):
                return self._styles.get(_attribute(style, "val"), "")
        return ""


def _inside(element: Any, tag: str) -> Iterator[Any]:
    """Yield children with a tag, also those in content controls and tracked insertions."""
    for child in element:
        name = _tag(child)
        if name == tag:
            yield child
        elif name in ("sdt", "sdtContent", "ins", "moveTo", "customXml"):
            yield from _inside(child, tag)


def _tag(element: Any) -> str:
    """Return the name of an element without its namespace; empty for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _attribute(element: Any, name: str) -> str:
    return next((value for key, value in element.items() if key.rpartition("}")[2] == name), "")


def _symbol(element: Any) -> str:
    try:
        code = int(_attribute(element, "char"), 16)
    except ValueError:
        return ""
    # Fonts of symbols use private characters, which say nothing without the font.
    return "\ufffd" if 0xE000 <= code <= 0xF8FF or not 32 <= code < 0xD800 else chr(code)
