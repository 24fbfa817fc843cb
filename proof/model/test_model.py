"""The protocols explored: what holds in every reachable state, and that the mistakes one makes are found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proof.model.explore import explore
from proof.model.variants import KNOWN, MISTAKES, SOUND, run

SMALL = [name for name, variant in SOUND.items() if variant.states < 10_500]
"""A third of the variants. `python -m proof.model` explores the others too, which takes minutes."""


def test_most_kinds_of_trouble_are_explored_here() -> None:
    """Every protocol has a small variant."""
    for part in ("lost tail", "messages join", "delivery: key", "delivery: look-up", "delivery: nothing"):
        assert any(part in name for name in SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_the_protocol_holds_in_every_reachable_state(name: str) -> None:
    """No message lost or answered twice, order kept, stale writes refused, nothing stuck, nothing left behind."""
    assert SOUND[name].unexpected(run(SOUND[name])) == ""


@pytest.mark.parametrize("name", MISTAKES)
def test_a_seeded_bug_is_found_with_a_short_trace(name: str) -> None:
    """A model that finds no mistakes proves nothing."""
    assert MISTAKES[name].unexpected(run(MISTAKES[name])) == ""


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_limit_is_where_it_is_documented(name: str) -> None:
    """What does not hold is written down with its trace, and noticed when it changes."""
    assert KNOWN[name].unexpected(run(KNOWN[name])) == ""


class Clockwork:
    """Counts to five; from `trap` there is no way out."""

    def __init__(self, *, bad: int = -1, trap: int = -1) -> None:
        self._bad = bad
        self._trap = trap

    def start(self) -> int:
        return 0

    def steps(self, state: int) -> Iterator[tuple[str, int]]:
        if state < 5 and state != self._trap:
            yield "one", state + 1
            yield "two", min(state + 2, 5)

    def canonical(self, state: int) -> int:
        return state

    def problem(self, state: int) -> str:
        return "bad" if state == self._bad else ""

    def settled(self, state: int) -> bool:
        return state == 5

    def show(self, state: int) -> str:
        return f"at {state}"


def test_the_search_visits_each_state_once() -> None:
    """States, transitions and depth are what one counts by hand."""
    found = explore(Clockwork())
    assert (found.states, found.transitions, found.depth, found.problem, found.trace) == (6, 10, 3, "", ())


def test_the_search_tells_the_shortest_way_to_a_bad_state() -> None:
    """Breadth first: the first trace that is found is the shortest there is."""
    found = explore(Clockwork(bad=4))
    assert found.problem == "bad"
    assert [step.split() for step in found.trace] == [["two", "at", "2"], ["two", "at", "4"]]


def test_the_search_finds_a_state_without_a_way_to_the_end() -> None:
    """Liveness: from every state one must be able to reach the state where all is done."""
    found = explore(Clockwork(trap=3))
    assert found.problem.startswith("stuck")
    assert len(found.trace) == 2
    assert found.trace[-1].endswith("at 3")
