"""Dice; with two sides, a coin."""

from __future__ import annotations

import random
from typing import Annotated

from msgspec import Meta, Struct

from worker.agent.tools.tool import Safety, ToolContext


class RollDiceArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of dice, and their sides."""

    count: Annotated[int, Meta(ge=1, le=20, description="How many dice.")] = 1
    sides: Annotated[int, Meta(ge=2, le=1000, description="How many sides each has.")] = 6


class RollDice:
    """Returns `2d6: 3 + 5 = 8`."""

    name = "roll_dice"
    description = "Roll dice, or pick a random number from 1 to `sides`. Use it whenever chance is asked for."
    parameters = RollDiceArguments
    safety: Safety = "read_only"
    timeout_s = 5.0

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.SystemRandom()

    async def run(self, arguments: RollDiceArguments, context: ToolContext) -> str:
        rolls = [self._rng.randint(1, arguments.sides) for _ in range(arguments.count)]
        shown = " + ".join(map(str, rolls))
        total = f" = {sum(rolls)}" if len(rolls) > 1 else ""
        return f"{arguments.count}d{arguments.sides}: {shown}{total}"
