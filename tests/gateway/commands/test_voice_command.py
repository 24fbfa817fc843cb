"""`/voice`: a choice of the chat, which the worker reads with the turn."""

from __future__ import annotations

import pytest

from gateway.commands.registry import build_commands
from gateway.ingress.ingest import Ingress
from shared.ids import nonce
from shared.messages.inbound import InboundMessage
from shared.messages.outbound import OutboundMessage
from shared.settings import Settings
from shared.settings.sections.language_models import VoiceSettings
from shared.store.client.redis_client import RedisClient
from shared.store.delivery.outbox import Outbox
from shared.store.turns.queue import LeaseQueue


@pytest.fixture
def ingress(client: RedisClient) -> Ingress:
    return Ingress(client, build_commands(Settings(voice=VoiceSettings(speaker="tts")), client))


async def say(ingress: Ingress, text: str) -> None:
    sent = InboundMessage(channel="web", chat_id="owner/a", sender_id="owner", id=nonce(), content=text, timestamp=1)
    await ingress.ingest(sent, show=None, principal="owner")


async def answers(client: RedisClient) -> list[str]:
    found = await Outbox(client).read_after("web:owner/a", after=0)
    return [one.line.content for one in found if isinstance(one.line, OutboundMessage)]


async def speaks(client: RedisClient, ingress: Ingress) -> bool:
    """Whether the next turn answers recordings by recordings."""
    await say(ingress, "hello")
    queue = LeaseQueue(client, "turns", owner=nonce(), lease_s=30)
    [claim] = await queue.acquire(1)
    assert claim.turn is not None
    await queue.release(claim)
    return claim.turn.speaks


async def test_a_chat_chooses_and_goes_back(client: RedisClient, ingress: Ingress) -> None:
    assert not await speaks(client, ingress)
    for text in ("/voice", "/voice ON", "/voice"):
        await say(ingress, text)
    assert await speaks(client, ingress)
    for text in ("/voice off", "/voice", "/voice loud"):
        await say(ingress, text)
    assert not await speaks(client, ingress)
    found = await answers(client)
    assert [("with a recording" in one, "in writing" in one) for one in found if one.startswith("When")] == [
        (False, True), (False, False), (True, False), (False, True),
    ]  # fmt: skip
    assert found[-1] == "I know `/voice on` and `/voice off`."


def test_it_is_there_only_with_a_speaker(client: RedisClient) -> None:
    assert "voice" not in build_commands(Settings(), client)
    assert "voice" in build_commands(Settings(voice=VoiceSettings(speaker="tts")), client)
