"""Reading a file, page by page; documents as text, pictures as pictures."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from msgspec import Meta, Struct

from shared.encodings.decode import DecodedText
from shared.errors import ToolFailed
from worker.agent.tools.tool import Safety, ToolContext, ToolResult
from worker.documents.images import picture_in
from worker.documents.kinds import detect_document, is_picture
from worker.documents.reader import DocumentReader
from worker.documents.text import decode_content

PAGE_BYTES: Final = 8 * 1024
"""Size of a page: less than the limit of a tool's result, so that the note after it is not cut."""


class ReadFileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """A file, and a range of lines."""

    path: Annotated[str, Meta(description="Such as `MEMORY.md` or `skills/recap/SKILL.md`.")]
    offset: Annotated[int, Meta(ge=1, description="The first line to read, counted from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, description="How many lines to read at most.")] = 1000


class ReadFile:
    """Returns a page of text, and the next offset. A picture is described and shown."""

    name = "read_file"
    description = (
        "Read a text file of any encoding, or the text of a PDF, Word (.docx), Excel (.xlsx) or PowerPoint (.pptx) "
        "file; look at a picture (PNG, JPEG, GIF, WebP). A long one comes in pages: the note at the "
        "end says which `offset` comes next."
    )
    parameters = ReadFileArguments
    safety: Safety = "read_only"
    timeout_s = 90.0

    def __init__(self, documents: DocumentReader | None = None) -> None:
        self._documents = documents or DocumentReader()

    async def run(self, arguments: ReadFileArguments, context: ToolContext) -> str | ToolResult:
        path = arguments.path
        content = await context.files.content(path)
        if isinstance(content, bytes):
            size = f"{len(content):,} bytes"
            if is_picture(content):
                return ToolResult(
                    f"({path!r} is a picture: {picture_in(path, content).media_type}, {size}. "
                    "You see it in this turn; to see it later, read it again)",
                    (path,),
                )
            if kind := detect_document(content):
                content = await self._documents.read_document(path, kind, content)
        found = await decode_content(path, content)
        if not found.text:
            return f"({path!r} is empty)"
        return await asyncio.to_thread(_render_page, path, found, arguments.offset, arguments.limit)


def _render_page(path: str, found: DecodedText, offset: int, limit: int) -> str:
    text = found.text
    lines = text.removesuffix("\n").split("\n")
    first = offset - 1
    if first >= len(lines):
        raise ToolFailed(f"{path!r} has {len(lines)} lines; there is no line {offset}")
    page, cut = _page(lines[first : first + limit])
    last = first + len(page)
    notes = [f"line {last} is cut"] if cut else []
    if first or last < len(lines):
        notes.append(f"lines {offset}-{last} of {len(lines)}")
    if last < len(lines):
        notes.append(f"go on with offset={last + 1}")
    if not found.plain:
        notes.append(f"read as {found.described}")
    return "\n".join(page) + (f"\n\n[{'; '.join(notes)}]" if notes else "")


def _page(lines: list[str]) -> tuple[list[str], bool]:
    """Return as many whole lines as fit, and whether the only one had to be cut."""
    page: list[str] = []
    left = PAGE_BYTES
    for line in lines:
        left -= len(line.encode("utf-8", "replace")) + 1
        if left < 0:
            break
        page.append(line)
    if page:
        return page, False
    return [lines[0].encode("utf-8", "replace")[:PAGE_BYTES].decode("utf-8", "ignore")], True
