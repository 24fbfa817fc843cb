"""Documents are read whole: what stands beside the plain paragraphs too; what cannot be read is named."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import docx
import openpyxl  # type: ignore[import-untyped]
import pptx
import pytest
from openpyxl.chart import BarChart, Reference  # type: ignore[import-untyped]
from openpyxl.comments import Comment  # type: ignore[import-untyped]
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from tests.helpers.media_files import png
from tests.worker.documents import made
from worker.documents.child import TEXTS
from worker.documents.kinds import detect_document

REPORTS: Final = Path("tests/data/reports")
W: Final = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
SPACES: Final = (
    f'{W} xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:v="urn:schemas-microsoft-com:vml"'
)


def read(data: bytes) -> str:
    kind = detect_document(data)
    assert kind is not None
    return "\n".join(TEXTS[kind](io.BytesIO(data)))


def saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*inner: str) -> str:
    return f"<w:p>{''.join(inner)}</w:p>"


BOX: Final = f"<w:txbxContent>{paragraph(run('in a box'))}</w:txbxContent>"
DRAWN: Final = f"<w:drawing><wps:wsp><wps:txbx>{BOX}</wps:txbx></wps:wsp></w:drawing>"
OLD: Final = f"<w:pict><v:textbox>{BOX}</v:textbox></w:pict>"
INNER: Final = f"<w:tbl><w:tr><w:tc>{paragraph(run('inner'))}</w:tc><w:tc>{paragraph(run('two'))}</w:tc></w:tr></w:tbl>"
CELL: Final = f"<w:tc>{paragraph(run('cell'))}</w:tc>"

WORD: Final[dict[str, tuple[str, list[str]]]] = {
    "an insertion": (paragraph(run("a "), f"<w:ins>{run('new')}</w:ins>"), ["a new"]),
    "a deletion": (
        paragraph(run("a"), "<w:del><w:r><w:delText>old</w:delText></w:r></w:del>"),
        ["a", "[1 tracked deletion was not read]"],
    ),
    "a move": (
        paragraph(f"<w:moveFrom>{run('moved')}</w:moveFrom>") + paragraph(f"<w:moveTo>{run('moved')}</w:moveTo>"),
        ["moved"],
    ),
    "a control in a line": (paragraph(f"<w:sdt><w:sdtContent>{run('control')}</w:sdtContent></w:sdt>"), ["control"]),
    "a control around lines": (
        f"<w:sdt><w:sdtPr/><w:sdtContent>{paragraph(run('control'))}</w:sdtContent></w:sdt>",
        ["control"],
    ),
    "a control around a row": (
        f"<w:tbl><w:sdt><w:sdtContent><w:tr>{CELL}{CELL}</w:tr></w:sdtContent></w:sdt></w:tbl>",
        ["cell | cell"],
    ),
    "an inserted and a deleted row": (
        f"<w:tbl><w:tr><w:trPr><w:ins/></w:trPr>{CELL}</w:tr><w:tr><w:trPr><w:del/></w:trPr>{CELL}</w:tr></w:tbl>",
        ["cell", "[1 tracked deletion was not read]"],
    ),
    "a text box in two forms": (
        paragraph(
            run("before"),
            f"<w:r><mc:AlternateContent><mc:Choice>{DRAWN}</mc:Choice><mc:Fallback>{OLD}</mc:Fallback>"
            "</mc:AlternateContent></w:r>",
        ),
        ["before", "[text box] in a box"],
    ),
    "an old text box": (paragraph(f"<w:r>{OLD}</w:r>"), ["[text box] in a box"]),
    "a table in a table": (
        f"<w:tbl><w:tr>{CELL}<w:tc>{paragraph(run('outer'))}{INNER}<w:p/></w:tc></w:tr></w:tbl>",
        ["cell | outer [table: inner | two]"],
    ),
    "a link and a field": (
        paragraph(
            f"<w:hyperlink>{run('link')}</w:hyperlink>", f"<w:fldSimple w:instr='PAGE'>{run(' page 3')}</w:fldSimple>"
        ),
        ["link page 3"],
    ),
    "a formula": (paragraph(run("E = "), "<m:oMath><m:r><m:t>mc</m:t></m:r></m:oMath>"), ["E = mc"]),
    "a picture and a chart": (
        paragraph(run("a"), "<w:r><w:drawing><a:blip/><c:chart/></w:drawing></w:r>"),
        ["a", "[1 picture and 1 chart were not read]"],
    ),
    "a tab and a hyphen": (
        paragraph("<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:noBreakHyphen/><w:t>c</w:t></w:r>"),
        ["a\tb-c"],
    ),
}


@pytest.mark.parametrize("what", WORD)
def test_all_text_of_a_word_document_is_read(what: str) -> None:
    """In order, once, and without what was deleted."""
    body, lines = WORD[what]
    xml = f"<w:document {SPACES}><w:body>{body}</w:body></w:document>"
    data = made.replaced(saved(docx.Document()), "word/document.xml", xml.encode())
    assert read(data).splitlines() == ["[Word document]", *lines]


def test_tracked_changes_and_a_content_control_are_read() -> None:
    """As the author sees them with all changes accepted."""
    assert read((REPORTS / "f-docx-tracked.docx").read_bytes()).splitlines() == [
        "[Word document]",
        "Before INSERTED after",
        "Control: IN-CONTROL",
        "[1 tracked deletion was not read]",
    ]


def test_headers_footers_and_notes_of_a_word_document_are_read() -> None:
    """Behind the text, notes with the mark of their place."""
    document = docx.Document()
    written = document.add_paragraph("text")
    document.sections[0].header.paragraphs[0].text = "Offer 7"
    document.sections[0].footer.paragraphs[0].text = "confidential"
    document.add_comment(written.runs, "really?", author="Ann")
    lines = read(saved(document)).splitlines()
    assert lines[1] == "text[comment 0]"
    assert lines[2:] == ["--- header ---", "Offer 7", "--- footer ---", "confidential", "--- comments ---", lines[-1]]
    assert lines[-1] == "[comment 0] Ann: really?"


def test_footnotes_of_a_word_document_are_read() -> None:
    """With the mark of their place; the line above them is no note."""
    mark = '<w:r><w:footnoteReference w:id="2"/></w:r>'
    document = f"<w:document {SPACES}><w:body>{paragraph(run('text'), mark)}</w:body></w:document>"
    line = f'<w:footnote w:id="0">{paragraph("<w:r><w:separator/></w:r>")}</w:footnote>'
    notes = (
        f'<w:footnotes {SPACES}>{line}<w:footnote w:id="2">{paragraph(run(" the source"))}</w:footnote></w:footnotes>'
    )
    plain = saved(docx.Document())
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    relation = f'<Relationship Id="rId99" Type="{office}/footnotes" Target="footnotes.xml"/></Relationships>'
    relations = "word/_rels/document.xml.rels"
    linked = made.part(plain, relations).replace(b"</Relationships>", relation.encode())
    data = made.replaced(plain, relations, linked, more={"word/footnotes.xml": notes.encode()})
    data = made.replaced(data, "word/document.xml", document.encode())
    assert read(data).splitlines() == ["[Word document]", "text[^2]", "--- footnotes ---", "[^2]: the source"]


def test_a_chart_on_a_sheet_of_its_own_is_named() -> None:
    """The other sheets are read."""
    lines = read((REPORTS / "f-xlsx-chartsheet.xlsx").read_bytes()).splitlines()
    assert "kept" in "\n".join(lines)
    assert [line for line in lines if "chart" in line.lower()] == ["--- sheet 'C' is a chart, which was not read ---"]


def test_a_workbook_is_read_with_formulas_comments_and_hidden_sheets() -> None:
    """A program that writes workbooks saves no values of formulas."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append([1, 2, "=A1+B1"])
    sheet["A1"].comment = Comment("from the invoice", "Ann")
    chart = BarChart()
    chart.add_data(Reference(sheet, min_col=1, min_row=1, max_row=1))
    sheet.add_chart(chart, "E5")
    secret = book.create_sheet("Secret")
    secret.sheet_state = "hidden"
    secret["A1"] = "hidden value"
    assert read(saved(book)).splitlines() == [
        "[Excel workbook, 2 sheets]",
        "--- sheet 'Sheet' ---",
        "1\t2\t=A1+B1",
        "[1 formula without a saved value is shown as it is written]",
        "[comment on A1] from the invoice",
        "[1 chart was not read]",
        "--- sheet 'Secret' (hidden) ---",
        "hidden value",
    ]


def test_a_saved_value_of_a_formula_is_shown_instead_of_it() -> None:
    """As people see it in their program."""
    book = openpyxl.Workbook()
    book.active.append([1, "=A1*2"])
    data = saved(book)
    name = "xl/worksheets/sheet1.xml"
    part = made.part(data, name)
    assert b"<v></v>" in part or b"<v />" in part or b"<v/>" in part
    for empty in (b"<v></v>", b"<v />", b"<v/>"):
        part = part.replace(empty, b"<v>2</v>")
    assert "1\t2" in read(made.replaced(data, name, part)).splitlines()


def test_a_presentation_is_read_with_groups_tables_and_notes() -> None:
    """Charts and pictures are named."""
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[6])
    outer = slide.shapes.add_group_shape()
    inner = outer.shapes.add_group_shape()
    inner.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "in a group"
    table = slide.shapes.add_table(1, 2, 0, 0, Inches(2), Inches(1)).table
    table.cell(0, 0).text = "left"
    table.cell(0, 1).text = "right"
    numbers: Any = CategoryChartData()  # type: ignore[no-untyped-call]
    numbers.categories = ["a"]
    numbers.add_series("s", (1,))
    slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, Inches(1), Inches(1), numbers)
    slide.shapes.add_picture(io.BytesIO(png()), 0, 0)
    slide.notes_slide.notes_text_frame.text = "say it"
    slide._element.set("show", "0")
    assert read(saved(show)).splitlines() == [
        "[PowerPoint presentation, 1 slide]",
        "--- slide 1 (hidden) ---",
        "in a group",
        "left | right",
        "Notes: say it",
        "[1 chart and 1 picture were not read]",
    ]


def test_a_scan_says_that_it_has_no_text() -> None:
    """A model would take an empty answer for an empty document."""
    image = (
        b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8 /Length 1 >>"
    )
    data = made.pdf_of(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /XObject << /I 5 0 R >> >> >>",
        b"<< /Length 4 >>\nstream\n/I Do\nendstream",
        image + b"\nstream\nx\nendstream",
    )
    lines = read(data).splitlines()
    assert "[this page has no text; it is a picture, which was not read]" in lines
    assert lines[-1].startswith("[nothing was read: no page has text, as in a scan.")


def test_comments_and_form_fields_of_a_pdf_are_read() -> None:
    """They are not part of the page's text."""
    data = made.pdf_of(
        b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [6 0 R] >> >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Annots [5 0 R 6 0 R] /Resources << >> >>",
        b"<< /Length 0 >>\nstream\n\nendstream",
        b"<< /Type /Annot /Subtype /Text /Rect [0 0 1 1] /Contents (check this) >>",
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /V (Ann) /Rect [0 0 1 1] >>",
    )
    text = read(data)
    assert "[comment] check this" in text
    assert "--- form fields ---\nname: Ann" in text


BEFORE: Final = {
    "test_all_text_of_a_word_document_is_read": 1,
    "test_tracked_changes_and_a_content_control_are_read": 0,
    "test_headers_footers_and_notes_of_a_word_document_are_read": 0,
    "test_footnotes_of_a_word_document_are_read": 0,
    "test_a_chart_on_a_sheet_of_its_own_is_named": 0,
    "test_a_workbook_is_read_with_formulas_comments_and_hidden_sheets": 0,
    "test_a_saved_value_of_a_formula_is_shown_instead_of_it": 1,
    "test_a_presentation_is_read_with_groups_tables_and_notes": 0,
    "test_a_scan_says_that_it_has_no_text": 0,
    "test_comments_and_form_fields_of_a_pdf_are_read": 0,
}
