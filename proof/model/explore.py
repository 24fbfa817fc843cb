"""Every reachable state of a model, breadth first, and the shortest way to the first bad one. Knows no protocol."""

from __future__ import annotations

import time
from array import array
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Model(Protocol[S]):
    """What can be explored."""

    def start(self) -> S:
        """The first state."""
        ...

    def steps(self, state: S) -> Iterator[tuple[str, S]]:
        """Everything that can happen next, each with its name."""
        ...

    def canonical(self, state: S) -> S:
        """The one state that stands for all that differ from `state` in names only."""
        ...

    def problem(self, state: S) -> str:
        """Which invariant `state` breaks, '' if none."""
        ...

    def settled(self, state: S) -> bool:
        """Whether all is done that was asked for: a state like this must stay within reach of every other."""
        ...

    def show(self, state: S) -> str:
        """One line for a person."""
        ...


class Explored(NamedTuple):
    """What was found. `problem` is '' when every state is good; `trace` leads to the first that is not."""

    states: int
    transitions: int
    depth: int
    seconds: float
    problem: str
    trace: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One line: the problem and how far away it is, or that there is none."""
        return f"{self.problem} (after {len(self.trace)} steps)" if self.problem else "no violation"

    def story(self) -> str:
        """The trace as text, one step a line."""
        return "\n".join([self.verdict, *(f"{i:3}. {step}" for i, step in enumerate(self.trace, 1))])


class _Search(Generic[S]):
    """One breadth-first walk. States are numbered as they are found; edges are kept for the way back."""

    def __init__(self, model: Model[S]) -> None:
        first = model.canonical(model.start())
        self.model = model
        self.states = [first]
        self.number = {first: 0}
        self.parents = array("q", [-1])
        self.sources, self.targets = array("q"), array("q")
        self.depth = 0

    def walk(self) -> tuple[str, int]:
        """Visit everything; the first problem and its state's number, or '' and -1."""
        model, number, states = self.model, self.number, self.states
        problem = model.problem(states[0])
        if problem:
            return problem, 0
        here, level_ends = 0, 1
        while here < len(states):
            if here == level_ends:
                self.depth += 1
                level_ends = len(states)
            for _, after in model.steps(states[here]):
                there = number.get(after)
                if there is None:
                    after = model.canonical(after)
                    there = number.get(after)
                if there is None:
                    there = number[after] = len(states)
                    states.append(after)
                    self.parents.append(here)
                    problem = model.problem(after)
                    if problem:
                        return problem, there
                self.sources.append(here)
                self.targets.append(there)
            here += 1
        return "", -1

    def stuck(self) -> int:
        """The first state from which no settled one can be reached, -1 if there is none."""
        count = len(self.states)
        first = array("q", bytes(8 * (count + 1)))  # where the predecessors of each state begin
        for target in self.targets:
            first[target + 1] += 1
        for i in range(count):
            first[i + 1] += first[i]
        predecessors, fill = array("q", bytes(8 * len(self.targets))), array("q", first)
        for source, target in zip(self.sources, self.targets, strict=True):
            predecessors[fill[target]] = source
            fill[target] += 1
        reaches = bytearray(self.model.settled(state) for state in self.states)
        open_ = [i for i in range(count) if reaches[i]]
        while open_:
            here = open_.pop()
            for source in predecessors[first[here] : first[here + 1]]:
                if not reaches[source]:
                    reaches[source] = 1
                    open_.append(source)
        return reaches.find(0)

    def trace(self, number: int) -> tuple[str, ...]:
        """The way to a state, walked again with the names that canonical() takes away."""
        path = []
        while number > 0:
            path.append(self.states[number])
            number = self.parents[number]
        here, described = self.model.start(), []
        for wanted in reversed(path):
            step, here = next(
                (step, after) for step, after in self.model.steps(here) if self.model.canonical(after) == wanted
            )
            described.append(f"{step:42} {self.model.show(here)}")
        return tuple(described)


def explore(model: Model[S]) -> Explored:
    """Visit every state of `model`; stop at the first that breaks an invariant. The whole is kept in memory."""
    started = time.perf_counter()
    search = _Search(model)
    problem, bad = search.walk()
    if not problem:
        bad = search.stuck()
        problem = "" if bad < 0 else "stuck: nothing that can happen leads to everything answered"
    return Explored(
        states=len(search.states),
        transitions=len(search.targets),
        depth=search.depth,
        seconds=time.perf_counter() - started,
        problem=problem,
        trace=search.trace(bad) if problem else (),
    )
