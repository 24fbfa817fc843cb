"""A thousand messages at once, each told twice: to two gateways at the same moment."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest

from gateway.platform.protocol import HookRequest, Rate
from shared.metrics import MESSAGES_ACCEPTED, MESSAGES_DUPLICATE
from tests.contracts.channels.bench import PEOPLE
from tests.contracts.channels.echo import Turn
from tests.contracts.channels.pace import check_pace
from tests.contracts.channels.stage import OWN_RATES, Replica, Stage
from tests.helpers.wait import eventually

pytestmark = [pytest.mark.modes("webhook"), pytest.mark.timeout(300)]

EACH: Final = 1000 // PEOPLE
ANSWERED_WITHIN_S: Final = 2.0
"""So long a platform may need, by its own limits, for the replies that are made."""

PATIENCE_S: Final = 120.0
"""Five seconds, on a machine that has time."""


async def test_a_thousand_messages_delivered_to_two_gateways_at_once_are_a_thousand_turns(stage: Stage) -> None:
    """PEOPLE people write EACH message behind the other, all of them at the same time. Each is one turn, none is lost,
    a chat's are in order, and so are its replies; the platform gets them no faster than it takes them. As many are
    answered as its own limits let through in some seconds, the last ones of each chat; the others say nothing."""
    replicas = [await stage.gateway(OWN_RATES), await stage.gateway(OWN_RATES)]
    rates = replicas[0].channel.abilities.rates
    counted = [one.labels(stage.bench.name) for one in (MESSAGES_ACCEPTED, MESSAGES_DUPLICATE)]
    before = [one._value.get() for one in counted]
    chats = [stage.bench.chat(number) for number in range(PEOPLE)]
    sent_texts = {chat: [f"{number} of {chat}" for number in range(EACH)] for chat in chats}
    for texts in sent_texts.values():
        stage.worker.scripts |= dict.fromkeys(texts[: EACH - answered(rates)], silently)
    calls = await asyncio.gather(*(write(stage, chat, sent_texts[chat], replicas) for chat in chats))
    await eventually(lambda: len(stage.worker.received) >= PEOPLE * EACH, within_s=PATIENCE_S, what="all turns")
    for chat in chats:
        replies = [f"echo: {text}" for text in sent_texts[chat][EACH - answered(rates) :]]
        await stage.sees(chat, *replies, within_s=PATIENCE_S)
    await stage.quiet()
    assert Counter(message.content for message in stage.worker.received) == Counter(
        text for texts in sent_texts.values() for text in texts
    )
    received = [message.content for message in stage.worker.received]
    for texts in sent_texts.values():
        ours = set(texts)
        assert [text for text in received if text in ours] == texts
    accepted, duplicate = (one._value.get() - was for one, was in zip(counted, before, strict=True))
    assert (accepted, duplicate) == (PEOPLE * EACH, sum(calls) - PEOPLE * EACH)
    check_pace(stage.bench.calls(), rates, is_group=stage.is_group)


def answered(rates: Sequence[Rate]) -> int:
    """How many messages of each person are answered."""
    room = [EACH]
    for rate in rates:
        many = rate.burst + rate.per_s * ANSWERED_WITHIN_S
        room += [int(many / PEOPLE)] if rate.scope == "bot" else [int(many)] if rate.scope == "chat" else []
    return max(1, min(room))


async def silently(turn: Turn) -> str:
    """A turn with nothing to say."""
    return ""


async def write(stage: Stage, chat: str, texts: Sequence[str], replicas: Sequence[Replica]) -> int:
    """One message behind the other, as a platform tells them; how many calls were answered well."""
    well = 0
    for text in texts:
        request = stage.bench.hook(stage.message(chat, text))
        well += sum(await asyncio.gather(*(tell(stage, request, replica) for replica in replicas)))
    return well


async def tell(stage: Stage, request: HookRequest, replica: Replica) -> int:
    """Until it is told that all is well. Nothing else may be answered than that it is too much just now; or nothing,
    when the connection had been left open for long and was closed at that moment."""

    async def actions() -> bool:
        status, _ = await stage.call(request, replica)
        if status not in (0, 200, 503):
            raise RuntimeError(f"a good call was answered {status}")
        return status == 200

    await eventually(actions, within_s=PATIENCE_S, what="the webhook")
    return 1
