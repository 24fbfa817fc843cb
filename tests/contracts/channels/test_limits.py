"""What a platform takes in a time is counted for all gateways together: new messages, edits, and both."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final

import pytest

from tests.contracts.channels.live import Live
from tests.contracts.channels.pace import check_pace
from tests.contracts.channels.stage import Stage

STREAMED: Final = 4
EDITS: Final = 5


async def test_the_rates_of_the_platform_are_kept(played: Stage) -> None:
    """By two gateways in one chat: no window has more calls than the platform takes."""
    await played.gateway()
    rates = played.replicas[0].channel.abilities.rates
    many = min([20, *(rate.burst + 3 for rate in rates if rate.scope == "chat")])
    chat = played.bench.chat(0)
    played.script("count", *(f"number {number}" for number in range(many)))
    await played.say(chat, "count")
    await played.sees(chat, *(f"number {number}" for number in range(many)))
    check_pace(played.bench.calls(), rates, is_group=played.is_group)


async def test_two_gateways_that_stream_many_chats_keep_the_rates_of_edits_too(played: Stage) -> None:
    """However fast the models are. The replies come when their turns end, all of them, while nothing of a turn is
    left unfinished."""
    await played.gateway()
    abilities = played.replicas[0].channel.abilities
    if not abilities.edit_every_s:
        pytest.skip(f"{played.bench.name} has no edits")
    lives = [Live(played, played.bench.chat(number), says=f"go {number}") for number in range(STREAMED)]
    turns = await asyncio.gather(*(live.begin() for live in lives))

    words = count(1)

    async def pressed() -> bool:
        word = next(words)
        for turn in turns:
            await turn.stream(f"This is word {word}", full=True)
        return sum(call.kind == "edit" for call in played.bench.calls()) >= EDITS

    await played.until(pressed, f"{EDITS} edits")
    for number, live in enumerate(lives):
        live.end(f"That was number {number}.")
    for number, live in enumerate(lives):
        await played.sees(live.chat, f"That was number {number}.")
    check_pace(played.bench.calls(), abilities.rates, is_group=played.is_group)
