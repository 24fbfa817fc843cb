"""Every key in Redis, and nothing else. `lua/lib/core.lua` makes the per-session ones again; a test
compares the two."""

from __future__ import annotations

from typing import Final

CONTROL: Final = "shoal:control"
"""Pub/sub channel by which running turns are told to stop: `<member> <turn>`."""

PRESENCE: Final = "shoal:presence"
"""ZSET: presence key -> when it was last written, in ms."""

DEAD: Final = "shoal:dead"
IDLE: Final = "shoal:idle"
"""ZSET: session -> server time in ms from which its conversation may be consolidated."""

REWORK: Final = "shoal:rework"
"""ZSET: memory scope -> server time in ms from which its MEMORY.md is to be written anew."""

EPHEMERAL: Final = "shoal:throwaways"
"""ZSET: session of one request over HTTP -> server time in ms from which what is left of it goes."""

SCHEDULES: Final = "shoal:cron"
"""ZSET: `<schedule>:<session>` -> server time in ms from which its next tick may be run; all schedules there are."""

SUBAGENTS: Final = "shoal:subagents"
"""ZSET: every subagent of the fleet that has not ended -> 0 while it has a place, else server time in ms since when it
waits for one."""

SUBAGENT_WAKE: Final = "subagents"
"""The wake list of due subagents: their queue is that of the jobs, but not every worker has room
for them."""

BACKGROUND: Final = "background"
"""The queue of sessions whose turn no person waits for, and who has those turns. Only what waits is
in it: what runs is in `turns`, and so is its lease."""

FAIR_KEYS: Final = "shoal:shares"
"""HASH: turn member -> whose turn it is (a person's hash, BACKGROUND), of those that are not their chat's own; with a
`+` it was given back and keeps its place."""

LAST_SERVED: Final = "shoal:served"
"""ZSET with an end of life: a person's hash -> when a turn of theirs last began while others
waited, in ms; BACKGROUND -> how many turns have begun since one of its own, 4 at most; and when it
was last looked further."""

OUTBOXES: Final = "shoal:outboxes"
"""ZSET: channel whose lines are delivered -> server time in ms at which a chat of it last came into its outqueue."""

AUDIT: Final = "shoal:audit"
"""STREAM with an end of life: who was let in, refused, asked for a yes, and what was run; without
texts."""

PAIRING: Final = "shoal:pairing"
"""HASH with an end of life: the hash of a code -> who may be let in by it, once, and until when."""

PAIRS: Final = "shoal:pair"
"""SET: the channels to which somebody was let in by a code."""

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
    """LIST with at most one token: somebody is due, one idle worker may look."""
    return f"shoal:wake:{name}"


def turn(session: str) -> str:
    """The queue member of a session."""
    return f"{TURN_PREFIX}{session}"


def sub(child: str) -> str:
    """The queue member of a subagent."""
    return f"{SUB_PREFIX}{child}"


def child(id: str) -> str:
    """HASH: a subagent: its task, parent, generation, state, attempts and result; its ledger is `ledger(id)`."""
    return f"shoal:child:{id}"


def children(session: str) -> str:
    """ZSET: subagents of a session -> as in SUBAGENTS; one that ended: minus the server time in ms."""
    return f"shoal:children:{session}"


def attempts(member: str) -> str:
    """The HASH that counts the attempts at a member of a queue; `""` for a plain job."""
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
    """HASH: what a chat has planned; of schedule `i` the record (`i`), its next tick (`i:tick`), what it did."""
    return f"shoal:cron:{session}"


def spent(session: str, day: int) -> str:
    """HASH: tokens and micro-dollars that a chat used in one day, counted in days since 1970."""
    return f"shoal:spent:{session}:{day}"


def limit(name: str) -> str:
    """HASH: what the fleet knows of one provider and key: its token bucket and its breaker."""
    return f"shoal:limit:{name}"


def brake(what: str) -> str:
    """STRING with a short end of life: how fast somebody writes, or that they were told to slow
    down."""
    return f"shoal:brake:{what}"


def request_answer(request: str) -> str:
    """HASH with an end of life: what was asked over HTTP under one key, by which ticket, and its
    answer."""
    return f"shoal:answer:{request}"


def crashed(job: str) -> str:
    """STRING with an end of life: how often a worker died with this job in its hands."""
    return f"shoal:crashed:{job}"


def seen(channel: str) -> str:
    """Prefix of the HASHes `<prefix><day>`: dedupe id -> first answer."""
    return f"{SEEN_PREFIX}{channel}:"


def outbox(session: str) -> str:
    """STREAM: lines for a chat, ids `<seq>-0`."""
    return f"shoal:outbox:{session}"


def outqueue(channel: str) -> str:
    """ZSET: session of a channel whose lines are delivered -> server time in ms from which a gateway may take it. In it
    while lines wait for their delivery or a message for its answer."""
    return f"shoal:outqueue:{channel}"


def outleases(channel: str) -> str:
    """HASH: session -> `owner:token` of the gateway that delivers it now."""
    return f"shoal:outleases:{channel}"


def outwaits(channel: str) -> str:
    """ZSET: session -> server time in ms at which the oldest line came that is not delivered."""
    return f"shoal:outwaits:{channel}"


def outpause(channel: str) -> str:
    """STRING with an end of life: nothing at all is sent to this platform before."""
    return f"shoal:outpause:{channel}"


def outrate(channel: str, name: str) -> str:
    """STRING with an end of life: server time in us until which the calls that were made are paid
    for."""
    return f"shoal:outrate:{channel}:{name}"


def outtoken(channel: str) -> str:
    """STRING: the newest fencing token of the channel's deliveries."""
    return f"shoal:outtoken:{channel}"


def out(session: str) -> str:
    """HASH: how far the delivery of a chat is, and what is known of the chat at the platform;
    `lua/lib/delivery.lua` names its fields."""
    return f"shoal:out:{session}"


def delivered_text(session: str) -> str:
    """STRING with a short end of life: SHA-1 of what was delivered last, by which it is known when
    it comes back."""
    return f"shoal:said:{session}"


def lock(name: str) -> str:
    """HASH: who listens alone to a platform: `lease` (`owner:token`), `until` (ms), `cursor`."""
    return f"shoal:lock:{name}"


def freed(name: str) -> str:
    """Pub/sub channel: the lock of this name is free."""
    return f"shoal:live:#{name}"


def live(session: str) -> str:
    """Pub/sub channel: deltas, progress and new lines of one chat."""
    return f"shoal:live:{session}"


def chats(channel: str, principal: str) -> str:
    """ZSET: chat id -> last activity in ms, the chats of one person."""
    return f"shoal:chats:{channel}:{principal}"


def presence(kind: str, name: str) -> str:
    """STRING with a time to live: what a running process says of itself."""
    return f"shoal:presence:{kind}:{name}"


def pair(channel: str) -> str:
    """HASH: sender id -> the record of somebody who was let in to this channel by a code."""
    return f"shoal:pair:{channel}"


def tries(who: str) -> str:
    """ZSET with an end of life: wrong guesses at codes of one who may let people in -> when, in
    ms."""
    return f"shoal:tries:{who}"
