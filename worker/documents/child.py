"""The process that parses one document or web page: `python -m worker.documents.child KIND CPU_S
MEMORY_BYTES URL`, with the file on standard input. A hostile file may make its parser take any time
and memory, and only a process can be stopped.

It writes the text (of a page its title and text, as JSON) and exits with 0, or writes a reason and
exits with REFUSED_EXIT_CODE. It limits and confines itself before it reads a byte or imports a
parser library, so that a file that exploits its parser gains this process and nothing else. Each
library is imported inside its function: by then the process has confined itself, so code that runs
at import is confined too, and a PDF never loads the Office libraries."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

from shared.confinement.parsers import confine_parser
from worker.documents import kinds

PAGES: Final = 1000
ROWS: Final = 50_000
COLUMNS: Final = 256
TITLE_CHARS: Final = 300


def main() -> int:
    """Read one document or page; return the exit code."""
    kind, cpu_s, memory_bytes, url = sys.argv[1:]
    _set_limits(int(cpu_s), int(memory_bytes))
    confine_parser()
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="replace", newline="\n")
    try:
        if kind == "html":
            json.dump(_read_page(sys.stdin.buffer.read().decode("utf-8", "replace"), url), out)
            out.flush()
            return 0
        data = sys.stdin.buffer.read(kinds.FILE_LIMIT_BYTES)
        if kind != "pdf":
            kinds.check_archive(data)
        _write_texts(_TEXTS_OF[kind](io.BytesIO(data)), out)
    except kinds.DocumentRefused as exc:
        return _write_refusal(out, str(exc))
    except ModuleNotFoundError as exc:  # as in the slim image
        return _write_refusal(out, f"this installation cannot read such files: it has no {exc.name}")
    except MemoryError:
        return _write_refusal(out, "it needs too much memory")
    except RecursionError:
        return _write_refusal(out, "it is nested too deeply")
    except Exception as exc:  # on damaged input these libraries raise anything at all
        return _write_refusal(out, f"it is damaged ({type(exc).__name__})")
    return 0


def _write_texts(texts: Iterator[str], out: io.TextIOWrapper) -> None:
    left = kinds.TEXT_LIMIT_CHARS
    for text in texts:
        out.write(f"{text[:left]}\n")
        if (left := left - len(text) - 1) <= 0:
            out.write(f"[cut: only {kinds.TEXT_LIMIT_CHARS:,} characters are shown]\n")
            break
    out.flush()


def _write_refusal(out: io.TextIOWrapper, reason: str) -> int:
    # Text may precede it: a later page can turn out to be damaged. The reader takes the last line.
    out.write(f"\n{reason}")
    out.flush()
    return kinds.REFUSED_EXIT_CODE


def _set_limits(cpu_s: int, memory_bytes: int) -> None:
    signal.alarm(kinds.WALL_S)  # ends this process even if its parent was killed
    limits = (
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        # The soft limit sends SIGXCPU, which tells the parent the reason; the hard limit SIGKILL.
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, 64, 64),
    )
    for kind, soft, hard in limits:
        with contextlib.suppress(ValueError, OSError):  # macOS does not limit the address space
            resource.setrlimit(kind, (soft, hard))


def _read_page(html: str, url: str) -> dict[str, str]:
    import trafilatura

    tree = trafilatura.load_html(html)
    if tree is None:  # a fragment without tags around it
        html = f"<html><body><main><p>{html}</p></main></body></html>"
        tree = trafilatura.load_html(html)
    title = "" if tree is None else " ".join((tree.findtext(".//title") or "").split())
    text = trafilatura.extract(
        html, url, output_format="markdown", include_links=True, include_comments=False
    ) or trafilatura.html2txt(html, clean=True)
    return {"title": title[:TITLE_CHARS], "text": text}


def _pdf_texts(file: BinaryIO) -> Iterator[str]:
    """Yield a header, then the text of each page. Raises DocumentRefused for a locked file."""
    from pypdf import PdfReader

    reader = PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise kinds.DocumentRefused("it is protected by a password")
    count = len(reader.pages)
    yield f"[PDF document, {count} page{'' if count == 1 else 's'}]"
    for number, page in enumerate(reader.pages, 1):
        if number > PAGES:
            yield f"[{count - PAGES} more pages are not shown]"
            return
        yield f"--- page {number} ---\n{page.extract_text().strip()}"


def _word_texts(file: BinaryIO) -> Iterator[str]:
    """Yield paragraphs and table rows in document order; headings are marked with `#`."""
    import docx
    from docx.table import Table

    yield "[Word document]"
    for block in docx.Document(file).iter_inner_content():
        if isinstance(block, Table):
            for row in block.rows:
                yield " | ".join(" ".join(cell.text.split()) for cell in row.cells)
        elif block.text.strip():
            style = block.style.name if block.style is not None else None
            level = (style or "").removeprefix("Heading ")
            yield f"{'#' * int(level)} {block.text}" if level.isdigit() and len(level) == 1 else block.text


def _sheet_texts(file: BinaryIO) -> Iterator[str]:
    """Yield one line a row, cells separated by tabs: saved values, no formulas, no empty rows."""
    import openpyxl  # type: ignore[import-untyped]

    book = openpyxl.load_workbook(file, read_only=True, data_only=True)
    yield f"[Excel workbook, {len(book.worksheets)} sheets]"
    left = ROWS
    for sheet in book.worksheets:
        yield f"--- sheet {sheet.title!r} ---"
        # A sheet may declare the largest size the format allows; this makes openpyxl ignore it.
        sheet.reset_dimensions()
        for row in sheet.iter_rows(max_col=COLUMNS, values_only=True):
            if (left := left - 1) < 0:
                yield f"[only {ROWS:,} rows are shown]"
                return
            line = "\t".join("" if value is None else " ".join(str(value).split()) for value in row).rstrip()
            if line:
                yield line


def _slide_texts(file: BinaryIO) -> Iterator[str]:
    from pptx import Presentation

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


_TEXTS_OF: Final[dict[str, Callable[[BinaryIO], Iterator[str]]]] = {
    "pdf": _pdf_texts,
    "word": _word_texts,
    "sheet": _sheet_texts,
    "slides": _slide_texts,
}


if __name__ == "__main__":
    sys.exit(main())
