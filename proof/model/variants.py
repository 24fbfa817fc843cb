"""The worlds that are explored, and how many states each has: another number means that the model has changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from proof.model import delivery_bugs
from proof.model.bugs import CLOCK, JOINS, SEEDED, STALE, LedgerWithGaps
from proof.model.delivery import Delivery
from proof.model.delivery_scripts import Sizes as Way
from proof.model.delivery_state import BAD, BAD_MARKUP, GOOD
from proof.model.explore import Explored, Model, explore
from proof.model.protocol import Queue, Sizes
from proof.model.wakes import Wakes

NO_TAIL: Final = Sizes()
TAIL: Final = Sizes(claims=2, errors=1, crashes=0, stops=False, tail=True)
TWO_STEPS: Final = TAIL._replace(messages=1, ledger=2)

KEY: Final = Way("key")
LOOK_UP: Final = Way("look-up")
NOTHING: Final = Way("nothing", troubles=2)


class Variant(NamedTuple):
    """One world and what is expected of it: a number of states (0 = it is not counted, the search stops early), and
    what is found wrong, in at most so many steps."""

    model: Callable[[], Model[Any]]
    states: int = 0
    problem: str = ""
    steps: int = 0

    def unexpected(self, found: Explored) -> str:
        """How `found` differs from what is expected, '' if it does not."""
        if found.problem != self.problem or len(found.trace) > self.steps:
            return f"expected {self.problem or 'no violation'!r} within {self.steps} steps; found {found.story()}"
        if self.states and found.states != self.states:
            return f"expected {self.states} states, found {found.states}: the model was changed"
        return ""


SOUND: Final = {
    "two workers, two tasks each": Variant(lambda: Queue(NO_TAIL), 41_337),
    "three messages": Variant(lambda: Queue(NO_TAIL._replace(messages=3, claims=2)), 34_124),
    "three workers, two steps": Variant(lambda: Queue(NO_TAIL._replace(workers=3, claims_each=1, ledger=2)), 33_863),
    "lost tail": Variant(lambda: Queue(TAIL), 38_631),
    "lost tail, three workers": Variant(
        lambda: Queue(TAIL._replace(workers=3, claims=3, claims_each=1, ledger=0)), 7_396
    ),
    "lost tail and clock, three workers": Variant(lambda: Queue(CLOCK._replace(workers=3, claims=3)), 8_365),
    "lost tail, two steps": Variant(lambda: Queue(TWO_STEPS), 11_652),
    "messages join and are withdrawn": Variant(lambda: Queue(JOINS), 7_512),
    "messages join and are withdrawn, lost tail": Variant(
        lambda: Queue(TAIL._replace(joins=True, claims_each=1)), 27_080
    ),
    "wake-ups of three sessions": Variant(Wakes, 2_155),
    "delivery: key, three entries": Variant(lambda: Delivery(KEY._replace(entries=3)), 31_810),
    # A call that leaves late repeats what is known already, also when it has another text under the same key.
    "delivery: key, late calls": Variant(lambda: Delivery(KEY._replace(late=True, texts=(BAD_MARKUP,))), 12_894),
    "delivery: key, lost tail": Variant(lambda: Delivery(KEY._replace(tail=True, troubles=1)), 78_435),
    "delivery: key, lost tail, deaths": Variant(
        lambda: Delivery(KEY._replace(tail=True, troubles=3, entries=1, claims=1)), 29_034
    ),
    "delivery: key, blocked": Variant(lambda: Delivery(KEY._replace(blocks=True, entries=1)), 10_143),
    "delivery: look-up, two tasks each": Variant(lambda: Delivery(LOOK_UP._replace(entries=3, claims_each=2)), 19_432),
    "delivery: look-up, three gateways": Variant(lambda: Delivery(LOOK_UP._replace(gateways=3, claims=3)), 15_469),
    "delivery: look-up, all texts": Variant(lambda: Delivery(LOOK_UP._replace(texts=(GOOD, BAD_MARKUP, BAD))), 16_604),
    "delivery: look-up, blocked": Variant(lambda: Delivery(LOOK_UP._replace(blocks=True)), 25_831),
    "delivery: key, talks": Variant(lambda: Delivery(KEY._replace(talks=True)), 13_345),
    "delivery: look-up, talks, blocked": Variant(
        lambda: Delivery(LOOK_UP._replace(talks=True, blocks=True, entries=1)), 4_350
    ),
    "delivery: look-up, two posts": Variant(lambda: Delivery(LOOK_UP._replace(posts=2)), 6_533),
    "delivery: look-up, two posts, all texts": Variant(
        lambda: Delivery(LOOK_UP._replace(posts=2, entries=1, texts=(GOOD, BAD_MARKUP, BAD))), 4_233
    ),
    "delivery: key, two posts, lost tail": Variant(
        lambda: Delivery(KEY._replace(posts=2, tail=True, troubles=1, entries=1)), 32_870
    ),
    "delivery: nothing, two posts": Variant(lambda: Delivery(NOTHING._replace(posts=2)), 35_175),
    "delivery: nothing": Variant(lambda: Delivery(NOTHING._replace(troubles=3)), 37_538),
    "delivery: nothing, late calls": Variant(
        lambda: Delivery(NOTHING._replace(late=True, entries=1, troubles=3)), 6_368
    ),
    "delivery: nothing, blocked": Variant(lambda: Delivery(NOTHING._replace(blocks=True, troubles=1)), 21_932),
}
"""What must hold."""

KNOWN: Final = {
    # Two faults at once, and the same process takes the session again: only a nonce for each lease would help.
    "lost tail and clock, same worker": Variant(lambda: Queue(CLOCK._replace(claims_each=2)), problem=STALE, steps=6),
    # A pause between the look at the clock and the first byte, longer than what is left of the lease. No lease can
    # call back what is on the wire; a platform without keys has no fence of its own.
    "delivery: look-up, late call": Variant(
        lambda: Delivery(LOOK_UP._replace(late=True)), problem=delivery_bugs.TWICE, steps=9
    ),
    "delivery: nothing, late call": Variant(
        lambda: Delivery(NOTHING._replace(late=True)), problem=delivery_bugs.OUT_OF_ORDER, steps=12
    ),
    "delivery: key, late call, blocked": Variant(
        lambda: Delivery(KEY._replace(late=True, blocks=True)), problem=delivery_bugs.OUT_OF_ORDER, steps=14
    ),
    # The mark went with the tail, so nobody knows that there is something to look up or to count.
    "delivery: look-up, lost tail": Variant(
        lambda: Delivery(LOOK_UP._replace(tail=True)), problem=delivery_bugs.TWICE, steps=9
    ),
    "delivery: nothing, lost tail": Variant(
        lambda: Delivery(NOTHING._replace(tail=True)), problem=delivery_bugs.UNCOUNTED, steps=9
    ),
    # A key is good for as long as the platform keeps it (minutes at some).
    "delivery: key, forgotten": Variant(
        lambda: Delivery(KEY._replace(forgets=True)), problem=delivery_bugs.TWICE, steps=9
    ),
}
"""What is known not to hold."""

MISTAKES: Final = {
    "LedgerWithGaps": Variant(lambda: LedgerWithGaps(TWO_STEPS), problem="the ledger has a hole", steps=6),
    **{
        name: Variant(partial(seeded.queue, seeded.sizes), problem=seeded.problem, steps=seeded.steps)
        for name, seeded in SEEDED.items()
    },
    **{
        f"no wake-up by {script}": Variant(
            partial(Wakes, silent=script), problem="due work waits and nobody was woken", steps=5
        )
        for script in ("ingest", "acquire", "commit", "release", "stop")
    },
    **{
        f"delivery: {name}": Variant(partial(bug.delivery, bug.sizes), problem=bug.problem, steps=bug.steps)
        for name, bug in delivery_bugs.SEEDED.items()
    },
}
"""Seeded bugs, each of which must be found."""


def run(variant: Variant) -> Explored:
    """Explore one world."""
    return explore(variant.model())
