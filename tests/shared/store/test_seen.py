"""What is known of messages that came before, and of the forms that one has had."""

from __future__ import annotations

import msgspec

from shared.messages.inbound import InboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.sessions.erase import erase
from shared.store.turns.inbox import DAY_MS, Inbox
from shared.store.turns.known_messages import SeenMessages
from tests.helpers.build import message
from tests.helpers.clock import HandClock
from tests.helpers.schedules import server_ms


def form(id: str, chat: str = "7") -> InboundMessage:
    return message(chat=chat, channel="telegram", id=id)


async def test_a_message_that_came_is_known(client: RedisClient) -> None:
    """By chat and id, also at a border of days and for as long as ids are remembered."""
    seen = SeenMessages(client)
    assert not await seen.knows(form("m1"))
    await Inbox(client).ingest(form("m1"))
    assert await seen.knows(form("m1"))
    assert not await seen.knows(form("m1", chat="8"))
    now = await server_ms(client)
    for days, known in ((-1, True), (2, True), (3, False)):
        assert await SeenMessages(client, HandClock((now + days * DAY_MS) / 1000)).knows(form("m1")) is known


async def test_forms_follow_each_other(client: RedisClient) -> None:
    """Each takes the place of the newest before; one that is told again has the same answer as at first."""
    seen = SeenMessages(client)
    assert await seen.newest_form(form("m1")) == "m1"
    assert await seen.new_form(form("e1"), "m1") == "m1"
    assert await seen.new_form(form("e1"), "m1") == "m1"
    assert await seen.new_form(form("e2"), "m1") == "e1"
    assert await seen.new_form(form("e2"), "m1") == "e1"
    assert await seen.newest_form(form("m1")) == "e2"
    assert await seen.newest_form(form("m1", chat="8")) == "m1"
    assert await seen.newest_form(msgspec.structs.replace(form("m1"), channel="slack")) == "m1"


async def test_forms_are_forgotten_with_the_ids_and_with_their_session(client: RedisClient) -> None:
    """Nothing of its own stays."""
    await SeenMessages(client).new_form(form("e1"), "m1")
    [key] = await client.command("KEYS", keys.seen("telegram") + "*")
    assert 0 < await client.command("TTL", key) <= 3 * 86_400
    await erase(client, form("m1").session)
    assert await SeenMessages(client).newest_form(form("m1")) == "m1"
