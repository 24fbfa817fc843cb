"""State of a session for people and operators, and the changes that a chat command makes to it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from shared.errors import ShoalError
from shared.log import logger
from shared.messages.codec import encode
from shared.messages.inbound import InboundMessage, decode_inbound
from shared.messages.live import TurnEvent, encode_live
from shared.messages.outbound import LogLine, OutboundMessage
from shared.messages.transcript import ApprovalEntry
from shared.metrics import HISTORY_DROPPED
from shared.store import keys
from shared.store.client.redis_client import RedisClient, Value
from shared.store.turns.approvals import ApprovalOutcome, approval_outcome, parse_question, resolution_args
from shared.store.turns.inbox import TURNS, InboxLimits, check_message

ARCHIVE_CAP_BYTES: Final = 8 * 1024 * 1024
"""Size of the archive (what `/new` ended and is not consolidated yet). Beyond it the oldest entries
are dropped, and counted."""

_FIELDS: Final = ("n", "gen", "preset", "scope", "tries", "away", "busy", "taken")
_CHAT_KEYS: Final = (keys.ledger, keys.history, keys.archive, keys.outbox, keys.live)

log = logger("sessions")

Change = Literal["", "new", "forget", "stop", "preset", "busy", "unschedule", "cancel", "yes", "no"]
"""Change that a command makes: none, end the conversation, end it without keeping it, end the
turn, choose a model or the policy for messages while a turn runs, remove a schedule, end
subagents, answer the question that the turn waits for."""


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
        fields, waiting, lease, entries, subagents, newest = await self._client.pipeline(
            [
                ("HMGET", keys.session(session), *_FIELDS),
                ("XRANGE", keys.inbox(session), "-", "+"),
                ("HGET", keys.leases(TURNS), keys.turn(session)),
                ("LLEN", keys.history(session)),
                ("ZCOUNT", keys.children(session), 0, "+inf"),
                ("XREVRANGE", keys.ledger(session), "+", "-", "COUNT", 1),
            ]
        )
        counter, generation, preset, known_scope, attempt, away, busy, joined_field = fields
        # The head of the inbox is the turn that runs or comes next.
        turn = int(waiting[0][0].split(b"-")[0]) if waiting else 0
        # An older release may leave the field of another turn behind.
        of, *joined = map(_number, (joined_field or b"").split() or [b"0"])
        records = (decode_inbound.or_none(fields[3]) for _, fields in waiting if len(fields) > 3)
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
        log_line: LogLine | None = None,
        principal: str | None = None,
        retry_for_s: float = 0.0,
    ) -> CommandAnswered:
        """Answer the command in `message`, once, and make its change in the same step. `new` and
        `forget` end the running turn and drop waiting messages, `stop` ends the turn at the head:
        their answer must fit `state`. `yes` and `no` answer `state.open_question`, in the name of
        the sender. The same `message.id` again changes nothing. Raises BadInput, TooBig,
        InboxChanged, ApprovalRejected, RedisAway."""
        check_message(message)
        session, limits = message.session, self._limits
        settles: list[Value] = []
        if change in ("yes", "no") and (question := state.open_question) is not None:
            settles = resolution_args(
                question.id,
                question,
                yes=change == "yes",
                sender=message.sender_id,
                digest=question.digest,
                now_ms=answer.at,
            )
        turn = keys.session(session), keys.inbox(session), keys.queue(TURNS), keys.leases(TURNS)
        chat = [kind(session) for kind in _CHAT_KEYS]
        listed = keys.chats(message.channel, principal)
        memory = keys.memory(state.scope), keys.memlog(state.scope), keys.IDLE, keys.REWORK
        seen = "approve" if settles else change, state.counter, len(state.waiting)
        known = f"{message.chat_id}/{message.id}", keys.seen(message.channel), limits.seen_days
        kept = limits.session_ms, limits.log_ms
        lines = encode(log_line) if log_line is not None else b"", encode(answer)
        stopped = keys.turn(session), keys.CONTROL, encode_live(TurnEvent(state.turn, "stopped"))
        chosen = message.chat_id, preset, state.scope, state.turn, ARCHIVE_CAP_BYTES, busy
        status, seq, dropped = await self._client.run(
            "sessions/command",
            [*turn, *chat, listed, *memory, keys.wake(TURNS)],
            [*seen, *known, *kept, *lines, *stopped, *chosen, schedule, child, *settles],
            retry_for_s=retry_for_s,
        )
        if status == -1:
            inbox = f"the inbox of {keys.turn(session)!r}"
            raise InboxChanged(f"{inbox} has changed; read its state again")
        if status < -10:
            raise ApprovalRejected(approval_outcome(status + 10))
        if dropped:
            HISTORY_DROPPED.inc(dropped)
            log.warning("archive dropped", entries=dropped)
        return CommandAnswered(seq, duplicate=status == 0)


def _number(field: bytes | None) -> int:
    """Parse a counter; what is no number counts as none."""
    return int(field) if field and field.isdigit() else 0
