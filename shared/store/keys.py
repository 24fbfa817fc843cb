"""Every key in Redis, and nothing else. `lua/lib/core.lua` builds the per-session ones again; a
test compares the two."""

from __future__ import annotations

from typing import Final

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
"""ZSET: channel whose lines are delivered -> server time in ms at which a chat last entered its
queue."""

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


def queue(name: str) -> str:
    """ZSET: member -> server time in ms from which it may be acquired."""
    return f"shoal:queue:{name}"


def leases(name: str) -> str:
    """HASH: member -> `owner:token`, running entries only."""
    return f"shoal:leases:{name}"


def wake(name: str) -> str:
    """LIST of at most one token: something is due, and one idle worker may look."""
    return f"shoal:wake:{name}"


def turn(session: str) -> str:
    """Return the queue member of a session."""
    return f"{TURN_PREFIX}{session}"


def sub(child: str) -> str:
    """Return the queue member of a subagent."""
    return f"{SUB_PREFIX}{child}"


def child(id: str) -> str:
    """HASH of a subagent: its task, parent, generation, state, attempts and result; its ledger
    is `ledger(id)`."""
    return f"shoal:child:{id}"


def children(session: str) -> str:
    """ZSET: subagents of a session -> score as in SUBAGENTS; of an ended one minus the server
    time in ms."""
    return f"shoal:children:{session}"


def attempts(member: str) -> str:
    """Return the HASH that counts the attempts at a queue member; `""` for a plain job."""
    if member.startswith(TURN_PREFIX):
        return session(member.removeprefix(TURN_PREFIX))
    return child(member.removeprefix(SUB_PREFIX)) if member.startswith(SUB_PREFIX) else ""


def session(session: str) -> str:
    """HASH: counters, attempts, stop flag and title of a session."""
    return f"shoal:session:{session}"


def inbox(session: str) -> str:
    """STREAM: messages waiting to be answered, the running one first; ids `<n>-0`."""
    return f"shoal:inbox:{session}"


def ledger(session: str) -> str:
    """STREAM: write-ahead record of the running turn; ids `<step>-0`."""
    return f"shoal:ledger:{session}"


def history(session: str) -> str:
    """LIST: the conversation so far, one record an entry."""
    return f"shoal:history:{session}"


def archive(session: str) -> str:
    """LIST: conversations that `/new` ended and that are not consolidated yet, one record an entry."""
    return f"shoal:archive:{session}"


def memory(scope: str) -> str:
    """HASH: the text of a MEMORY.md (`text`), its version (`v`), the bytes of its HISTORY.md (`log`)."""
    return f"shoal:memory:{scope}"


def memlog(scope: str) -> str:
    """LIST: the entries of a HISTORY.md."""
    return f"shoal:memlog:{scope}"


def schedules(session: str) -> str:
    """HASH: schedules of a chat; for schedule `i` the record (`i`), its next tick (`i:tick`),
    its statistics."""
    return f"shoal:cron:{session}"


def spent(session: str, day: int) -> str:
    """HASH: tokens and micro-dollars that a chat used in one day, counted in days since 1970."""
    return f"shoal:spent:{session}:{day}"


def limit(name: str) -> str:
    """HASH: the shared state of one provider and key: its token bucket and its breaker."""
    return f"shoal:limit:{name}"


def brake(what: str) -> str:
    """STRING that expires soon: the rate at which a sender writes, or that they were warned."""
    return f"shoal:brake:{what}"


def request_answer(request: str) -> str:
    """HASH that expires: a request over HTTP under one key, its ticket, and its answer."""
    return f"shoal:answer:{request}"


def crashed(job: str) -> str:
    """STRING that expires: number of worker crashes while this job ran."""
    return f"shoal:crashed:{job}"


def seen(channel: str) -> str:
    """Return the prefix of the HASHes `<prefix><day>`: dedupe id -> first answer."""
    return f"{SEEN_PREFIX}{channel}:"


def outbox(session: str) -> str:
    """STREAM: lines for a chat, ids `<seq>-0`."""
    return f"shoal:outbox:{session}"


def outqueue(channel: str) -> str:
    """ZSET: session of a delivered channel -> server time in ms from which a gateway may lease
    it. A session is in it while lines wait for delivery or a message waits for its answer."""
    return f"shoal:outqueue:{channel}"


def outleases(channel: str) -> str:
    """HASH: session -> `owner:token` of the gateway that delivers it now."""
    return f"shoal:outleases:{channel}"


def outwaits(channel: str) -> str:
    """ZSET: session -> server time in ms of its oldest undelivered line."""
    return f"shoal:outwaits:{channel}"


def outpause(channel: str) -> str:
    """STRING that expires: while it exists, nothing is sent to this platform."""
    return f"shoal:outpause:{channel}"


def outrate(channel: str, name: str) -> str:
    """STRING that expires: server time in us until which the calls so far are paid for."""
    return f"shoal:outrate:{channel}:{name}"


def outtoken(channel: str) -> str:
    """STRING: the newest fencing token of the channel's deliveries."""
    return f"shoal:outtoken:{channel}"


def out(session: str) -> str:
    """HASH: delivery state of a chat, and notes about it; `lua/lib/delivery.lua` names its
    fields."""
    return f"shoal:out:{session}"


def delivered_text(session: str) -> str:
    """STRING that expires soon: SHA-1 of the latest delivered texts, by which an echo is
    recognised."""
    return f"shoal:said:{session}"


def lock(name: str) -> str:
    """HASH of the only listener of a platform: `lease` (`owner:token`), `until` (ms), `cursor`."""
    return f"shoal:lock:{name}"


def freed(name: str) -> str:
    """Pub/sub channel that announces that a lock is free."""
    return f"shoal:live:#{name}"


def live(session: str) -> str:
    """Pub/sub channel of one chat: deltas, progress and new lines."""
    return f"shoal:live:{session}"


def chats(channel: str, principal: str) -> str:
    """ZSET: chat id -> last activity in ms, the chats of one person."""
    return f"shoal:chats:{channel}:{principal}"


def presence(kind: str, name: str) -> str:
    """STRING that expires: the presence record of a running process."""
    return f"shoal:presence:{kind}:{name}"


def pair(channel: str) -> str:
    """HASH: sender id -> record of a person with access to this channel by a code."""
    return f"shoal:pair:{channel}"


def tries(who: str) -> str:
    """ZSET that expires: wrong guesses at codes by one approver -> time in ms."""
    return f"shoal:tries:{who}"
