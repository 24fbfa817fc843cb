"""What each chat used today, on a real server."""

from __future__ import annotations

import asyncio

from shared.store import keys
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.spending import Spending

CHAT = "web:owner/a"


async def test_what_a_chat_uses_adds_up_without_error(client: RedisClient) -> None:
    """Tokens and money, from many workers at once; other chats have their own tally."""
    spending = Spending(client)
    await asyncio.gather(*(spending.add(CHAT, 7, 0.000_1) for _ in range(100)))
    spent = await spending.read(CHAT)
    assert (spent.tokens, spent.usd, spent.warn) == (700, 0.01, False)
    assert (await spending.read("web:owner/b")).tokens == 0


async def test_a_day_is_the_servers_and_is_kept_for_two(client: RedisClient) -> None:
    """Under the key that the rest of the store knows; reading makes none."""
    seconds, _ = await client.command("TIME")
    spending = Spending(client)
    await spending.read(CHAT)
    assert await client.command("KEYS", "*") == []
    spent = await spending.add(CHAT, 1, 0.0)
    assert spent.day - int(seconds) // 86_400 in (0, 1)
    assert await client.command("KEYS", "*") == [keys.spent(CHAT, spent.day).encode()]
    assert 86_400 < await client.command("TTL", keys.spent(CHAT, spent.day)) <= 2 * 86_400


async def test_yesterday_is_another_tally(client: RedisClient) -> None:
    """At 00:00 UTC every chat begins with nothing."""
    spending = Spending(client)
    spent = await spending.add(CHAT, 5, 0.5)
    await client.command("RENAME", keys.spent(CHAT, spent.day), keys.spent(CHAT, spent.day - 1))
    assert (await spending.read(CHAT)).tokens == 0


async def test_one_call_of_a_day_warns(client: RedisClient) -> None:
    """The first that reaches either number, whichever worker made it."""
    spending = Spending(client)
    warned = [(await spending.add(CHAT, 30, 0.0, warn_tokens=80)).warn for _ in range(5)]
    assert warned == [False, False, True, False, False]
    warned = [(await spending.add("web:owner/b", 1, 0.3, warn_tokens=80, warn_usd=0.5)).warn for _ in range(3)]
    assert warned == [False, True, False]
    assert not (await spending.add("web:owner/c", 10**9, 1e6)).warn, "nothing to warn of without a number"


async def test_a_full_store_still_counts(client: RedisClient) -> None:
    """A turn that ends while memory is short is not free."""
    await client.command("CONFIG", "SET", "maxmemory", "1")
    try:
        assert (await Spending(client).add(CHAT, 1, 0.0)).tokens == 1
    finally:
        await client.command("CONFIG", "SET", "maxmemory", "0")
