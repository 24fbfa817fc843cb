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
from worker.documents.pdf import pdf_texts
from worker.documents.sheets import sheet_texts
from worker.documents.slides import slide_texts
from worker.documents.word import word_texts

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
        _write_texts(TEXTS[kind](io.BytesIO(data)), out)
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


TEXTS: Final[dict[str, Callable[[BinaryIO], Iterator[str]]]] = {
    "pdf": pdf_texts,
    "word": word_texts,
    "sheet": sheet_texts,
    "slides": slide_texts,
}


if __name__ == "__main__":
    sys.exit(main())
