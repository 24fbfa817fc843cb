"""Branches: new chats that begin with the conversation of another one, up to one of its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from shared.clock import SYSTEM_CLOCK
from shared.errors import BadInput, Refused
from shared.ids import session_id
from shared.media.reference import read_reference
from shared.messages.codec import encode
from shared.messages.outbound import BranchOrigin, LogLine, OutboundMessage, UserLine
from shared.messages.sources import Sources, merge_sources, pack_sources, parse_sources
from shared.messages.transcript import decode_transcript
from shared.store import keys
from shared.store.answers.ratings import is_answer
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import NumberedLine, Outbox
from shared.store.sessions.chats import Chats
from shared.store.sessions.log_pages import HOT_LINES
from shared.store.sessions.transcripts import Transcripts
from shared.store.turns.inbox import InboxLimits
from shared.store.turns.turn_writes import HISTORY_CAP_BYTES

LINES: Final = HOT_LINES - 1
"""Lines that come along, the newest ones. With the line that says what it is, a branch fits in a log
without pages."""

BYTES: Final = HISTORY_CAP_BYTES
"""Size of these lines, and of the conversation that comes along: what one conversation may have."""

TITLE_CHARS: Final = 120
ENDING: Final = " (branch)"
_READ_ENTRIES: Final = 500
_READS: Final = 2000  # pages of a transcript that are looked through


class Branch(msgspec.Struct, frozen=True):
    """A branch: its chat, its title, and whether this call made it."""

    chat_id: str
    title: str
    new: bool = True


class _Conversation(msgspec.Struct, frozen=True):
    """Entries of a conversation, oldest first, and what marks them."""

    records: tuple[bytes, ...]
    sources: Sources


class Branches:
    """Makes branches of the chats of `channel`, whose ids are `<principal>/<name>`."""

    def __init__(self, client: RedisClient, limits: InboxLimits, channel: str) -> None:
        self._client = client
        self._limits = limits
        self._channel = channel
        self._chats = Chats(client)
        self._outbox = Outbox(client)
        self._transcripts = Transcripts(client)

    async def make(self, principal: str, chat: str, to: str, *, seq: int | None = None) -> Branch:
        """Make chat `to` from `chat` up to the answer of number `seq` (None: the newest). A repeated
        call finds the chat that the first one made. Raises BadInput, Refused (`chat_limit`),
        RedisAway."""
        chat_id = f"{principal}/{chat}"
        new_id = f"{principal}/{to}"
        source = session_id(self._channel, chat_id)
        session = session_id(self._channel, new_id)
        before = await self._client.command("HMGET", keys.session(session), "branch_of", "title")
        if before[0] == source.encode():
            return Branch(new_id, (before[1] or b"").decode(errors="replace"), new=False)
        row = await self._chats.row(self._channel, principal, chat_id)
        if row is None:
            raise BadInput("not_found", f"there is no chat {chat!r} to make a branch of")
        # Read first: what ends the conversation after this, the script refuses.
        gen, created = await self._client.command("HMGET", keys.session(source), "gen", "created")
        lines = await self._read_lines(source, seq)
        answer = lines[-1].seq
        turn = _turn_of(lines[-1].line)
        kept = _newest(lines)
        cut = len(kept) < len(lines)
        talk = await self._read_conversation(source, _first_turn(kept, cut=cut), turn)
        origin = BranchOrigin(chat=chat, title=row.title or "New chat", seq=answer)
        title = f"{origin.title[: TITLE_CHARS - len(ENDING)]}{ENDING}"
        done = await self._client.run(
            "answers/branch",
            session=session,
            chats=keys.chats(self._channel, principal),
            source=keys.session(source),
            chat_id=new_id,
            origin=source,
            gen=gen or b"",
            created=created or b"",
            turn=turn,
            title=title,
            lines=pack([encode(one) for one in (_first_line(origin, cut=cut), *copied_lines(kept))]),
            entries=pack(talk.records),
            sources=pack_sources(talk.sources),
            most_chats=self._limits.of_chats(self._channel),
            keep_session_ms=self._limits.session_ms,
            keep_log_ms=self._limits.log_ms,
        )
        self._check(done, to)
        return Branch(new_id, title, new=done == b"done")

    def _check(self, done: bytes, to: str) -> None:
        """Raise the error of an answer of the script that means that nothing was made."""
        match done:
            case b"chat_limit":
                raise Refused(
                    "chat_limit",
                    f"you have written in {self._limits.of_chats(self._channel)} chats within 30 days, "
                    "and more are not allowed; go on in one of them",
                    3600,
                )
            case b"occupied":
                raise BadInput("occupied", f"there is a chat {to!r} already; choose another name for the branch")
            case b"changed":
                raise BadInput("not_kept", "this conversation was ended or deleted at this moment")

    async def _read_lines(self, session: str, seq: int | None) -> list[NumberedLine]:
        """Return the lines up to the answer, the newest LINES and one more."""
        if seq is None:
            newest = await self._outbox.read_before(session, seq=None, limit=LINES)
            seq = next((one.seq for one in reversed(newest) if is_answer(one.line)), 0)
        lines = await self._outbox.read_before(session, seq=seq + 1, limit=LINES + 1) if seq else []
        if not lines or lines[-1].seq != seq or not is_answer(lines[-1].line):
            raise BadInput("not_found", "a branch begins after an answer, and there is none at this place")
        return lines

    async def _read_conversation(self, session: str, first: int, last: int) -> _Conversation:
        """Read the entries of these turns, wherever they are by now: in the conversation, the archive
        or the transcript. Raises BadInput when those of the last turn are not kept."""
        records = list[bytes]()
        marks = list[Sources]()
        size = 0
        before = ""
        found = from_elsewhere = False
        for _ in range(_READS):
            page = await self._transcripts.read_back(session, before, limit=_READ_ENTRIES)
            before = page.before
            for record in reversed(page.records):
                entry = decode_transcript.or_none(record)
                found = found or (entry is not None and entry.turn == last)
                if entry is None or entry.turn > last or not found:
                    continue
                size += len(record)
                # What the agent said here from another chat has turn 0.
                if 0 < entry.turn < first or (records and size > BYTES):
                    before = ""
                    break
                records.append(record)
                marks.append(page.trusted.left_of(entry.turn, entry.sources))
                from_elsewhere = from_elsewhere or not entry.turn
            if not before:
                break
        if not found:
            # Another answer took its place, `/forget` deleted it, or its time is over. The log still
            # shows it, but a chat that begins with it would know nothing of it.
            raise BadInput("not_kept", "I do not know this part of the conversation any more")
        if from_elsewhere:
            # Such an entry has no mark of its own: it marked the chat, and perhaps no turn has read it
            # yet. Read after the entries, so that none of them is newer than the mark.
            marks.insert(0, parse_sources(await self._client.command("HGET", keys.session(session), "sources")))
        return _Conversation(tuple(reversed(records)), merge_sources(*reversed(marks)))


def copied_lines(lines: Sequence[NumberedLine]) -> list[LogLine]:
    """Return the lines of a branch: without messages that were answered later, ratings, files, and the
    offer to take a standing approval back."""
    answered = {id for one in lines if isinstance(one.line, OutboundMessage) for id in one.line.in_reply_to}
    copied = list[LogLine]()
    for one in lines:
        line = one.line
        names = _file_names(one.line.media)
        if isinstance(line, UserLine):
            if line.id in answered:
                text = "\n".join([*filter(None, [line.text]), *(f"[File: {name}]" for name in names)])
                copied.append(replace(line, text=text, media=()))
        elif line.rated is None and line.branch_of is None:
            content = "\n\n".join([*filter(None, [line.content]), *(f"*File: {name}*" for name in names)])
            asked = line.approval and replace(line.approval, standing=False)
            copied.append(replace(line, content=content, media=(), approval=asked, traceparent=None))
    return copied


def _first_line(origin: BranchOrigin, *, cut: bool) -> OutboundMessage:
    """Return the line that says what a branch is, and what did not come along."""
    begins = " That chat is long: its first part is only there." if cut else ""
    text = (
        f"This chat is a branch of “{origin.title}” and begins with what was said there.{begins} "
        "Files, plans and standing approvals did not come along."
    )
    return OutboundMessage(content=text, turn=0, kind="notice", at=SYSTEM_CLOCK.now_ms(), branch_of=origin)


def _newest(lines: Sequence[NumberedLine]) -> Sequence[NumberedLine]:
    """Return the newest of these lines that fit in a branch, at least the last one."""
    size = 0
    for count, one in enumerate(reversed(lines)):
        size += len(encode(one.line))
        if count == LINES or (count and size > BYTES):
            return lines[len(lines) - count :]
    return lines


def _turn_of(line: LogLine) -> int:
    return line.turn if isinstance(line, OutboundMessage) else 0


def _first_turn(lines: Sequence[NumberedLine], *, cut: bool) -> int:
    """Return the first turn that comes along: of the conversation of the last line, and shown."""
    commands = (one.line for one in lines if isinstance(one.line, OutboundMessage) and one.line.kind == "command")
    ended = [line.turn for line in commands]  # 0 for one that ended no turn
    shown = [_turn_of(one.line) for one in lines if is_answer(one.line)] if cut else []
    return max([1, *(turn + 1 for turn in ended), *shown[:1]])


def _file_names(media: Sequence[str]) -> list[str]:
    names = []
    for one in media:
        try:
            names.append(read_reference(one).name)
        except BadInput:
            names.append("file")
    return names
