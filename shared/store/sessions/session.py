"""State of a session for people and operators, and the changes that a chat command makes to it."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from shared.errors import ShoalError
from shared.ids import nonce, session_id
from shared.log import logger
from shared.messages.codec import PLAIN_VERSION, encode
from shared.messages.inbound import DEVICE, InboundMessage, decode_inbound
from shared.messages.live import TurnEvent, encode_live
from shared.messages.outbound import LogLine, OutboundMessage, UserLine
from shared.messages.sources import Sources, pack_sources, parse_sources
from shared.messages.standing import StandingApproval, parse_standing
from shared.messages.transcript import ApprovalEntry
from shared.metrics import HISTORY_DROPPED
from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.last_turn import LastTurn
from shared.store.sessions.workspace_marks import folder_scope
from shared.store.turns.approvals import (
    ApprovalAnswer,
    ApprovalOutcome,
    approval_outcome,
    encode_resolution,
    parse_question,
)
from shared.store.turns.inbox import TURNS, InboxLimits, check_message, fair_key, overloaded

ARCHIVE_CAP_BYTES: Final = 8 * 1024 * 1024
"""Size of the archive (what `/new` ended and is not consolidated yet). Beyond it the oldest entries
are dropped, and counted."""

_FIELDS: Final = (
    "n",
    "gen",
    "preset",
    "scope",
    "tries",
    "away",
    "busy",
    "taken",
    "sources",
    "file_sources",
    "folder",
    "voice",
    "standing",
)

log = logger("sessions")

Change = Literal[
    "",
    "new",
    "forget",
    "stop",
    "preset",
    "busy",
    "unschedule",
    "cancel",
    "yes",
    "no",
    "always",
    "standing",
    "trust",
    "trust_all",
    "restore",
    "folder",
    "voice",
    "retry",
]
"""Change that a command makes: none, end the conversation, end it without keeping it, end the turn,
choose a model or the policy for messages while a turn runs, remove a schedule, end subagents,
answer the question that the turn waits for, with `always` for later calls, too, take a standing
approval back, clear the mark of the chat and its files, and with
`trust_all` that of its memory, give a memory an earlier text, choose the folder to work on or
answers by voice, answer the newest message again."""


class ApprovalRejected(ShoalError):
    """The answer to a question does not count; `why` is the reason."""

    def __init__(self, why: ApprovalOutcome) -> None:
        super().__init__(f"the answer does not count: {why}")
        self.why: ApprovalOutcome = why


class InboxChanged(ShoalError):
    """The inbox changed since the state was read: read it again and build a new answer."""


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a session. `waiting` are the ids of the messages without an answer ("" for one that
    cannot be read). The first one's turn is `turn` (0 = none waits); it is running if `running`,
    and `joined` of the other messages belong to it. `counter` is the number of the newest message,
    `entries` the length of the conversation. `model_unavailable_since` is when its turn first found
    the model unavailable (ms, 0 = it did not)."""

    counter: int = 0
    waiting: tuple[str, ...] = ()
    turn: int = 0
    running: bool = False
    generation: int = 0
    preset: str = ""
    busy: str = ""
    joined: int = 0
    scope: str = ""
    entries: int = 0
    attempt: int = 0
    model_unavailable_since: int = 0
    subagents: int = 0  # subagents that have not ended
    open_question: ApprovalEntry | None = None  # the question that its turn waits for
    sources: Sources = ()  # strangers whose text marks the conversation, the workspace, the memory
    file_sources: Sources = ()
    memory_sources: Sources = ()
    speaks: bool = False  # recordings are answered by a recording, too
    folder: str = ""  # the operator's folder that it works on, and what marks that
    folder_sources: Sources = ()
    standing: tuple[StandingApproval, ...] = ()  # yeses that stand in this chat


class MemorySize(msgspec.Struct, frozen=True):
    """Size of a memory: bytes of MEMORY.md, and entries of HISTORY.md."""

    memory_bytes: int
    log_entries: int


class CommandAnswered(msgspec.Struct, frozen=True):
    """Result of a command; `seq` is the line of the command itself in the chat's log."""

    seq: int
    duplicate: bool


class Sessions:
    """Reads sessions and answers commands in them, past their inboxes."""

    def __init__(self, client: RedisClient, limits: InboxLimits | None = None) -> None:
        self._client = client
        self._limits = limits or InboxLimits()

    async def state(self, session: str, *, scope: str = "") -> SessionState:
        """Read the state; `scope` is a memory scope, `""` the last message's. Raises RedisAway."""
        fields, waiting, lease, entries, subagents, newest, memory_sources = await self._client.pipeline(
            [
                ("HMGET", keys.session(session), *_FIELDS),
                ("XRANGE", keys.inbox(session), "-", "+"),
                ("HGET", keys.leases(TURNS), keys.turn(session)),
                ("LLEN", keys.history(session)),
                ("ZCOUNT", keys.children(session), 0, "+inf"),
                ("XREVRANGE", keys.ledger(session), "+", "-", "COUNT", 1),
                ("HGET", keys.memory(scope or f"chat:{session}"), "sources"),
            ]
        )
        counter, generation, preset, known_scope, attempt, away, busy, joined_field, *marks = fields
        # The head of the inbox is the turn that runs or comes next.
        turn = int(waiting[0][0].split(b"-")[0]) if waiting else 0
        # An older release may leave the field of another turn behind.
        of, *joined = map(_number, (joined_field or b"").split() or [b"0"])
        records = (decode_inbound.or_none(fields[3]) for _, fields in waiting if len(fields) > 3)
        folder = (marks[2] or b"").decode(errors="replace")
        marked = await self._client.command("HGET", keys.memory(folder_scope(folder)), "sources") if folder else None
        return SessionState(
            counter=_number(counter),
            waiting=tuple(record.id if record else "" for record in records),
            turn=turn,
            running=lease is not None,
            generation=_number(generation),
            preset=(preset or b"").decode(errors="replace"),
            busy=(busy or b"").decode(errors="replace"),
            joined=len(joined) if of == turn else 0,
            scope=scope or (known_scope.decode(errors="replace") if known_scope else f"chat:{session}"),
            entries=entries,
            attempt=_number(attempt),
            model_unavailable_since=_number(away),
            subagents=subagents,
            open_question=parse_question(newest),
            speaks=marks[3] is not None,
            sources=parse_sources(marks[0]),
            file_sources=parse_sources(marks[1]),
            memory_sources=parse_sources(memory_sources),
            folder=folder,
            folder_sources=parse_sources(marked),
            standing=parse_standing(marks[4]),
        )

    async def memory_size(self, scope: str) -> MemorySize:
        """Read the size of the memory of a scope. Raises RedisAway."""
        size, entries = await self._client.pipeline(
            [("HSTRLEN", keys.memory(scope), "text"), ("LLEN", keys.memlog(scope))]
        )
        return MemorySize(size, entries)

    async def answer_command(
        self,
        message: InboundMessage,
        answer: OutboundMessage,
        state: SessionState,
        *,
        change: Change = "",
        preset: str = "",
        busy: str = "",
        schedule: str = "",
        child: str = "",
        earlier: tuple[str, str] = ("", ""),
        again: LastTurn | None = None,
        log_line: LogLine | None = None,
        principal: str | None = None,
        retry_for_s: float = 0.0,
    ) -> CommandAnswered:
        """Answer the command in `message`, once, and make its change in the same step. `new` and
        `forget` end the running turn and drop waiting messages, `stop` ends the turn at the head,
        `trust` clears the marks of `state`: their answer must fit `state`. `yes` and `no` answer
        `state.open_question`, in the name of the sender; `restore` gives the memory of a scope the
        text of a version (both are `earlier`); `standing` takes back the standing approval `preset`;
        `folder` chooses the folder `preset`. With the scope
        of a folder in `earlier`, `trust` clears its mark, too. `retry` puts the text of `answer` in
        the place of turn `again`, and writes no answer. The same `message.id` again changes
        nothing. Raises BadInput, TooBig, InboxChanged, ApprovalRejected, Refused (`overloaded`),
        RedisAway."""
        check_message(message)
        session = message.session
        limits = self._limits
        command = {
            "dedupe_id": f"{message.chat_id}/{message.id}",
            "seen": keys.seen(message.channel),
            "days": limits.seen_days,
            "keep_session_ms": limits.session_ms,
            "keep_log_ms": limits.log_ms,
            "line": encode(log_line) if log_line is not None else b"",
            "answer": encode(answer),
            "chat_id": message.chat_id,
        }
        answered = partial(
            self._client.run,
            session=session,
            queue=TURNS,
            chats=keys.chats(message.channel, principal),
            command=pack(command),
            retry_for_s=retry_for_s,
        )
        member = keys.turn(session)
        match change:
            case "retry":
                assert again is not None
                media = (*again.media, *message.media)
                record = replace(message, content=answer.content, media=media)
                check_message(record)
                line = log_line
                if isinstance(line, UserLine):
                    line = replace(line, text=answer.content, media=media, replaces=again.turn)
                reply = await answered(
                    "commands/retry",
                    command=pack({**command, "line": encode(line) if line is not None else b""}),
                    member=member,
                    n=state.counter,
                    entries=again.entries,
                    gone=again.gone,
                    record=encode(record),
                    version=PLAIN_VERSION,
                    person=fair_key(message),
                    sessions_cap=limits.sessions_cap,
                )
            case "new" | "forget":
                reply = await answered(
                    "commands/reset",
                    memory=keys.memory(state.scope),
                    memlog=keys.memlog(state.scope),
                    member=member,
                    keep=int(change == "new"),
                    n=state.counter,
                    waiting=len(state.waiting),
                    control=keys.CONTROL,
                    event=encode_live(TurnEvent(state.turn, "stopped")),
                    scope=state.scope,
                    archive_bytes=ARCHIVE_CAP_BYTES,
                    sender=session_id(message.channel, message.sender_id),
                )
            case "stop":
                reply = await answered("commands/stop", member=member, control=keys.CONTROL, turn=state.turn)
            case "cancel":
                reply = await answered("commands/cancel", id=child)
            case "unschedule":
                reply = await answered("commands/unschedule", id=schedule)
            case "yes" | "no" | "always":
                question = state.open_question
                answered_by = ApprovalAnswer(
                    yes=change != "no",
                    sender=message.sender_id,
                    name=message.metadata.get("sender_name", ""),
                    where=message.metadata.get(DEVICE, message.channel),
                    always=change == "always",
                )
                reply = await answered(
                    "commands/approve",
                    member=member,
                    id=question.id if question else "",
                    yes=int(answered_by.yes),
                    always=int(answered_by.always),
                    request=nonce(),
                    sender=message.sender_id,
                    digest=question.digest if question else "",
                    line=encode_resolution(question, answered_by, now_ms=answer.at),
                )
            case "trust" | "trust_all":
                reply = await answered(
                    "commands/trust",
                    memory=keys.memory(state.scope),
                    with_memory=int(change == "trust_all"),
                    sources=pack_sources(state.sources),
                    file_sources=pack_sources(state.file_sources),
                    memory_sources=pack_sources(state.memory_sources),
                    folder=earlier[0],
                    folder_sources=pack_sources(state.folder_sources),
                )
            case "restore":
                scope, version = earlier
                reply = await answered("commands/restore", memory=keys.memory(scope), earlier=version)
            case _:
                value = busy if change == "busy" else preset
                reply = await answered("commands/answer", choice=change, value=value)
        match reply:
            case [b"done" | b"known" as done, seq, dropped]:
                if dropped:
                    HISTORY_DROPPED.inc(dropped)
                    log.warning("archive dropped", entries=dropped)
                return CommandAnswered(seq, duplicate=done == b"known")
            case [b"overloaded"]:
                raise overloaded()
            case [b"changed"]:
                raise InboxChanged(f"the inbox of {keys.turn(session)!r} has changed; read its state again")
        raise ApprovalRejected(approval_outcome(reply[0]))


def _number(field: bytes | None) -> int:
    """Parse a counter; what is no number counts as none."""
    return int(field) if field and field.isdigit() else 0
