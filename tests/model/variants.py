"""The worlds that are explored, and how many states each has: another number means that the model has changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from tests.model.bugs import CLOCK, SEEDED, STALE, LedgerWithGaps
from tests.model.explore import Explored, Model, explore
from tests.model.protocol import Queue, Sizes
from tests.model.wakes import Wakes

NO_TAIL: Final = Sizes()
TAIL: Final = Sizes(claims=2, errors=1, crashes=0, stops=False, tail=True)
TWO_STEPS: Final = TAIL._replace(messages=1, ledger=2)


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
    "wake-ups of three sessions": Variant(Wakes, 2_155),
}
"""What must hold."""

KNOWN: Final = {
    # Two faults at once, and the same process takes the session again: only a nonce for each lease would help.
    "lost tail and clock, same worker": Variant(lambda: Queue(CLOCK._replace(claims_each=2)), problem=STALE, steps=6),
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
}
"""Seeded bugs, each of which must be found."""


def run(variant: Variant) -> Explored:
    """Explore one world."""
    return explore(variant.model())
