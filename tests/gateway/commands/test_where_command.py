"""`/where`: where a message is that has no answer, and whether the last answer has arrived."""

from __future__ import annotations

import pytest

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from shared.ids import nonce
from shared.messages.outbound import OutboundMessage
from shared.settings import Settings
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.fleet.presence import Presence, announce
from shared.store.fleet.provider_limits import CallAllowed, LimitRules, ProviderLimits
from shared.store.turns.queue import LeaseQueue
from tests.helpers.build import message
from tests.helpers.schedules import answer_all


@pytest.fixture
def ingress(client: RedisClient) -> Ingress:
    return Ingress(client, build_commands(Settings(), client))


async def where(client: RedisClient, ingress: Ingress, channel: str = "web", *, command: str = "/where") -> str:
    """Say the command; its answer is the newest line."""
    asked = message(command, id=nonce(), channel=channel)
    await ingress.ingest(asked, show=None, principal="owner" if channel == "web" else None)
    line = (await Outbox(client).read_after(asked.session, after=0))[-1].line
    assert isinstance(line, OutboundMessage)
    return line.content


async def test_a_message_is_followed_from_the_queue_to_its_answer(client: RedisClient, ingress: Ingress) -> None:
    """With how many wait behind it, and what it waits for."""
    assert await where(client, ingress) == "Everything that you wrote is answered."
    for _ in range(2):
        await ingress.ingest(message(id=nonce()), show=None, principal="owner")
    assert await where(client, ingress) == ("Your message waits; no worker is running to answer it; 1 more waits.")
    queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await queue.acquire(1)
    assert await where(client, ingress) == "Working on your message; 1 more waits."
    await queue.release(claim, count="away")
    assert "waits for the model, which cannot be reached" in await where(client, ingress)
    await answer_all(client)
    assert await where(client, ingress) == "Everything that you wrote is answered."


async def test_while_the_fleet_asks_nobody_it_says_why_and_until_when(client: RedisClient, ingress: Ingress) -> None:
    """Of the model of this chat; another one that is closed is no matter."""
    for name, way in (("demo", "openai:01"), ("other", "openai:02")):
        ways = {name: way}
        one = Presence(kind="worker", name=name, host="h", pid=1, started_at=0, version="0", provider_routes=ways)
        await announce(client, one)
    await ingress.ingest(message(id=nonce()), show=None, principal="owner")
    queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await queue.acquire(1)
    await queue.release(claim, count="away")
    limits, rules = ProviderLimits(client), LimitRules(breaker_after=1)
    for way, reads in (
        ("openai:02", "cannot be reached"),
        ("openai:01", "the model is overloaded; trying again in 5 s"),
    ):
        for session in ("a", "b"):
            entered = await limits.enter(way, rules, session=session)
            assert isinstance(entered, CallAllowed)
            await limits.report(way, rules, entered, "overloaded", session=session)
        assert reads in await where(client, ingress)
        assert reads in await where(client, ingress, command="/status")


async def test_on_a_platform_it_knows_whether_the_answer_arrived(client: RedisClient, ingress: Ingress) -> None:
    """Lines that the platform took have left the log."""
    session = message(channel="telegram").session
    await ingress.ingest(message(id=nonce(), channel="telegram"))
    await answer_all(client)
    assert await where(client, ingress, "telegram") == (
        "Everything that you wrote is answered; 1 message of mine could not be delivered yet. I keep trying."
    )
    await client.command("DEL", keys.outbox(session))
    assert await where(client, ingress, "telegram") == (
        "Everything that you wrote is answered, and the answers are delivered."
    )
