"""Every key in Redis, and nothing else. `lua/lib/core.lua` builds the per-session ones again; a
test compares the two."""

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


CONTROL: Final = "shoal:control"
"""Pub/sub channel that tells running turns to stop: `<member> <turn>`."""

PRESENCE: Final = "shoal:presence"
"""ZSET: presence key -> when it was last written, in ms."""

DEAD: Final = "shoal:dead"
IDLE: Final = "shoal:idle"
"""ZSET: session -> server time in ms from which its conversation may be consolidated."""

REWORK: Final = "shoal:rework"
"""ZSET: memory scope -> server time in ms from which its MEMORY.md is due to be rewritten."""

EPHEMERAL: Final = "shoal:throwaways"
"""ZSET: session of a single request over HTTP -> server time in ms from which its remains are
deleted."""

SCHEDULES: Final = "shoal:cron"
"""ZSET of all schedules: `<schedule>:<session>` -> server time in ms from which its next tick
may run."""

SUBAGENTS: Final = "shoal:subagents"
"""ZSET of every subagent that has not ended -> 0 while it has a slot, else server time in ms
since when it waits for one."""

SUBAGENT_WAKE: Final = "subagents"
"""Wake list of due subagents. They are in the queue of jobs, but not every worker has slots for
them."""

BACKGROUND: Final = "background"
"""Name of the queue of sessions for whose turn no person waits, and the fair key of such turns.
The queue holds only waiting turns: running ones, and their leases, are in `turns`."""

FAIR_KEYS: Final = "shoal:shares"
"""HASH: turn member -> its fair key (a person's hash, or BACKGROUND). A member without one
counts as its chat's own. A `+` in front: the turn was given back and keeps its place."""

LAST_SERVED: Final = "shoal:served"
"""ZSET that expires: a person's hash -> when a turn of theirs last began while others waited, in
ms; BACKGROUND -> turns begun since its last one, at most 4; and times at which the scripts last
did expensive work."""

OUTBOXES: Final = "shoal:outboxes"
"""ZSET: channel whose lines are delivered -> server time in ms of its queue's newest entry."""

AUDIT: Final = "shoal:audit"
"""STREAM that expires: the audit record, without texts."""

PAIRING: Final = "shoal:pairing"
"""HASH that expires: hash of a pairing code -> the person it is for, and until when it counts."""

PAIRS: Final = "shoal:pair"
"""SET: channels in which somebody has access by a code."""

SEEN_PREFIX: Final = "shoal:seen:"
TURN_PREFIX: Final = "turn:"
SUB_PREFIX: Final = "sub:"
OUT_PREFIX: Final = "out:"

queue: Final = Keys("shoal:queue:")
"""ZSET: member -> server time in ms from which it may be acquired."""

leases: Final = Keys("shoal:leases:")
"""HASH: member -> `owner:token`, running entries only."""

wake: Final = Keys("shoal:wake:")
"""LIST of at most one token: something is due, and one idle worker may look."""

turn: Final = SessionKeys(TURN_PREFIX)
"""The queue member of a session."""

sub: Final = Keys(SUB_PREFIX)
"""The queue member of a subagent."""

child: Final = Keys("shoal:child:")
"""HASH of a subagent: its task, parent, generation, state, attempts and result."""

children: Final = SessionKeys("shoal:children:")
"""ZSET: subagents of a session -> score as in SUBAGENTS; ended ones: minus the time in ms."""

session: Final = SessionKeys("shoal:session:")
"""HASH: counters, attempts, stop flag and title of a session."""

inbox: Final = SessionKeys("shoal:inbox:")
"""STREAM: messages waiting to be answered, the running one first; ids `<n>-0`."""

ledger: Final = SessionKeys("shoal:ledger:")
"""STREAM: write-ahead record of the running turn; ids `<step>-0`."""

history: Final = SessionKeys("shoal:history:")
"""LIST: the conversation so far, one record an entry."""

archive: Final = SessionKeys("shoal:archive:")
"""LIST: conversations that `/new` ended and that are not consolidated yet, a record an entry."""

memory: Final = Keys("shoal:memory:")
"""HASH: text (`text`) and version (`v`) of a MEMORY.md, bytes of its HISTORY.md (`log`)."""

memlog: Final = Keys("shoal:memlog:")
"""LIST: the entries of a HISTORY.md."""

schedules: Final = SessionKeys("shoal:cron:")
"""HASH: for each schedule `i` of a chat its record (`i`), next tick (`i:tick`) and statistics."""

limit: Final = Keys("shoal:limit:")
"""HASH: the shared state of one provider and key: its token bucket and its breaker."""

brake: Final = Keys("shoal:brake:")
"""STRING that expires soon: the rate at which a sender writes, or that they were warned."""

request_answer: Final = Keys("shoal:answer:")
"""HASH that expires: a request over HTTP under one key, its ticket, and its answer."""

crashed: Final = Keys("shoal:crashed:")
"""STRING that expires: number of worker crashes while this job ran."""

outbox: Final = SessionKeys("shoal:outbox:")
"""STREAM: lines for a chat, ids `<seq>-0`."""

outqueue: Final = Keys("shoal:outqueue:")
"""ZSET: session of a delivered channel -> server time in ms from which a gateway may lease
it. A session is in it while lines wait for delivery or a message waits for its answer."""

outleases: Final = Keys("shoal:outleases:")
"""HASH: session -> `owner:token` of the gateway that delivers it now."""

outwaits: Final = Keys("shoal:outwaits:")
"""ZSET: session -> server time in ms of its oldest undelivered line."""

outpause: Final = Keys("shoal:outpause:")
"""STRING that expires: while it exists, nothing is sent to this platform."""

outtoken: Final = Keys("shoal:outtoken:")
"""STRING: the newest fencing token of the channel's deliveries."""

out: Final = SessionKeys("shoal:out:")
"""HASH: delivery state of a chat, and notes about it; `lua/lib/delivery.lua` names its fields."""

delivered_text: Final = SessionKeys("shoal:said:")
"""STRING that expires soon: SHA-1 of the latest delivered texts, to recognise an echo."""

lock: Final = Keys("shoal:lock:")
"""HASH of the only listener of a platform: `lease` (`owner:token`), `until` (ms), `cursor`."""

freed: Final = Keys("shoal:live:#")
"""Pub/sub channel that announces that a lock is free."""

live: Final = SessionKeys("shoal:live:")
"""Pub/sub channel of one chat: deltas, progress and new lines."""

pair: Final = Keys("shoal:pair:")
"""HASH: sender id -> record of a person with access to this channel by a code."""

tries: Final = Keys("shoal:tries:")
"""ZSET that expires: wrong guesses at codes by one approver -> time in ms."""


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
