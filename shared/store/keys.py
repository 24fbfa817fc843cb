"""Every key in Redis, and nothing else. `lua/lib/core.lua` builds the per-session ones again."""

from __future__ import annotations

from typing import Final, Self


class FleetKey(str):
    """A key that exists once. `type` is its type in Redis."""

    __slots__ = ("type",)
    type: str

    def __new__(cls, name: str, type: str) -> FleetKey:
        key = super().__new__(cls, name)
        key.type = type
        return key


class Keys(str):
    """The keys of one kind: the prefix of their names. A call appends an id. `type` is their type in
    Redis, `""` for names that are no keys: members of queues, and pub/sub channels."""

    __slots__ = ("type",)
    type: str

    def __new__(cls, prefix: str, type: str = "") -> Self:
        keys = super().__new__(cls, prefix)
        keys.type = type
        return keys

    def __call__(self, id: str) -> str:
        return f"{self}{id}"


class OwnKeys(Keys):
    """The keys of one kind that belong to a chat, a person or a request: a broken one harms nobody
    else."""

    __slots__ = ()


class SessionKeys(OwnKeys):
    """The keys of one kind of which each session has one."""

    __slots__ = ()


# Pub/sub channel that tells running turns to stop: `<member> <turn>`
CONTROL: Final = "shoal:control"
PRESENCE: Final = FleetKey("shoal:presence", "zset")  # presence key -> when it was written, in ms
DEAD: Final = FleetKey("shoal:dead", "stream")
# ZSET: session -> server time in ms from which its conversation may be consolidated
IDLE: Final = FleetKey("shoal:idle", "zset")
# ZSET: memory scope -> server time in ms from which its MEMORY.md is due to be rewritten
REWORK: Final = FleetKey("shoal:rework", "zset")
# ZSET: session of one request over HTTP -> server time in ms from which its rest is deleted
EPHEMERAL: Final = FleetKey("shoal:throwaways", "zset")
# ZSET: `<schedule>:<session>` -> server time in ms from which its next tick may run
SCHEDULES: Final = FleetKey("shoal:cron", "zset")
# ZSET: subagent that has not ended -> 0 while it has a slot, else ms since when it waits for one
SUBAGENTS: Final = FleetKey("shoal:subagents", "zset")
# Wake list of due subagents, which wait in the queue of jobs: not every worker has slots for them
SUBAGENT_WAKE: Final = "subagents"
# Name of the queue of sessions for whose turn no person waits, and the fair key of such turns. The
# queue holds only waiting turns: running ones, and their leases, are in `turns`.
BACKGROUND: Final = "background"
# HASH: turn member -> its fair key (a person's hash, or BACKGROUND). A member without one counts as
# its chat's own. A `+` in front: the turn was given back and keeps its place.
FAIR_KEYS: Final = FleetKey("shoal:shares", "hash")
# ZSET that expires: a person's hash -> when a turn of theirs last began while others waited, in ms;
# BACKGROUND -> turns begun since its last one, at most 4; and times at which the scripts last did
# expensive work
LAST_SERVED: Final = FleetKey("shoal:served", "zset")
# ZSET: channel whose lines are delivered -> server time in ms of its queue's newest entry
OUTBOXES: Final = FleetKey("shoal:outboxes", "zset")
AUDIT: Final = FleetKey("shoal:audit", "stream")  # it expires: the audit record, without texts
# HASH that expires: hash of a pairing code -> the person it is for, and until when it counts
PAIRING: Final = FleetKey("shoal:pairing", "hash")
PAIRS: Final = FleetKey("shoal:pair", "set")  # SET: channels in which somebody has access by a code
SEEN_PREFIX: Final = Keys("shoal:seen:", "hash")
TURN_PREFIX: Final = "turn:"
SUB_PREFIX: Final = "sub:"
OUT_PREFIX: Final = "out:"

# Queues.
# ZSET: member -> server time in ms from which it may be acquired
queue: Final = Keys("shoal:queue:", "zset")
# HASH: queue -> newest server time in ms at which it was used, for a clock that falls back
CLOCKS: Final = FleetKey("shoal:queue:clock", "hash")
CONFIRMED: Final = FleetKey("shoal:queue:confirmed", "string")  # counts the waits for replicas
leases: Final = Keys("shoal:leases:", "hash")  # HASH: member -> `owner:token`, running entries only
# LIST of at most one token: something is due, and one idle worker may look
wake: Final = Keys("shoal:wake:", "list")
turn: Final = SessionKeys(TURN_PREFIX)  # the queue member of a session
sub: Final = Keys(SUB_PREFIX)  # the queue member of a subagent
# HASH of a subagent: its task, parent, generation, state, attempts and result
child: Final = OwnKeys("shoal:child:", "hash")
# ZSET: subagents of a session -> score as in SUBAGENTS; ended ones: minus the time in ms
children: Final = SessionKeys("shoal:children:", "zset")

# Sessions.
# HASH: counters, attempts, stop flag and title of a session
session: Final = SessionKeys("shoal:session:", "hash")
# STREAM: messages waiting to be answered, the running one first; ids `<n>-0`
inbox: Final = SessionKeys("shoal:inbox:", "stream")
# STREAM: write-ahead record of the running turn; ids `<step>-0`
ledger: Final = SessionKeys("shoal:ledger:", "stream")
history: Final = SessionKeys("shoal:history:", "list")  # the conversation so far, a record an entry
# LIST: conversations that `/new` ended and that are not consolidated yet, a record an entry
archive: Final = SessionKeys("shoal:archive:", "list")
# HASH: text (`text`) and version (`v`) of a MEMORY.md, bytes of its HISTORY.md (`log`)
memory: Final = OwnKeys("shoal:memory:", "hash")
memlog: Final = OwnKeys("shoal:memlog:", "list")  # LIST: the entries of a HISTORY.md
# HASH: for each schedule `i` of a chat its record (`i`), next tick (`i:tick`) and statistics
schedules: Final = SessionKeys("shoal:cron:", "hash")

# The fleet and its callers.
# HASH: the shared state of one provider and key: its token bucket and its breaker
limit: Final = Keys("shoal:limit:", "hash")
# STRING that expires soon: the rate at which a sender writes, or that they were warned
brake: Final = OwnKeys("shoal:brake:", "string")
# HASH that expires: a request over HTTP under one key, its ticket, and its answer
request_answer: Final = OwnKeys("shoal:answer:", "hash")
# LIST that expires soon: a part of a session that is being restored
upload: Final = OwnKeys("shoal:upload:", "list")
# STRING that expires: number of worker crashes while this job ran
crashed: Final = OwnKeys("shoal:crashed:", "string")

# Logs of chats, and their delivery.
outbox: Final = SessionKeys("shoal:outbox:", "stream")  # STREAM: lines for a chat, ids `<seq>-0`
# ZSET: session of a delivered channel -> server time in ms from which a gateway may lease it. A
# session is in it while lines wait for delivery or a message waits for its answer.
outqueue: Final = Keys("shoal:outqueue:", "zset")
# HASH: session -> `owner:token` of the gateway that delivers it now
outleases: Final = Keys("shoal:outleases:", "hash")
# ZSET: session -> server time in ms of its oldest undelivered line
outwaits: Final = Keys("shoal:outwaits:", "zset")
# STRING that expires: while it exists, nothing is sent to this platform
outpause: Final = Keys("shoal:outpause:", "string")
# STRING: the newest fencing token of the channel's deliveries
outtoken: Final = Keys("shoal:outtoken:", "string")
# HASH: delivery state of a chat, and notes about it; `lua/lib/delivery.lua` names its fields
out: Final = SessionKeys("shoal:out:", "hash")
# STRING that expires soon: SHA-1 of the latest delivered texts, to recognise an echo
delivered_text: Final = SessionKeys("shoal:said:", "string")
# HASH of the only listener of a platform: `lease` (`owner:token`), `until` (ms), `cursor`
lock: Final = Keys("shoal:lock:", "hash")
# Pub/sub channel that announces that a lock is free
freed: Final = Keys("shoal:live:#")
# Pub/sub channel of one chat: deltas, progress and new lines
live: Final = SessionKeys("shoal:live:")

# Pairing.
# HASH: sender id -> record of a person with access to this channel by a code
pair: Final = Keys("shoal:pair:", "hash")
# ZSET that expires: wrong guesses at codes by one approver -> time in ms
tries: Final = OwnKeys("shoal:tries:", "zset")


_spent: Final = OwnKeys("shoal:spent:", "hash")
_outrate: Final = Keys("shoal:outrate:", "string")
_chats: Final = OwnKeys("shoal:chats:", "zset")
_presence: Final = Keys("shoal:presence:", "string")


def attempts(member: str) -> str:
    """Return the HASH that counts the attempts at a queue member; `""` for a plain job."""
    if member.startswith(TURN_PREFIX):
        return session(member.removeprefix(TURN_PREFIX))
    return child(member.removeprefix(SUB_PREFIX)) if member.startswith(SUB_PREFIX) else ""


def spent(session: str, day: int) -> str:
    """HASH: tokens and micro-dollars that a chat used in one day, counted in days since 1970."""
    return _spent(f"{session}:{day}")


def seen(channel: str) -> str:
    """Return the prefix of the HASHes `<prefix><day>`: dedupe id -> first answer."""
    return f"{SEEN_PREFIX}{channel}:"


def outrate(channel: str, name: str) -> str:
    """STRING that expires: server time in us until which the calls so far are paid for."""
    return _outrate(f"{channel}:{name}")


def chats(channel: str, principal: str | None) -> str:
    """ZSET: chat id -> last activity in ms, the chats of one person; `""` for nobody (None)."""
    return "" if principal is None else _chats(f"{channel}:{principal}")


def presence(kind: str, name: str) -> str:
    """STRING that expires: the presence record of a running process."""
    return _presence(f"{kind}:{name}")


FLEET: Final = {str(key): key for key in tuple(globals().values()) if isinstance(key, FleetKey)}
FAMILIES: Final = {str(kind): kind for kind in tuple(globals().values()) if isinstance(kind, Keys)}
"""Every key that exists once, by its name, and every kind of key, by its prefix."""


def family(name: str) -> FleetKey | Keys | None:
    """Return what the key `name` is, and so its type; None for a key that is not Shoal's own."""
    words = name.split(":", 2)
    return FLEET.get(name) or FAMILIES.get(f"{':'.join(words[:2])}:")
