"""Text of Excel workbooks. The library is imported late: see `worker.documents.child`."""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from worker.documents.unread import Unread

ROWS: Final = 50_000
COLUMNS: Final = 256
_PIECE_BYTES: Final = 64 * 1024


def sheet_texts(file: BinaryIO) -> Iterator[str]:
    """Yield one line a row, cells separated by tabs: saved values, without empty rows. A formula is
    shown only where no value was saved. Charts and other parts that cannot be read are named."""
    data = file.read()
    book = _load_book(data, values=True)
    formulas = _load_book(data, values=False)
    archive = zipfile.ZipFile(io.BytesIO(data))
    yield f"[Excel workbook, {len(book.sheetnames)} sheet{'' if len(book.sheetnames) == 1 else 's'}]"
    left = ROWS
    for name in book.sheetnames:
        sheet = book[name]
        hidden = "" if sheet.sheet_state == "visible" else " (hidden)"
        if not hasattr(sheet, "iter_rows"):
            yield f"--- sheet {name!r}{hidden} is a chart, which was not read ---"
            continue
        yield f"--- sheet {name!r}{hidden} ---"
        part = sheet._worksheet_path
        rows = _rows(sheet, formulas[name] if _has_formulas(archive, part) else None)
        for line in rows:
            if (left := left - 1) < 0:
                yield f"[only {ROWS:,} rows are shown]"
                return
            if line:
                yield line
        yield from _beside(archive, part)


def _load_book(data: bytes, *, values: bool) -> Any:
    """Return the workbook, without reading its charts: the library fails on some of them."""
    from openpyxl.chartsheet import Chartsheet  # type: ignore[import-untyped]
    from openpyxl.reader.excel import ExcelReader  # type: ignore[import-untyped]

    class Reader(ExcelReader):  # type: ignore[misc]
        def read_chartsheet(self, sheet: Any, rel: Any) -> None:
            chart = Chartsheet(parent=self.wb, title=sheet.name)
            chart.sheet_state = sheet.state
            self.wb._add_sheet(chart)

    reader = Reader(io.BytesIO(data), read_only=True, data_only=values)
    reader.read()
    return reader.wb


def _rows(sheet: Any, formulas: Any) -> Iterator[str]:
    """Yield every row, also empty ones, and a note on formulas without values."""
    # A sheet may declare the largest size the format allows; this makes openpyxl ignore it.
    sheet.reset_dimensions()
    missing = 0
    rows = sheet.iter_rows(max_col=COLUMNS, values_only=True)
    if formulas is None:
        yield from (_line(row) for row in rows)
        return
    formulas.reset_dimensions()
    for row, written in zip(rows, formulas.iter_rows(max_col=COLUMNS, values_only=True), strict=False):
        empty = [value is None and formula is not None for value, formula in zip(row, written, strict=False)]
        missing += sum(empty)
        yield _line(
            [
                getattr(formula, "text", formula) if lost else value
                for value, formula, lost in zip(row, written, empty, strict=False)
            ]
        )
    if missing:
        one = "1 formula without a saved value is shown as it is written"
        many = f"{missing} formulas without a saved value are shown as they are written"
        yield f"[{one if missing == 1 else many}]"


def _line(row: Any) -> str:
    return "\t".join("" if value is None else " ".join(str(value).split()) for value in row).rstrip()


def _has_formulas(archive: zipfile.ZipFile, part: str) -> bool:
    """Return whether a sheet has formulas at all: reading it a second time takes as long again."""
    before = b""
    with archive.open(part.lstrip("/")) as file:
        while piece := file.read(_PIECE_BYTES):
            if any(mark in before + piece for mark in (b"<f>", b"<f ", b"<f/>", b":f>", b":f ")):
                return True
            before = piece[-4:]
    return False


def _beside(archive: zipfile.ZipFile, part: str) -> Iterator[str]:
    """Yield the comments of a sheet and its text boxes, and a note on what else lies on it."""
    unread = Unread()
    for kind, target in _related(archive, part):
        root = _parse(archive, target)
        if kind == "comments":
            for comment in root.iterfind(".//{*}comment"):
                yield f"[comment on {comment.get('ref', '')}] {_text(comment)}"
        elif kind == "drawing":
            for shape in root.iterfind(".//{*}sp"):
                if text := _text(shape):
                    yield f"[text box] {text}"
            unread.add("picture", len(root.findall(".//{*}pic")))
            unread.add("chart", len(root.findall(".//{*}graphicFrame")))
    if note := unread.note():
        yield note


def _related(archive: zipfile.ZipFile, part: str) -> Iterator[tuple[str, str]]:
    """Yield kind and name of the parts that a part refers to. Only XML: it was checked."""
    folder, _, name = part.lstrip("/").rpartition("/")
    known = set(archive.namelist())
    relations = f"{folder}/_rels/{name}.rels"
    if relations not in known:
        return
    for relation in _parse(archive, relations):
        target = posixpath.normpath(posixpath.join("/", folder, relation.get("Target", ""))).lstrip("/")
        if target in known and target.endswith(".xml"):
            yield relation.get("Type", "").rpartition("/")[2], target


def _parse(archive: zipfile.ZipFile, part: str) -> Any:
    from openpyxl.xml.functions import fromstring  # type: ignore[import-untyped]

    return fromstring(archive.read(part))


def _text(element: Any) -> str:
    return " ".join("".join(one.text or "" for one in element.iterfind(".//{*}t")).split())
