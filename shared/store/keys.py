"""Every key in Redis, and nothing else. `lua/lib/base.lua` builds the per-session ones again."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

PREFIX: Final = "shoal:{0ax}:"
"""What every key and every pub/sub channel begins with. A cluster keeps all names with the same
text in braces on one server, where a script may use them together. `0ax` is the text for the first
slots of a cluster; a further shard would have another one."""

SLOT: Final = 545
"""The slot of a cluster in which these names are: `CLUSTER KEYSLOT {0ax}`."""

META: Final = f"{PREFIX}meta"
"""HASH that always exists on a cluster. While a slot is moved key by key, a script whose named keys
are partly there and partly not is refused before its first write; so each one names this key, and
NO_KEY."""

NO_KEY: Final = f"{PREFIX}none"
"""Stands for "no key" among the keys of a script."""


ARQ: Final = "arq:"
"""What the keys of arq's own tools begin with."""

ARQ_ON_CLUSTER: Final = "arq:{0ax}:"
"""The same on a cluster, where stock tools of arq do not work in any case."""


class FleetKey(str):
    """A key that exists once. `type` is its type in Redis."""

    __slots__ = ("type",)
    type: str

    def __new__(cls, name: str, type: str) -> FleetKey:
        key = super().__new__(cls, name)
        key.type = type
        return key


class Keys(str):
    """The keys of one kind: the prefix of their names. A call appends an id. `type` is their type
    in Redis, `""` for names that are no keys: members of queues, and pub/sub channels."""

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


class QueueKeys(Keys):
    """The keys of one kind of which each queue has one."""

    __slots__ = ()


class ChannelKeys(Keys):
    """The keys of one kind of which each channel has one, for its deliveries."""

    __slots__ = ()


# Pub/sub channel that tells running turns to stop: `<member> <turn>`
CONTROL: Final = f"{PREFIX}control"
KILL: Final = "kill"  # there, in place of a turn: whoever works on the member is to kill itself
# Presence key -> when it was written, in ms
PRESENCE: Final = FleetKey(f"{PREFIX}presence", "zset")
DEAD: Final = FleetKey(f"{PREFIX}dead", "stream")
# ZSET: session -> server time in ms from which its conversation may be consolidated
IDLE: Final = FleetKey(f"{PREFIX}idle", "zset")
# ZSET: memory scope -> server time in ms from which its MEMORY.md is due to be rewritten
REWORK: Final = FleetKey(f"{PREFIX}rework", "zset")
# ZSET: session of one request over HTTP, or chat that its person deleted -> server time in ms from
# which what is left of it is deleted
EPHEMERAL: Final = FleetKey(f"{PREFIX}throwaways", "zset")
# ZSET: session with a long log -> server time in ms of a line; its oldest lines go to its pages
PAGING: Final = FleetKey(f"{PREFIX}paging", "zset")
# ZSET: `<schedule>:<session>` -> server time in ms from which its next tick may run
SCHEDULES: Final = FleetKey(f"{PREFIX}cron", "zset")
# ZSET: subagent that has not ended -> 0 while it has a slot, else ms since when it waits for one
SUBAGENTS: Final = FleetKey(f"{PREFIX}subagents", "zset")
# Wake list of due subagents, which wait in the queue of jobs: not every worker has slots for them
SUBAGENT_WAKE: Final = "subagents"
# Name of the queue of sessions for whose turn no person waits, and the fair key of such turns. The
# queue holds only waiting turns: running ones, and their leases, are in `turns`.
BACKGROUND: Final = "background"
# HASH: turn member -> its fair key (a person's hash, or BACKGROUND). A member without one counts as
# its chat's own. A `+` in front: the turn was given back and keeps its place.
FAIR_KEYS: Final = FleetKey(f"{PREFIX}shares", "hash")
# ZSET that expires: a person's hash -> when a turn of theirs last began while others waited, in ms;
# BACKGROUND -> turns begun since its last one, at most 4; and times at which the scripts last did
# expensive work
LAST_SERVED: Final = FleetKey(f"{PREFIX}served", "zset")
# ZSET: channel whose lines are delivered -> server time in ms of its queue's newest entry
OUTBOXES: Final = FleetKey(f"{PREFIX}outboxes", "zset")
# STREAM that expires, and exists only where a gateway has endpoints of webhooks: ends of turns, and
# turns that wait, of which nobody has made webhooks yet
NOTICES: Final = FleetKey(f"{PREFIX}notices", "stream")
AUDIT: Final = FleetKey(f"{PREFIX}audit", "stream")  # the audit record, without texts
# HASH that expires: hash of a pairing code -> the person it is for, and until when it counts
PAIRING: Final = FleetKey(f"{PREFIX}pairing", "hash")
# SET: channels in which somebody has access by a code
PAIRS: Final = FleetKey(f"{PREFIX}pair", "set")
SEEN_PREFIX: Final = Keys(f"{PREFIX}seen:", "hash")
TURN_PREFIX: Final = "turn:"
SUB_PREFIX: Final = "sub:"
OUT_PREFIX: Final = "out:"

# Queues.
# ZSET: member -> server time in ms from which it may be acquired
queue: Final = QueueKeys(f"{PREFIX}queue:", "zset")
# HASH: queue -> newest server time in ms at which it was used, for a clock that falls back
CLOCKS: Final = FleetKey(f"{PREFIX}queue:clock", "hash")
# The write that each wait for replicas waits for
CONFIRMED: Final = FleetKey(f"{PREFIX}queue:confirmed", "string")
# ZSET that expires: member that waits for its model to answer -> server time in ms until which it
# counts as waiting
MODEL_WAITS: Final = FleetKey(f"{PREFIX}queue:model", "zset")
# HASH: member -> `owner:token`, running entries only
leases: Final = QueueKeys(f"{PREFIX}leases:", "hash")
# LIST of at most one token: something is due, and one idle worker may look
wake: Final = QueueKeys(f"{PREFIX}wake:", "list")
turn: Final = SessionKeys(TURN_PREFIX)  # the queue member of a session
sub: Final = Keys(SUB_PREFIX)  # the queue member of a subagent
# HASH of a subagent: its task, parent, generation, state, attempts and result
child: Final = OwnKeys(f"{PREFIX}child:", "hash")
# ZSET: subagents of a session -> score as in SUBAGENTS; ended ones: minus the time in ms
children: Final = SessionKeys(f"{PREFIX}children:", "zset")

# Sessions.
# HASH: counters, attempts, stop flag, title, age and metadata of a session
session: Final = SessionKeys(f"{PREFIX}session:", "hash")
# STREAM: messages waiting to be answered, the running one first; ids `<n>-0`
inbox: Final = SessionKeys(f"{PREFIX}inbox:", "stream")
# ZSET that expires soon: album, or part of one that is being fetched -> server time in ms until
# which the album's turn waits for it
album_parts: Final = SessionKeys(f"{PREFIX}album:", "zset")
# LIST that expires within a minute: parts of an album of which none has addressed the bot so far
album_held: Final = OwnKeys(f"{PREFIX}albumheld:", "list")
# STREAM: write-ahead record of the running turn; ids `<step>-0`
ledger: Final = SessionKeys(f"{PREFIX}ledger:", "stream")
# The conversation so far, a record an entry
history: Final = SessionKeys(f"{PREFIX}history:", "list")
# LIST: what `/new` ended, or was over the cap of a conversation, and is not consolidated yet, a
# record an entry
archive: Final = SessionKeys(f"{PREFIX}archive:", "list")
# STREAM: all that has left the conversation, in pages: `z`, a compressed list of records
transcript: Final = SessionKeys(f"{PREFIX}transcript:", "stream")
# HASH: text (`text`) and version (`v`) of a MEMORY.md, bytes of its HISTORY.md (`log`)
memory: Final = OwnKeys(f"{PREFIX}memory:", "hash")
memlog: Final = OwnKeys(f"{PREFIX}memlog:", "list")  # LIST: the entries of a HISTORY.md
# HASH: for each schedule `i` of a chat its record (`i`), next tick (`i:tick`) and statistics
schedules: Final = SessionKeys(f"{PREFIX}cron:", "hash")

# The fleet and its callers.
# HASH: the shared state of one provider and key: its token bucket and its breaker
limit: Final = Keys(f"{PREFIX}limit:", "hash")
# STRING that expires soon: the rate at which a sender writes, or that they were warned
brake: Final = OwnKeys(f"{PREFIX}brake:", "string")
# HASH that expires: a request over HTTP under one key, its ticket, and its answer
request_answer: Final = OwnKeys(f"{PREFIX}answer:", "hash")
# HASH that expires: a stored response, with the session and the turn that answer it
response: Final = OwnKeys(f"{PREFIX}response:", "hash")
# ZSET that expires: stored response of a session -> when it was asked for, in ms
responses: Final = SessionKeys(f"{PREFIX}responses:", "zset")
# ZSET that expires: stored response of a principal -> when it was asked for, in ms
kept_responses: Final = OwnKeys(f"{PREFIX}kept:", "zset")
# HASH that expires: turn and session of a principal's response in the background that may not be
# finished -> the response, and when it was accepted, in ms
unfinished: Final = OwnKeys(f"{PREFIX}unfinished:", "hash")
# STRING that expires: the session that a link shares
share: Final = OwnKeys(f"{PREFIX}share:", "string")
# LIST that expires soon: a part of a session that is being restored
upload: Final = OwnKeys(f"{PREFIX}upload:", "list")
# STRING that expires: number of worker crashes while this job ran
crashed: Final = OwnKeys(f"{PREFIX}crashed:", "string")

# Logs of chats, and their delivery.
outbox: Final = SessionKeys(f"{PREFIX}outbox:", "stream")  # STREAM: lines for a chat, ids `<seq>-0`
# STREAM: the oldest lines of a log, in pages: `z`, a compressed list of lines, `t`, when it was
# made; ids `<seq of its first line>-0`
pages: Final = SessionKeys(f"{PREFIX}pages:", "stream")
# ZSET: session of a delivered channel -> server time in ms from which a gateway may lease it. A
# session is in it while lines wait for delivery or a message waits for its answer.
outqueue: Final = ChannelKeys(f"{PREFIX}outqueue:", "zset")
# HASH: session -> `owner:token` of the gateway that delivers it now
outleases: Final = ChannelKeys(f"{PREFIX}outleases:", "hash")
# ZSET: session -> server time in ms of its oldest undelivered line
outwaits: Final = ChannelKeys(f"{PREFIX}outwaits:", "zset")
# STRING that expires: while it exists, nothing is sent to this platform
outpause: Final = ChannelKeys(f"{PREFIX}outpause:", "string")
# STRING: the newest fencing token of the channel's deliveries
outtoken: Final = ChannelKeys(f"{PREFIX}outtoken:", "string")
# HASH: delivery state of a chat, and notes about it; `lua/lib/delivery.lua` names its fields
out: Final = SessionKeys(f"{PREFIX}out:", "hash")
# STRING that expires soon: SHA-1 of the latest delivered texts, to recognise an echo
delivered_text: Final = SessionKeys(f"{PREFIX}said:", "string")
# HASH of the only listener of a platform: `lease` (`owner:token`), `until` (ms), `cursor`
lock: Final = Keys(f"{PREFIX}lock:", "hash")
# Pub/sub channel that announces that a lock is free
freed: Final = Keys(f"{PREFIX}live:#")
# Pub/sub channel of one chat: deltas, progress and new lines. LIST that expires, of the same name
# (so that older lists of Redis users allow it): deltas of the text of its turn that stands on
# screens
live: Final = SessionKeys(f"{PREFIX}live:", "list")

# STREAM that expires: the feed of a person of the page, what happens in all their chats
# (`shared/store/delivery/feed.py`)
feed: Final = OwnKeys(f"{PREFIX}feed:", "stream")
# Pub/sub channel of the same. Its name begins like those of chats, which every user of Redis may
# follow; no session's name begins with `@`.
feed_news: Final = Keys(f"{PREFIX}live:@")

# Pub/sub channel that announces an entry of NOTICES
NOTICE_NEWS: Final = f"{PREFIX}live:@notices"

# People of the page, and what people use.
# HASH: what a person has chosen for themselves, such as `timezone`
person: Final = OwnKeys(f"{PREFIX}person:", "hash")
# HASH that expires: `<day>:t` and `<day>:m`, tokens and micro-dollars that a person used on a day,
# counted since 1970
used: Final = OwnKeys(f"{PREFIX}used:", "hash")

# Pairing.
# HASH: sender id -> record of a person with access to this channel by a code
pair: Final = Keys(f"{PREFIX}pair:", "hash")
# ZSET that expires: wrong guesses at codes by one approver -> time in ms
tries: Final = OwnKeys(f"{PREFIX}tries:", "zset")


_spent: Final = OwnKeys(f"{PREFIX}spent:", "hash")
_outrate: Final = Keys(f"{PREFIX}outrate:", "string")
_chats: Final = OwnKeys(f"{PREFIX}chats:", "zset")
_presence: Final = Keys(f"{PREFIX}presence:", "string")


def attempts(member: str) -> str:
    """Return the HASH that counts the attempts at a queue member; NO_KEY for a plain job."""
    if member.startswith(TURN_PREFIX):
        return session(member.removeprefix(TURN_PREFIX))
    return child(member.removeprefix(SUB_PREFIX)) if member.startswith(SUB_PREFIX) else NO_KEY


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


BY_NAME: Final = {
    **{name: key for name, key in tuple(globals().items()) if isinstance(key, (FleetKey, Keys))},
    # In scripts `wake` is the function that pushes to the list, and `out` is called what it holds.
    "wake_list": wake,
    "state": out,
}


"""Each key, and each kind of keys, by the name that scripts give it."""


_MADE_FROM: Final[dict[type, int]] = {SessionKeys: 0, QueueKeys: 1, ChannelKeys: 2}
_MADE: Final = {name: (key, _MADE_FROM[type(key)]) for name, key in BY_NAME.items() if type(key) in _MADE_FROM}


class Whose(NamedTuple):
    """The session, queue and channel whose keys a script works on, None where there is none. What
    is read from a damaged key may be "", which is a name like others."""

    session: str | None = None
    queue: str | None = None
    channel: str | None = None


def named_key(name: str, whose: Whose) -> str:
    """Return the key that a script calls `name`: one of the session, queue or channel (`inbox`), or
    one that exists once (`DEAD`). Raises TypeError for another name, and when there is nothing that
    it is the key of."""
    made = _MADE.get(name)
    if made is not None and (id := whose[made[1]]) is not None:
        return f"{made[0]}{id}"
    once = BY_NAME.get(name)
    if not isinstance(once, FleetKey):
        raise TypeError(f"the key {name} of a script must be given")
    return once


def family(name: str) -> FleetKey | Keys | None:
    """Return what the key `name` is, and so its type; None for a key that is not Shoal's own."""
    words = name.split(":", 3)
    return FLEET.get(name) or FAMILIES.get(f"{':'.join(words[:3])}:")
