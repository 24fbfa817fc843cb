"""The library's objects in our own words."""

from __future__ import annotations

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)
from pydantic import ValidationError

from worker.mcp.wire import Listed, Part, Refused


def read_tool(tool: Tool) -> Listed:
    """One tool of a list."""
    hints = tool.annotations
    return Listed(
        tool.name,
        tool.description or tool.title or "",
        tool.input_schema,
        read_only=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
    )


def read_part(content: object) -> Part:
    """One part of a result; the bytes of pictures and the like are only measured."""
    match content:
        case TextContent(text=text):
            return Part(text)
        case ImageContent(data=data, mime_type=media) | AudioContent(data=data, mime_type=media):
            return Part(None, kind=content.type, media_type=media, size_bytes=len(data) * 3 // 4)
        case EmbeddedResource(resource=BlobResourceContents() as blob):
            size = len(blob.blob) * 3 // 4
            return Part(None, "resource", name=str(blob.uri), media_type=blob.mime_type or "", size_bytes=size)
        case EmbeddedResource(resource=TextResourceContents() as page):
            size = len(page.text.encode("utf-8", "replace"))
            return Part(page.text, "resource", str(page.uri), page.mime_type or "text/plain", size)
        case ResourceLink():
            return Part(None, "link", str(content.uri), content.mime_type or "", content.size or 0)
        case _:
            return Part(None, kind="part of an unknown kind")


def malformed(exc: ValidationError) -> Refused:
    """An answer that is none, without its text."""
    return Refused(f"its answer is none that the protocol knows ({exc.error_count()} faults)")
