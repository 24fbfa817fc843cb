"""Finding again, word for word, what was said and done in a chat."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct

from shared.errors import BadInput, RedisAway, ToolFailed
from shared.messages.sources import Sources, merge_sources
from shared.messages.transcript import TranscriptEntry, decode_transcript
from shared.store.sessions.transcripts import TranscriptPage, Transcripts
from worker.agent.tools.tool import Safety, ToolContext
from worker.memory.lines import render_line
from worker.tools.files.grep import search_terms, text_around

SEARCH_S: Final = 8.0  # the answer says where to go on
CHUNK: Final = 200  # entries that are read at once
SHOWN_CHARS: Final = 400  # of an entry that was found; of a turn that was asked for all is shown


class SearchHistoryArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Words, or a turn."""

    words: Annotated[
        str,
        Meta(
            max_length=200,
            description="Words or parts of words that must all stand in one entry (a message, an answer, a "
            'result of a tool), in any order and case. A phrase goes in double quotes. "" finds all.',
        ),
    ] = ""
    turn: Annotated[int, Meta(ge=0, description="Show this turn whole: 7 for `#7` in a result; 0: any turn.")] = 0
    before: Annotated[str, Meta(max_length=60, description="Go on where an earlier search ended.")] = ""
    limit: Annotated[int, Meta(ge=1, le=100, description="How many entries to show at most.")] = 20


class _Found(Struct, frozen=True):
    """Lines of entries that were found, newest first, and the sources that mark them."""

    lines: list[str]
    sources: Sources


class SearchHistory:
    """Returns entries of the chat itself, newest first, from as far back as they are kept."""

    name = "search_history"
    description = (
        "Find what was said and done earlier in this chat, word for word, with the steps of tools: where HISTORY.md "
        "is too short. Newest first."
    )
    parameters = SearchHistoryArguments
    safety: Safety = "read_only"
    timeout_s = 20.0
    trusted_result = True  # it marks the turn itself, with the marks of what it shows

    def __init__(self, transcripts: Transcripts) -> None:
        self._transcripts = transcripts

    async def run(self, arguments: SearchHistoryArguments, context: ToolContext) -> str:
        terms = search_terms(arguments.words)
        if not terms and not arguments.turn:
            raise ToolFailed("there is nothing to look for; give words, such as 'dentist', or a turn")
        until = context.clock.monotonic() + SEARCH_S
        lines = list[str]()
        before = arguments.before
        limit = arguments.limit
        while True:
            page = await self._read(context.session, before)
            # In a thread: a page may hold long texts.
            found = await asyncio.to_thread(_search, page, terms, arguments.turn, context.timezone)
            # Before the text is used: a mark is never younger than its text.
            context.mark_read(found.sources)
            lines = [*lines, *found.lines]
            before = page.before
            # Entries of a turn stand together: where none is left of it, the turn is over.
            whole = arguments.turn and lines and not found.lines
            if not before or len(lines) >= limit or whole or context.clock.monotonic() > until:
                break
        notes = []
        if (more := len(lines) - limit) > 0:
            notes.append(f"{more} more up to here; use more words to narrow it")
        if before:
            notes.append(f"older entries were not searched; go on with before={before!r}")
        note = f"[{'; '.join(notes)}]" if notes else ""
        if not lines:
            what = f"Turn {arguments.turn}" if arguments.turn else repr(arguments.words)
            return f"{what} was not found in what is kept of this chat. {note}".rstrip()
        return "\n\n".join([*lines[:limit], *filter(None, [note])])

    async def _read(self, session: str, before: str) -> TranscriptPage:
        try:
            return await self._transcripts.read_back(session, before, limit=CHUNK)
        except BadInput as exc:
            raise ToolFailed(f"{exc.message}, or leave `before` out") from None
        except RedisAway:
            raise ToolFailed("what is kept of this chat cannot be reached just now; try again later") from None


def _search(page: TranscriptPage, terms: Sequence[str], turn: int, timezone: str) -> _Found:
    lines = []
    marks = list[Sources]()
    for record in reversed(page.records):
        entry = decode_transcript.or_none(record)
        if entry is None or (turn and entry.turn != turn):
            continue
        text = _render(entry, timezone)
        folded = text.casefold()
        if not all(term in folded for term in terms):
            continue
        shown = text if turn else text_around(text, terms[0], SHOWN_CHARS)
        lines.append(f"#{entry.turn} {shown}")
        marks.append(page.trusted.left_of(entry.turn, entry.sources))
    return _Found(lines, merge_sources(*marks))


def _render(entry: TranscriptEntry, timezone: str) -> str:
    line = render_line(entry, timezone, named=True)
    calls = getattr(entry, "tool_calls", ())
    return "\n    ".join([line, *(f"{call.name}({call.arguments})" for call in calls)])
