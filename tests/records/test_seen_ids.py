"""Ids of messages in a rolling update: a release that knows only one hash a day, beside one that splits a full one."""

from __future__ import annotations

from typing import Final

import pytest

from shared.messages.inbound import InboundMessage
from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import DAY_MS, Inbox
from tests.helpers.build import message
from tests.helpers.schedules import server_ms

FULL: Final = 50_000
FILL: Final = "for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], 'other/' .. i, '1:0') end"


def one(id: str) -> InboundMessage:
    return message(channel="telegram", chat="7", id=id)


async def day(client: RedisClient, days: int = 0) -> str:
    return f"{keys.seen('telegram')}{await server_ms(client) // DAY_MS - days}"


async def previous_knows(client: RedisClient, id: str) -> bool:
    """Look an id up as the release before did: in the hashes of three days."""
    found = [await client.command("HGET", await day(client, days), f"7/{id}") for days in range(3)]
    return any(found)


@pytest.mark.parametrize("begun", ["today", "yesterday"])
async def test_a_day_that_the_release_before_may_still_read_is_not_split(client: RedisClient, begun: str) -> None:
    """It began today's hash, or yesterday's, so that it may run still: it knows what a new process accepted, and the
    other way round, however many ids there are."""
    if begun == "yesterday":
        await client.command("HSET", await day(client, 1), "7/old", "1:0")
        await Inbox(client).ingest(one("first"))
    else:
        await client.command("HSET", await day(client), "7/old", "1:0")
    await client.command("EVAL", FILL, 1, await day(client), FULL)
    assert not (await Inbox(client).ingest(one("m1"))).duplicate
    assert await previous_knows(client, "m1")
    await client.command("HSET", await day(client), "7/m2", "9:0")
    assert (await Inbox(client).ingest(one("m2"))).duplicate
    assert (await Inbox(client).ingest(one("old"))).duplicate


async def test_the_second_day_after_the_update_is_split(client: RedisClient) -> None:
    """Up to then nothing was: that day's hash was begun by this release, as was the one of the day before."""
    await client.command("HSET", await day(client, 1), ":split", "0")
    await Inbox(client).ingest(one("m1"))
    await client.command("EVAL", FILL, 1, await day(client), FULL)
    await Inbox(client).ingest(one("m2"))
    assert await previous_knows(client, "m1"), "a fleet that goes back knows the first ids of a day"
    assert len(await client.command("KEYS", f"{await day(client)}:*")) == 1
    # A process that went back to the release before wrote into the full hash.
    await client.command("HSET", await day(client), "7/m3", "9:0")
    assert [(await Inbox(client).ingest(one(id))).duplicate for id in ("m1", "m2", "m3")] == [True, True, True]
