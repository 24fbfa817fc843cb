"""Every key in Redis, and nothing else. `lua/lib/core.lua` builds the per-session ones again."""

from __future__ import annotations

from typing import Final


class Keys(str):
    """The keys of one kind: the prefix of their names. A call appends an id."""

    __slots__ = ()

    def __call__(self, id: str) -> str:
        return f"{self}{id}"


class SessionKeys(Keys):
    """The keys of one kind of which each session has one."""

    __slots__ = ()


# Pub/sub channel that tells running turns to stop: `<member> <turn>`
CONTROL: Final = "shoal:control"
PRESENCE: Final = "shoal:presence"  # ZSET: presence key -> when it was last written, in ms
DEAD: Final = "shoal:dead"
# ZSET: session -> server time in ms from which its conversation may be consolidated
IDLE: Final = "shoal:idle"
# ZSET: memory scope -> server time in ms from which its MEMORY.md is due to be rewritten
REWORK: Final = "shoal:rework"
# ZSET: session of one request over HTTP -> server time in ms from which its rest is deleted
EPHEMERAL: Final = "shoal:throwaways"
# ZSET: `<schedule>:<session>` -> server time in ms from which its next tick may run
SCHEDULES: Final = "shoal:cron"
# ZSET: subagent that has not ended -> 0 while it has a slot, else ms since when it waits for one
SUBAGENTS: Final = "shoal:subagents"
# Wake list of due subagents, which wait in the queue of jobs: not every worker has slots for them
SUBAGENT_WAKE: Final = "subagents"
# Name of the queue of sessions for whose turn no person waits, and the fair key of such turns. The
# queue holds only waiting turns: running ones, and their leases, are in `turns`.
BACKGROUND: Final = "background"
# HASH: turn member -> its fair key (a person's hash, or BACKGROUND). A member without one counts as
# its chat's own. A `+` in front: the turn was given back and keeps its place.
FAIR_KEYS: Final = "shoal:shares"
# ZSET that expires: a person's hash -> when a turn of theirs last began while others waited, in ms;
# BACKGROUND -> turns begun since its last one, at most 4; and times at which the scripts last did
# expensive work
LAST_SERVED: Final = "shoal:served"
# ZSET: channel whose lines are delivered -> server time in ms of its queue's newest entry
OUTBOXES: Final = "shoal:outboxes"
AUDIT: Final = "shoal:audit"  # STREAM that expires: the audit record, without texts
# HASH that expires: hash of a pairing code -> the person it is for, and until when it counts
PAIRING: Final = "shoal:pairing"
PAIRS: Final = "shoal:pair"  # SET: channels in which somebody has access by a code
SEEN_PREFIX: Final = "shoal:seen:"
TURN_PREFIX: Final = "turn:"
SUB_PREFIX: Final = "sub:"
OUT_PREFIX: Final = "out:"

# Queues.
# ZSET: member -> server time in ms from which it may be acquired
queue: Final = Keys("shoal:queue:")
leases: Final = Keys("shoal:leases:")  # HASH: member -> `owner:token`, running entries only
# LIST of at most one token: something is due, and one idle worker may look
wake: Final = Keys("shoal:wake:")
turn: Final = SessionKeys(TURN_PREFIX)  # the queue member of a session
sub: Final = Keys(SUB_PREFIX)  # the queue member of a subagent
# HASH of a subagent: its task, parent, generation, state, attempts and result
child: Final = Keys("shoal:child:")
# ZSET: subagents of a session -> score as in SUBAGENTS; ended ones: minus the time in ms
children: Final = SessionKeys("shoal:children:")

# Sessions.
# HASH: counters, attempts, stop flag and title of a session
session: Final = SessionKeys("shoal:session:")
# STREAM: messages waiting to be answered, the running one first; ids `<n>-0`
inbox: Final = SessionKeys("shoal:inbox:")
# STREAM: write-ahead record of the running turn; ids `<step>-0`
ledger: Final = SessionKeys("shoal:ledger:")
history: Final = SessionKeys("shoal:history:")  # LIST: the conversation so far, one record an entry
# LIST: conversations that `/new` ended and that are not consolidated yet, a record an entry
archive: Final = SessionKeys("shoal:archive:")
# HASH: text (`text`) and version (`v`) of a MEMORY.md, bytes of its HISTORY.md (`log`)
memory: Final = Keys("shoal:memory:")
memlog: Final = Keys("shoal:memlog:")  # LIST: the entries of a HISTORY.md
# HASH: for each schedule `i` of a chat its record (`i`), next tick (`i:tick`) and statistics
schedules: Final = SessionKeys("shoal:cron:")

# The fleet and its callers.
# HASH: the shared state of one provider and key: its token bucket and its breaker
limit: Final = Keys("shoal:limit:")
# STRING that expires soon: the rate at which a sender writes, or that they were warned
brake: Final = Keys("shoal:brake:")
# HASH that expires: a request over HTTP under one key, its ticket, and its answer
request_answer: Final = Keys("shoal:answer:")
# STRING that expires: number of worker crashes while this job ran
crashed: Final = Keys("shoal:crashed:")

# Logs of chats, and their delivery.
outbox: Final = SessionKeys("shoal:outbox:")  # STREAM: lines for a chat, ids `<seq>-0`
# ZSET: session of a delivered channel -> server time in ms from which a gateway may lease it. A
# session is in it while lines wait for delivery or a message waits for its answer.
outqueue: Final = Keys("shoal:outqueue:")
# HASH: session -> `owner:token` of the gateway that delivers it now
outleases: Final = Keys("shoal:outleases:")
# ZSET: session -> server time in ms of its oldest undelivered line
outwaits: Final = Keys("shoal:outwaits:")
# STRING that expires: while it exists, nothing is sent to this platform
outpause: Final = Keys("shoal:outpause:")
# STRING: the newest fencing token of the channel's deliveries
outtoken: Final = Keys("shoal:outtoken:")
# HASH: delivery state of a chat, and notes about it; `lua/lib/delivery.lua` names its fields
out: Final = SessionKeys("shoal:out:")
# STRING that expires soon: SHA-1 of the latest delivered texts, to recognise an echo
delivered_text: Final = SessionKeys("shoal:said:")
# HASH of the only listener of a platform: `lease` (`owner:token`), `until` (ms), `cursor`
lock: Final = Keys("shoal:lock:")
# Pub/sub channel that announces that a lock is free
freed: Final = Keys("shoal:live:#")
# Pub/sub channel of one chat: deltas, progress and new lines
live: Final = SessionKeys("shoal:live:")

# Pairing.
# HASH: sender id -> record of a person with access to this channel by a code
pair: Final = Keys("shoal:pair:")
# ZSET that expires: wrong guesses at codes by one approver -> time in ms
tries: Final = Keys("shoal:tries:")


def attempts(member: str) -> str:
    """Return the HASH that counts the attempts at a queue member; `""` for a plain job."""
    if member.startswith(TURN_PREFIX):
        return session(member.removeprefix(TURN_PREFIX))
    return child(member.removeprefix(SUB_PREFIX)) if member.startswith(SUB_PREFIX) else ""


def spent(session: str, day: int) -> str:
    """HASH: tokens and micro-dollars that a chat used in one day, counted in days since 1970."""
    return f"shoal:spent:{session}:{day}"


def seen(channel: str) -> str:
    """Return the prefix of the HASHes `<prefix><day>`: dedupe id -> first answer."""
    return f"{SEEN_PREFIX}{channel}:"


def outrate(channel: str, name: str) -> str:
    """STRING that expires: server time in us until which the calls so far are paid for."""
    return f"shoal:outrate:{channel}:{name}"


def chats(channel: str, principal: str | None) -> str:
    """ZSET: chat id -> last activity in ms, the chats of one person; `""` for nobody (None)."""
    return "" if principal is None else f"shoal:chats:{channel}:{principal}"


def presence(kind: str, name: str) -> str:
    """STRING that expires: the presence record of a running process."""
    return f"shoal:presence:{kind}:{name}"
