"""Every key in Redis, and nothing else. `lua/lib.lua` makes the per-session ones again; a test compares the two."""

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

SCHEDULES: Final = "shoal:cron"
"""ZSET: `<schedule>:<session>` -> server time in ms from which its next tick may be run; all schedules there are."""

SUBAGENTS: Final = "shoal:subagents"
"""ZSET: every subagent of the fleet that has not ended -> 0 while it has a place, else server time in ms since when it
waits for one."""

SUBAGENT_WAKE: Final = "subagents"
"""The wake list of due subagents: their queue is that of the jobs, but not every worker has room for them."""

BACKGROUND: Final = "background"
"""The queue of sessions whose turn no person waits for, and who has those turns. Only what waits is in it: what runs is
in `turns`, and so is its lease."""

SHARES: Final = "shoal:shares"
"""HASH: turn member -> whose turn it is (a person's hash, BACKGROUND), of those that are not their chat's own; with a
`+` it was given back and keeps its place."""

SERVED: Final = "shoal:served"
"""ZSET with an end of life: a person's hash -> when a turn of theirs last began while others waited, in ms;
BACKGROUND -> how many turns have begun since one of its own, 4 at most; and when it was last looked further."""

SEEN_PREFIX: Final = "shoal:seen:"
TURN_PREFIX: Final = "turn:"
SUB_PREFIX: Final = "sub:"


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


def noted(member: str) -> str:
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
    """STRING with a short end of life: how fast somebody writes, or that they were told to slow down."""
    return f"shoal:brake:{what}"


def crashed(job: str) -> str:
    """STRING with an end of life: how often a worker died with this job in its hands."""
    return f"shoal:crashed:{job}"


def seen(channel: str) -> str:
    """Prefix of the HASHes `<prefix><day>`: dedupe id -> first answer."""
    return f"{SEEN_PREFIX}{channel}:"


def outbox(session: str) -> str:
    """STREAM: lines for a chat, ids `<seq>-0`."""
    return f"shoal:outbox:{session}"


def live(session: str) -> str:
    """Pub/sub channel: deltas, progress and new lines of one chat."""
    return f"shoal:live:{session}"


def chats(channel: str, principal: str) -> str:
    """ZSET: chat id -> last activity in ms, the chats of one person."""
    return f"shoal:chats:{channel}:{principal}"


def presence(kind: str, name: str) -> str:
    """STRING with a time to live: what a running process says of itself."""
    return f"shoal:presence:{kind}:{name}"
