"""What a platform takes in a time is counted for all gateways together: new messages, edits, and both."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final

import pytest

from tests.contracts.channels.live import Live
from tests.contracts.channels.pace import check_pace
from tests.contracts.channels.stage import OWN_RATES, Stage

pytestmark = pytest.mark.way_out

STREAMED: Final = 4
EDITS: Final = 5


async def test_the_rates_of_the_platform_are_kept(stage: Stage) -> None:
    """By two gateways in one chat: no window has more calls than the platform takes."""
    await stage.gateway(OWN_RATES)
    await stage.gateway(OWN_RATES)
    rates = stage.replicas[0].channel.abilities.rates
    many = min([20, *(rate.burst + 3 for rate in rates if rate.scope == "chat")])
    chat = stage.bench.chat(0)
    stage.script("count", *(f"number {number}" for number in range(many)))
    await stage.say(chat, "count")
    await stage.sees(chat, *(f"number {number}" for number in range(many)))
    check_pace(stage.bench.calls(), rates, is_group=stage.is_group)


async def test_two_gateways_that_stream_many_chats_keep_the_rates_of_edits_too(stage: Stage) -> None:
    """However fast the models are. The replies come when their turns end, all of them, while nothing of a turn is
    left unfinished."""
    await stage.gateway(OWN_RATES)
    await stage.gateway(OWN_RATES)
    abilities = stage.replicas[0].channel.abilities
    if not abilities.edit_every_s:
        pytest.skip(f"{stage.bench.name} has no edits")
    lives = [Live(stage, stage.bench.chat(number), says=f"go {number}") for number in range(STREAMED)]
    turns = await asyncio.gather(*(live.begin() for live in lives))

    letters = count(1)

    async def pressed() -> bool:
        text = "It grows: " + "x" * next(letters)  # one that does not is not shown
        for turn in turns:
            await turn.stream(text, full=True)
        return sum(call.kind == "edit" for call in stage.bench.calls()) >= EDITS

    await stage.until(pressed, f"{EDITS} edits")
    for number, live in enumerate(lives):
        live.end(f"That was number {number}.")
    for number, live in enumerate(lives):
        await stage.sees(live.chat, f"That was number {number}.")
    check_pace(stage.bench.calls(), abilities.rates, is_group=stage.is_group)
