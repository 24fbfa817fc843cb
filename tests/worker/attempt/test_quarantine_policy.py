"""Which suspects share a process: the poison ends alone, everybody else is answered, new suspects never wait."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from worker.attempt.quarantine import (
    AFTER_CRASHES,
    ALONE_AFTER,
    NEW_SUSPECTS,
    PARTS,
    PLACES,
    Company,
    company_of,
    has_place,
    memory_left,
)

MEMBERS = st.lists(st.text("abcdef:/0123456789", min_size=1), min_size=1, max_size=100, unique=True)


def companies(members: list[str], crashes: int) -> dict[Company, list[str]]:
    """Who runs with whom after so many crashes."""
    found = defaultdict(list)
    for member in members:
        found[company_of(member, crashes)].append(member)
    return found


@given(MEMBERS)
def test_each_crash_divides_a_company_and_mixes_it_with_no_other(members: list[str]) -> None:
    """All together at first, then in PARTS each time, and in the end everybody alone."""
    assert list(companies(members, AFTER_CRASHES)) == [NEW_SUSPECTS]
    for crashes in range(AFTER_CRASHES, ALONE_AFTER - 1):
        for company in companies(members, crashes).values():
            parts = companies(company, crashes + 1)
            assert len(parts) <= PARTS
            assert all(
                set(part) <= set(company)
                for part in companies(members, crashes + 1).values()
                if set(part) & set(company)
            )
    assert all(len(company) == 1 for company in companies(members, ALONE_AFTER).values())
    assert companies(members, ALONE_AFTER) == companies(members, ALONE_AFTER + 5)


@given(st.sets(st.integers(AFTER_CRASHES, ALONE_AFTER + 2)), st.integers(0, 20))
def test_new_suspects_always_have_a_place(levels: set[int], alone: int) -> None:
    """Most crashes are not the doing of any turn. Other companies wait when all places are taken, and nobody enters a
    company that is not their own."""
    running = {company_of(f"m{level}", level) for level in levels} | {company_of(f"a{n}", 99) for n in range(alone)}
    assert has_place(NEW_SUSPECTS, running)
    assert all(has_place(company, running) for company in running)
    others = running - {NEW_SUSPECTS}
    assert has_place(company_of("another", 99), running) is (len(others) < PLACES)


@given(st.integers(1, 100), st.integers(0, 5), st.integers(1, 3), st.randoms(use_true_random=False))
def test_every_poison_ends_alone_and_all_others_are_answered(
    turns: int, poisons: int, workers: int, rng: random.Random
) -> None:
    """However the workers share them. A poison kills its child before anybody else in it is done; a child without one
    ends all its turns. No turn is in more crashes than it takes to divide the company down to one."""
    members = [f"turn:web:owner/c{number}" for number in range(turns)]
    poison = set(rng.sample(members, min(poisons, turns)))
    crashes, put_aside, answered = dict.fromkeys(members, AFTER_CRASHES), set[str](), set[str]()
    waiting = list(members)
    rounds = 0
    while waiting:
        rounds += 1
        assert rounds <= 4 * ALONE_AFTER + len(waiting)
        rng.shuffle(waiting)
        children: list[dict[Company, list[str]]] = [{} for _ in range(workers)]
        left = []
        for member in waiting:
            running, company = rng.choice(children), company_of(member, crashes[member])
            if has_place(company, running):
                running.setdefault(company, []).append(member)
            else:
                left.append(member)
        for inside in (inside for running in children for inside in running.values()):
            if not poison.intersection(inside):
                answered.update(inside)
            elif len(inside) == 1:
                put_aside.update(inside)
            else:
                left.extend(inside)
                for member in inside:
                    crashes[member] += 1
        waiting = left
    assert put_aside == poison
    assert answered == set(members) - poison
    assert max(crashes.values()) <= ALONE_AFTER


def test_what_the_memory_limit_of_a_worker_leaves_is_read_from_its_cgroup(tmp_path: Path) -> None:
    """Cached files are given up when memory is needed. Without a limit, or elsewhere than on Linux, there is no end."""
    assert memory_left(tmp_path) == float("inf")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/shoal/worker\n")
    group = tmp_path / "sys/fs/cgroup/shoal/worker"
    group.mkdir(parents=True)
    for name, text in {"current": "90000", "max": "100000", "stat": "anon 1\ninactive_file 5000\n"}.items():
        (group / f"memory.{name}").write_text(text)
    assert memory_left(tmp_path) == 15_000
    (group / "memory.max").write_text("max\n")
    assert memory_left(tmp_path) == float("inf")
