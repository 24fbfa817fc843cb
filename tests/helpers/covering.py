"""Few combinations of choices in which every three of them stand together."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Final

TOGETHER: Final = 3
CANDIDATES: Final = 20
"""More of them make fewer combinations, and take longer."""

Part = tuple[tuple[int, int], ...]
"""Some choices, each with one of its ways."""


def covering(ways: Sequence[int], seed: int) -> list[tuple[int, ...]]:
    """Combinations, each a way of every choice, which has so many `ways`. Any ways of any three choices are together in
    one of them at least."""
    chance = random.Random(seed)
    single = [[(choice, way) for way in range(many)] for choice, many in enumerate(ways)]
    missing = {part for three in itertools.combinations(single, TOGETHER) for part in itertools.product(*three)}
    made = []
    while missing:
        given = dict(min(missing))
        candidates = [
            tuple(given.get(choice, chance.randrange(many)) for choice, many in enumerate(ways))
            for _ in range(CANDIDATES)
        ]
        made.append(max(candidates, key=lambda one: len(_parts(one) & missing)))
        missing -= _parts(made[-1])
    return made


def _parts(combination: tuple[int, ...]) -> set[Part]:
    return set(itertools.combinations(enumerate(combination), TOGETHER))
