"""Entries of a conversation as lines of text."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from shared.messages.transcript import AssistantEntry, ToolEntry, TranscriptEntry, UserEntry

Entry = TranscriptEntry | None  # None: a record that this release cannot read
LATEST_MS: Final = 253_402_000_000_000  # later times have a year of more than four digits


def stamp(at_ms: int, timezone: str) -> str:
    """Render `YYYY-MM-DD HH:MM` in a zone with an IANA name; `?` for 0."""
    if not 0 < at_ms < LATEST_MS:
        return "?"
    return f"{datetime.fromtimestamp(at_ms / 1000, ZoneInfo(timezone)):%Y-%m-%d %H:%M}"


def render_line(entry: Entry, timezone: str, named: bool) -> str:
    """Render `[time] ROLE: text`, with the sender of a user's message if `named`."""
    match entry:
        case None:
            return "[?] UNKNOWN: (an entry that cannot be read)"
        case UserEntry():
            role = f"USER {entry.sender_id}" if named and entry.sender_id else "USER"
            tools = ""
            text = entry.content
        case AssistantEntry():
            tools = ", ".join(call.name for call in entry.tool_calls)
            role = "ASSISTANT"
            text = entry.content or ""
        case ToolEntry():
            role = "TOOL"
            tools = entry.name
            text = entry.content
    used = f" [tools: {tools}]" if tools else ""
    # Lines of a text are set in, so that nothing in it can pass for a line of somebody else.
    first, *others = f"[{stamp(entry.at, timezone)}] {role}{used}: {text}".rstrip().splitlines()
    return "\n    ".join([first, *others])


def middle_out(text: str, chars: int) -> str:
    """Return at most `chars` characters, plus a note in place of a middle that was left out."""
    if len(text) <= chars:
        return text
    half = max(1, chars // 2)
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters are left out here]\n{text[-half:]}"
