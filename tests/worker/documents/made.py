"""Documents for tests: real ones, made by the libraries that also read them, and broken ones by hand."""

from __future__ import annotations

import io
import zipfile
import zlib

import docx
import openpyxl  # type: ignore[import-untyped]
import pptx


def word(*paragraphs: str) -> bytes:
    made = docx.Document()
    made.add_heading("Plan", level=2)
    for text in paragraphs:
        made.add_paragraph(text)
    table = made.add_table(rows=1, cols=2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    return _saved(made)


def sheet(rows: list[list[object]]) -> bytes:
    made = openpyxl.Workbook()
    made.active.title = "Costs"
    for row in rows:
        made.active.append(row)
    return _saved(made)


def slides(*titles: str) -> bytes:
    made = pptx.Presentation()
    for title in titles:
        slide = made.slides.add_slide(made.slide_layouts[5])
        slide.shapes.title.text = title
        slide.notes_slide.notes_text_frame.text = f"say {title}"
    return _saved(made)


def pdf(stream: bytes = b"BT /F1 12 Tf 72 720 Td (Hello from a page) Tj ET", *, packed: int = 0) -> bytes:
    """A PDF of one page. `packed` is how many times its content is packed."""
    filters = b"/Filter [" + b"/FlateDecode " * packed + b"]" if packed else b""
    for _ in range(packed):
        stream = zlib.compress(stream, 9)
    return pdf_of(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(stream), filters, stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )


def pdf_of(*objects: bytes) -> bytes:
    """A PDF of these objects, the first its catalogue."""
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return body + b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (
        size,
        table,
        size,
        len(body),
    )


def replaced(data: bytes, name: str, content: bytes, *, more: dict[str, bytes] | None = None) -> bytes:
    """An archive with one part changed, and more added."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, content if entry.filename == name else old.read(entry))
        for extra, text in (more or {}).items():
            new.writestr(extra, text)
    return out.getvalue()


def part(data: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(name)


def _saved(made: object) -> bytes:
    out = io.BytesIO()
    made.save(out)  # type: ignore[attr-defined]
    return out.getvalue()
