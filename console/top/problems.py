"""Problems of the fleet: a code for programs, and one line with advice for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from console.top.fleet_snapshot import FleetSnapshot
from shared.store import keys
from shared.store.fleet.presence import Presence, QueueReading
from shared.store.fleet.redis_server import ServerFacts
from shared.terminal_text import brief, counted, size

OLDEST_REDIS: Final = (7, 0)
MEMORY_LIMIT: Final = 0.7
CLOCK_LIMIT_S: Final = 1.0
LAG_LIMIT_S: Final = 1.0
OUTBOX_LIMIT_S: Final = 120.0
WAIT_LIMITS_S: Final = {"turns": 30.0, keys.BACKGROUND: 300.0, "jobs": 300.0}
"""Limits of the alerts ShoalOldestTurnWaits and ShoalOldestJobWaits."""


class Problem(msgspec.Struct, frozen=True):
    """A problem: `code` for programs, `text` for people in one line, with advice."""

    code: str
    text: str


def problems(found: FleetSnapshot) -> list[Problem]:
    """Return what needs an operator, the worst first."""
    return [
        *_missing(found),
        *unserved(found.queues, found.processes),
        *_models(found),
        *_late(found),
        *_undelivered(found),
        *_blocked_loops(found.processes),
        *server_problems(found.redis),
    ]


def _missing(found: FleetSnapshot) -> Iterator[Problem]:
    for kind, so in (("gateway", "nobody can reach Shoal"), ("worker", "nobody is answered")):
        there = found.of(kind)
        if any(not one.draining for one in there):
            continue
        if kind == "worker" and any(queue.due for queue in found.queues):
            continue  # `unserved` reports it
        why = f"every {kind} is draining" if there else f"no {kind} is running"
        yield Problem(f"no_{kind}", f"{why}, so {so}: start `python -m {kind}`, or all with `shoal up`")


def unserved(queues: Sequence[QueueReading], processes: Sequence[Presence]) -> Iterator[Problem]:
    """Report queues with due work and no worker."""
    for queue in queues:
        serving = [one for one in processes if one.kind == "worker" and serves(one, queue.name)]
        if not queue.due or any(not one.draining for one in serving):
            continue
        who = "every worker that serves it is draining" if serving else "no worker serves it"
        yield Problem(
            "no_worker",
            f"{counted(queue.due, 'entry', 'entries')} in queue {queue.name!r}, and {who}: start `python -m worker`",
        )


def _late(found: FleetSnapshot) -> Iterator[Problem]:
    """Report queues whose oldest entry waits too long although workers serve them."""
    for queue in found.queues:
        workers = [one for one in found.of("worker") if not one.draining]
        serving = [one for one in workers if serves(one, queue.name)]
        if not serving or queue.oldest_due_s <= WAIT_LIMITS_S[queue.name]:
            continue
        slots = sum(one.slots for one in serving)
        running = sum(one.running for one in serving)
        if queue.name == "jobs":
            why = "`shoal jobs list` shows what runs, the workers' logs what does not"
        elif running >= slots:
            why = f"all {slots:,} slots are busy; start more workers"
        else:
            why = f"{slots - running:,} of {slots:,} slots are free, so look at the workers' logs"
        yield Problem(
            "late", f"the oldest of {queue.due:,} in queue {queue.name!r} waits {brief(queue.oldest_due_s)}: {why}"
        )


def serves(worker: Presence, queue: str) -> bool:
    """Return True when a worker serves this queue. Workers for turns also serve the background."""
    queue = "turns" if queue == keys.BACKGROUND else queue
    named = worker.details.get("queues", "")
    return not named or queue in named.replace(",", " ").split()


def _undelivered(found: FleetSnapshot) -> Iterator[Problem]:
    for one in found.outboxes:
        if one.oldest_s > OUTBOX_LIMIT_S:
            replies = f"replies to {counted(one.waiting, 'chat')} of {one.channel!r}"
            yield Problem(
                "undelivered",
                f"{replies} are not delivered since up to {brief(one.oldest_s)}: "
                "is a gateway of that channel there, and its platform?",
            )


def _models(found: FleetSnapshot) -> Iterator[Problem]:
    """Report models that nobody asks, whose key is refused, or that fail the turns that ask
    them."""
    names = found.models()
    for way in found.provider_routes:
        who = ", ".join(repr(name) for name in names.get(way.route, [way.route]))
        if way.refused:
            yield Problem("model_refused", f"the provider of {who} refuses the key: `shoal doctor` says what it says")
        elif way.state == "closed":
            paused = way.why == "rate_limit"
            why = "its provider asked for a pause" if paused else "it failed for several chats in a row"
            yield Problem(
                "model_closed",
                f"nobody asks the model {who} for {brief(way.wait_s)}: {why}; {_waiting(found.model_waits)}",
            )
    if found.model_waits and all(way.state != "closed" for way in found.provider_routes):
        yield Problem(
            "model_waits",
            f"{_waiting(found.model_waits)} for a model that failed: "
            "`model failed` in the workers' logs says what the provider says",
        )


def _waiting(turns: int) -> str:
    return f"{counted(turns, 'turn waits', 'turns wait')}" if turns else "answers wait"


def _blocked_loops(processes: Sequence[Presence]) -> Iterator[Problem]:
    slow = [(one, one.stats.lag_s) for one in processes if one.stats and one.stats.lag_s > LAG_LIMIT_S]
    if slow:
        names = ", ".join(f"{one.kind} {one.name} on {one.host}" for one, _ in slow[:3])
        more = f" and {len(slow) - 3} more" if len(slow) > 3 else ""
        yield Problem(
            "stood_still",
            f"nothing ran for up to {max(lag_s for _, lag_s in slow):g} s in {names}{more}: "
            "are their machines too busy?",
        )


def server_problems(facts: ServerFacts) -> Iterator[Problem]:
    """Report settings of Redis that can lose messages; what it does not tell is not a problem."""
    used = facts.used_bytes
    limit = facts.limit_bytes
    ahead_s = facts.clock_ahead_s
    if facts.role == "slave":
        yield Problem("replica", "this Redis is a replica, which takes no writes: let redis.url name the master")
    if facts.policy not in (None, "noeviction"):
        yield Problem(
            "evicting",
            f"maxmemory-policy is {facts.policy!r}: Redis throws messages away "
            "when its memory is full; set maxmemory-policy noeviction",
        )
    if facts.append_only is False:
        yield Problem("not_persistent", "appendonly is 'no': a restart of Redis loses everything; set appendonly yes")
    elif facts.fsync not in (None, "always"):
        yield Problem(
            "fsync",
            f"appendfsync is {facts.fsync!r}: a crash of its machine loses the last messages; set appendfsync always",
        )
    if facts.restart_safe is False:
        yield Problem(
            "restart_forgets",
            "a restart of Redis may forget nearly everything: its users are not those of this release; "
            "install its redis/users.acl and say ACL LOAD before Redis restarts",
        )
    if facts.writes_ok is False:
        yield Problem("disk", "Redis' last write to its append-only file failed: look at its log and its disk")
    if limit and used is not None and used > MEMORY_LIMIT * limit:
        yield Problem(
            "memory",
            f"Redis uses {size(used)} of {size(limit)}: at the limit new messages are refused; raise maxmemory",
        )
    if abs(ahead_s) >= CLOCK_LIMIT_S:
        where = "ahead of" if ahead_s > 0 else "behind"
        text = f"Redis' clock is {abs(ahead_s):.1f} s {where} this machine's: set both by NTP"
        yield Problem("clock", text)
    numbers = tuple(int(part) if part.isdigit() else 0 for part in facts.speaks.split(".")[:2])
    if facts.speaks and numbers < OLDEST_REDIS:
        yield Problem("old", f"Redis is release {facts.speaks}; Shoal needs 7.0 or newer, or any Valkey")
