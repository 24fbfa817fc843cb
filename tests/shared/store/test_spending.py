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
    names = {name.decode() for name in await client.command("KEYS", "*")}
    assert names == {keys.spent(CHAT, spent.day), keys.used("owner")}
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


async def test_the_days_of_a_person_add_up_over_their_chats(client: RedisClient) -> None:
    """On the page and over the API; another person has their own. Each kept for two months, of which the first call of
    a day forgets what is older."""
    spending = Spending(client)
    first = await spending.add(CHAT, 5, 0.5)
    await client.command("HSET", keys.used("owner"), f"{first.day - 63}:t", 9, f"{first.day - 62}:t", 8)
    await client.command("HDEL", keys.used("owner"), f"{first.day}:t", f"{first.day}:m")
    for session in (CHAT, "web:owner/b", "api:owner/~-1", "api:owner/named"):
        await spending.add(session, 10, 0.25)
    await spending.add("web:ann/a", 7, 0.0)
    used = await spending.of_person("owner")
    days = [(one.day, one.tokens, one.usd) for one in used.days]
    assert days == [(first.day - 62, 8, 0.0), (used.today, 40, 1.0)]
    assert [one.tokens for one in (await spending.of_person("ann")).days] == [7]
    assert (await spending.of_person("nobody")).days == ()
    assert 61 * 86_400 < await client.command("TTL", keys.used("owner")) <= 62 * 86_400
    assert [one.tokens for one in await spending.read_many([CHAT, "web:owner/z", "web:owner/b"])] == [15, 0, 10]


async def test_broken_days_of_a_person_harm_no_turn(client: RedisClient) -> None:
    """They are for display; the budget of the chat is counted as ever."""
    await client.command("SET", keys.used("owner"), "broken")
    assert (await Spending(client).add(CHAT, 5, 0.0)).tokens == 5
    assert (await Spending(client).read(CHAT)).tokens == 5


async def test_a_full_store_still_counts(client: RedisClient) -> None:
    """A turn that ends while memory is short is not free."""
    await client.command("CONFIG", "SET", "maxmemory", "1")
    try:
        assert (await Spending(client).add(CHAT, 1, 0.0)).tokens == 1
    finally:
        await client.command("CONFIG", "SET", "maxmemory", "0")
