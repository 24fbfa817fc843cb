"""A script that holds the server up is ended by the first process that is told BUSY."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.errors import RedisAway
from shared.store.client.connection import ReplyError
from shared.store.client.redis_client import RedisClient
from shared.tasks import cancel_all
from tests.helpers.wait import eventually

ENDLESS = "while true do end"


@pytest.fixture
async def quick(client: RedisClient) -> AsyncIterator[RedisClient]:
    """A server that says BUSY after a twentieth of a second."""
    [_, before] = await client.command("CONFIG", "GET", "busy-reply-threshold")
    await client.command("CONFIG", "SET", "busy-reply-threshold", 50)
    yield client
    await client.command("CONFIG", "SET", "busy-reply-threshold", before)


async def test_an_endless_script_is_ended_and_everybody_goes_on(quick: RedisClient, redis_url: str) -> None:
    """Its sender is told that Redis cannot serve now, as is everybody who asked meanwhile."""
    attacker = RedisClient(redis_url, timeout_s=30)
    frozen = asyncio.create_task(attacker.command("EVAL", ENDLESS, 0))

    async def served() -> bool:
        try:
            return bool(await quick.command("GET", "x") is None and frozen.done())
        except ReplyError:
            raise
        except RedisAway:
            return False

    try:
        await eventually(served, within_s=10)
        with pytest.raises(RedisAway, match="cannot serve now") as raised:
            await frozen
        assert not isinstance(raised.value, ReplyError), "a script of ours would be sent again"
    finally:
        await cancel_all([frozen])
        await attacker.close()


async def test_who_may_not_end_it_says_that_redis_is_away(quick: RedisClient, redis_url: str) -> None:
    """An older list of users: nothing else changes for the process."""
    await quick.command("ACL", "SETUSER", "old", "on", "nopass", "~*", "+@all", "-script")
    old = RedisClient(redis_url.replace("redis://", "redis://old:x@"), timeout_s=30)
    attacker = RedisClient(redis_url, timeout_s=30)
    await old.command("PING")
    frozen = asyncio.create_task(attacker.command("EVAL", ENDLESS, 0))

    async def refused() -> bool:
        try:
            await old.command("GET", "x")
        except RedisAway as exc:
            return "BUSY" in str(exc) and not frozen.done()
        return False

    async def ended() -> bool:
        try:
            await quick.command("ACL", "DELUSER", "old")
        except RedisAway:
            return False
        return True

    try:
        await eventually(refused, within_s=10)
    finally:
        await eventually(ended, within_s=10)
        await cancel_all([frozen])
        await attacker.close()
        await old.close()
