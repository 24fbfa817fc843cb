"""How many commands a fleet may send to Redis, and how often it may go to the network for them. Lower these when the
product does with less: what they allow is what a regression may waste."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

WORKER, GATEWAY, ARQ = "shoal-worker", "shoal-gateway", ""
"""What their connections call themselves; arq's own have no name."""


class Every(NamedTuple):
    """So many commands each so many seconds."""

    seconds: float
    commands: int = 1

    def at_most(self, elapsed_s: float) -> int:
        """In a stretch of time that begins anywhere."""
        return self.commands * (int(elapsed_s / self.seconds) + 1)


TURN: Final[dict[str, dict[str, int]]] = {
    GATEWAY: {"turns/ingest": 1},
    WORKER: {
        "turns/acquire": 1,
        "turns/show_text": 1,
        "fleet/limit_enter": 1,
        "fleet/spend": 1,
        "turns/commit": 1,
        "blpop": 1,
    },
}
"""Of one whole turn: a message from a page, one model call without tools, the reply on the page."""

TURN_WRITES: Final = {GATEWAY: 1, WORKER: 4}
"""To the network in one turn: commands that can go together do."""

TOOL: Final = {"turns/step": 2, "fleet/limit_enter": 1, "fleet/spend": 1, "publish": 1}
"""Of a worker for a tool call that may be repeated, in a turn: the wish and the result are written ahead, the model is
asked once more, and people see what is done."""

TOOL_WRITES: Final = 5

DELTA: Final = 1
"""Commands of a worker for a delta that comes alone. A gateway sends none."""

BURST: Final = 1
"""Commands of a worker for 100 deltas that come together, after the turn's own."""

IDLE: Final[dict[str, tuple[tuple[str, Every], ...]]] = {
    WORKER: (
        ("turns/acquire", Every(1.0, 2)),
        ("blpop", Every(1.0, 2)),
        ("ping", Every(5.0)),
        ("fleet/announce", Every(5.0)),
        ("schedules/due", Every(5.0)),
        ("zcard", Every(10.0)),  # for `arq --check`, like the next
        ("set", Every(10.0)),
    ),
    GATEWAY: (("hello", Every(1.0)), ("ping", Every(5.0)), ("fleet/announce", Every(5.0))),
    ARQ: (),
}
"""Of a process for which there is nothing to do."""

IDLE_A_SECOND: Final = {WORKER: 6.0, GATEWAY: 2.0}
"""The same of all of its connections together."""

PERSON: Final = (("hget", Every(60.0)),)
"""Of a gateway besides, for each person who writes: the time zone that they have chosen, which may change elsewhere."""

RUNNING: Final = (("turns/renew", Every(3.0)),)
"""Of a worker besides, while turns run."""

CHORES: Final = Every(30.0, 30)
"""Of a worker besides: cron jobs, of which there is one each half a minute, arq's own commands for it included, with a
connection more when one is queued while arq polls."""

OF_CHORES: Final = frozenset(
    {"auth", "turns/acquire", "blpop", "subagents/sweep", "exec", "exists", "expire", "jobs/finish", "get", "incrby",
     "multi", "psetex", "time", "jobs/wake", "watch", "zadd", "zrange", "zrangebyscore"}
)  # fmt: skip


def at_most(every: Iterable[tuple[str, Every]], elapsed_s: float) -> Counter[str]:
    """How many of each in so long a time."""
    found: Counter[str] = Counter()
    for name, one in every:
        found[name] += one.at_most(elapsed_s)
    return found


def beyond(sent: Mapping[str, int], allowed: Mapping[str, int], elapsed_s: float, *, chores: bool) -> Counter[str]:
    """What was sent and is not allowed, by name; empty when all is well."""
    over = Counter({name: many - allowed.get(name, 0) for name, many in sent.items() if many > allowed.get(name, 0)})
    if chores:
        of_chores = sum(many for name, many in over.items() if name in OF_CHORES)
        if of_chores <= CHORES.at_most(elapsed_s):
            over = Counter({name: many for name, many in over.items() if name not in OF_CHORES})
    return over
