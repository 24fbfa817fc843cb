"""Documents become text in a process of their own; one made to break its reader breaks nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from shared.errors import ToolFailed
from shared.media.kinds import PARTS
from tests.worker.documents import made
from worker.documents.kinds import FILE_LIMIT_BYTES, Document, decode_text, detect_document
from worker.documents.reader import DocumentReader

DEEP = 200_000
REPORTS = Path("tests/data/reports")
CHART = "--- sheet 'C' is a chart, which was not read ---"
LAUGHS = b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><l>&b;</l>'


async def read(data: bytes, reader: DocumentReader | None = None) -> str:
    kind = detect_document(data)
    assert kind is not None
    return await (reader or DocumentReader()).read_document("x.bin", kind, data)


@pytest.mark.parametrize(
    ("kind", "data", "lines"),
    [
        ("pdf", made.pdf(), ["[PDF document, 1 page]", "--- page 1 ---", "Hello from a page"]),
        ("pdf", made.pdf(packed=1), ["Hello from a page"]),
        ("word", made.word("Straße 5", "日本"), ["[Word document]", "## Plan", "Straße 5", "日本", "left | right"]),
        ("sheet", made.sheet([["a", 1], [], [None, 2.5]]), ["--- sheet 'Costs' ---", "a\t1", "\t2.5"]),
        ("word", (REPORTS / "f-docx-tracked.docx").read_bytes(), ["Before INSERTED after", "Control: IN-CONTROL"]),
        ("sheet", (REPORTS / "f-xlsx-chartsheet.xlsx").read_bytes(), ["kept", CHART]),
        ("slides", made.slides("One", "Two"), ["--- slide 2 ---", "Two", "Notes: say Two"]),
    ],
)
async def test_a_document_is_read_as_text(kind: Document, data: bytes, lines: list[str]) -> None:
    """Its content decides about its kind; text stands in the order of the document."""
    assert detect_document(data) == kind
    assert decode_text(data) is None
    got = (await read(data)).splitlines()
    assert [line for line in got if line in lines] == lines


def word_bomb() -> bytes:
    return made.replaced(made.word(), "word/document.xml", b" " * (300 * 1024 * 1024))


def word_growing() -> bytes:
    return made.replaced(made.word(), "word/document.xml", b" " * (50 * 1024 * 1024))


def word_deep() -> bytes:
    return made.replaced(made.word(), "word/document.xml", b"".join(b"<a%d>" % n for n in range(DEEP)))


def word_laughs() -> bytes:
    return made.replaced(made.word(), "word/styles.xml", LAUGHS)


def word_laughs_in_utf16() -> bytes:
    return made.replaced(made.word(), "word/styles.xml", LAUGHS.decode().encode("utf-16"))


def word_parts() -> bytes:
    return made.replaced(made.word(), "", b"", more={f"{n}": b"" for n in range(PARTS)})


def word_cut() -> bytes:
    return made.word("x" * 10_000)[:-100]


def word_in_name_only() -> bytes:
    return b"PK\x03\x04 word/document.xml"


def pdf_packed_bomb() -> bytes:
    return made.pdf(b" " * (200 * 1024 * 1024), packed=2)


def pdf_loop() -> bytes:
    return made.pdf_of(b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R] /Count 9 >>")


def pdf_deep() -> bytes:
    return made.pdf_of(b"<< /Type /Catalog /Pages 2 0 R >>", b"[" * DEEP)


def pdf_locked() -> bytes:
    locked = b"<< /Filter /Standard /V 1 /R 2 /O (%s) /U (%s) /P -4 >>" % (b"x" * 32, b"y" * 32)
    whole = made.pdf_of(b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>", locked)
    return whole.replace(b"/Root 1 0 R", b"/Root 1 0 R /Encrypt 3 0 R /ID [(a) (a)]")


@pytest.mark.parametrize(
    ("bomb", "says"),
    [
        (word_bomb, "unpacks to"),
        (word_growing, "grows more than 200 times"),
        (word_deep, "damaged"),
        (word_laughs, "document type declaration"),
        (word_laughs_in_utf16, "document type declaration"),
        (word_parts, "parts; at most 5,000"),
        (word_cut, "it is damaged"),
        (word_in_name_only, "it is damaged"),
        (pdf_packed_bomb, "it is damaged (LimitReachedError)"),
        (pdf_loop, "it is damaged"),
        (pdf_deep, "nested too deeply"),
        (pdf_locked, "protected by a password"),
    ],
)
async def test_a_bomb_is_refused_with_its_reason(bomb: Callable[[], bytes], says: str) -> None:
    """Security row 27: `file refused: <reason>`, the file named, and this process none the bigger."""
    data = bomb()
    assert len(data) < FILE_LIMIT_BYTES
    before = psutil.Process().memory_info().rss
    with pytest.raises(ToolFailed, match=r"^file refused: ") as raised:
        await read(data)
    assert says in str(raised.value)
    assert "('x.bin')" in str(raised.value)
    assert psutil.Process().memory_info().rss - before < 64 * 1024 * 1024


async def test_a_sheet_that_claims_to_be_the_largest_there_is_gives_what_it_has() -> None:
    """One cell at the far end of a million rows, and a dimension of 17 billion cells."""
    data = made.sheet([["first"]])
    xml = made.part(data, "xl/worksheets/sheet1.xml").replace(b'ref="A1"', b'ref="A1:XFD1048576"')
    far = b'<row r="1048576"><c r="XFD1048576"><v>7</v></c></row></sheetData>'
    got = await read(made.replaced(data, "xl/worksheets/sheet1.xml", xml.replace(b"</sheetData>", far)))
    assert "first" in got
    assert len(got) < 1000


async def test_a_pdf_of_very_many_objects_is_over_in_its_time() -> None:
    """Read or refused, it ends, and takes no more than it may."""
    data = made.pdf_of(b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>")
    data += b"".join(b"%d 0 obj\n1\nendobj\n" % n for n in range(3, 400_000))
    try:
        text = await asyncio.wait_for(read(data, DocumentReader(cpu_s=2)), timeout=30)
    except ToolFailed as exc:
        text = str(exc)
    assert text.startswith(("[PDF document", "file refused: "))


async def test_what_takes_too_long_is_ended_by_the_kernel() -> None:
    """The limit holds inside a library, too."""
    with pytest.raises(ToolFailed, match=r"^file refused: reading it takes more than 1 s of work"):
        await read(made.pdf(b"BT " + b"(x) Tj " * 1_000_000 + b"ET", packed=1), DocumentReader(cpu_s=1))


async def test_what_takes_too_much_memory_is_ended() -> None:
    """It fails in the reader alone."""
    with pytest.raises(ToolFailed, match=r"^file refused: it needs too much memory"):
        await read(made.pdf(b" " * (60 * 2**20), packed=1), DocumentReader(memory_bytes=100 * 2**20))


async def test_a_file_over_the_limit_starts_no_process() -> None:
    """16 MB, like everything that is read of a workspace."""
    with pytest.raises(ToolFailed, match="file refused: it has 16,777,217 bytes; at most"):
        await DocumentReader().read_document("x.pdf", "pdf", b"x" * (FILE_LIMIT_BYTES + 1))


async def test_a_cancelled_reader_leaves_no_process() -> None:
    """Also one that is in the middle of its file."""
    reading = asyncio.create_task(read(made.pdf(b"BT " + b"(x) Tj " * 1_000_000 + b"ET", packed=1)))
    me = psutil.Process(os.getpid())
    while not [child for child in me.children() if "worker.documents.child" in child.cmdline()]:
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not [child for child in me.children() if "worker.documents.child" in child.cmdline()]


async def test_a_reader_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is one variable."""
    monkeypatch.setenv("SHOAL_MODEL__API_KEY", "canary-secret")
    reading = asyncio.create_task(read(made.pdf(b"BT " + b"(x) Tj " * 1000 + b"ET", packed=1)))
    me = psutil.Process(os.getpid())
    seen: dict[str, str] = {}
    while not reading.done() and not seen:
        await asyncio.sleep(0)
        for child in me.children():
            if "worker.documents.child" in child.cmdline():
                seen = child.environ()
    assert seen == {"LANG": "C.UTF-8"}
    await asyncio.gather(reading, return_exceptions=True)
