"""Dice are fair and say what they rolled."""

from __future__ import annotations

import random
import re

from worker.agent.tools.tool import ToolContext
from worker.tools.roll_dice import RollDice, RollDiceArguments

CONTEXT = ToolContext(session="s", turn=1, call_id="c")


async def test_every_roll_is_shown_and_added() -> None:
    """Each die within its sides; one die needs no sum."""
    dice = RollDice(random.Random(7))
    for _ in range(50):
        found = re.fullmatch(r"3d6: (\d) \+ (\d) \+ (\d) = (\d+)", await dice.run(RollDiceArguments(3, 6), CONTEXT))
        assert found is not None
        *rolls, total = map(int, found.groups())
        assert all(1 <= roll <= 6 for roll in rolls)
        assert sum(rolls) == total
    assert re.fullmatch(r"1d2: [12]", await dice.run(RollDiceArguments(1, 2), CONTEXT))


async def test_all_sides_come_up() -> None:
    """A thousand throws leave none out, without any seed."""
    seen = {await RollDice().run(RollDiceArguments(), CONTEXT) for _ in range(1000)}
    assert seen == {f"1d6: {side}" for side in range(1, 7)}
