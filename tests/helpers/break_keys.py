"""Breaks keys in Redis, as a bug, a person at a console or a version to come may."""

from __future__ import annotations

import random
from typing import Final, Literal

import msgspec

from shared.store import keys
from shared.store.client.redis_client import RedisClient, pairs

Breakage = Literal["wrong type", "deleted", "random bytes", "future version"]
BREAKAGES: Final[tuple[Breakage, ...]] = ("wrong type", "deleted", "random bytes", "future version")

KINDS: Final[list[keys.FleetKey | keys.Keys]] = [
    *keys.FLEET.values(),
    *(kind for kind in keys.FAMILIES.values() if kind.type),
]
"""Every kind of key: a new one is among them from its first day."""

FUTURE: Final = msgspec.msgpack.encode({"t": "of a version to come", "v": 999})


async def names_of(client: RedisClient, kind: keys.FleetKey | keys.Keys, chat: str) -> list[str]:
    """The keys of a kind that there are, of those that chats have only this one's; else one that is not there."""
    if isinstance(kind, keys.FleetKey):
        return [kind]
    found = [name.decode() for name in await client.command("KEYS", f"{kind}*")]
    if isinstance(kind, keys.OwnKeys):
        found = [name for name in found if chat in name]
    return found or [kind(chat if isinstance(kind, keys.OwnKeys) else "turns")]


async def break_key(client: RedisClient, name: str, how: Breakage, rng: random.Random) -> None:
    """Break a key; it need not exist."""
    kind = keys.family(name)
    assert kind is not None
    if how == "deleted":
        await client.command("DEL", name)
    elif how == "wrong type":
        await client.command("DEL", name)
        await client.command(*(("RPUSH", name, "x") if kind.type == "string" else ("SET", name, "x")))
    else:
        junk = rng.randbytes(24)
        await _spoil(client, name, kind.type, junk if how == "random bytes" else None)


async def _spoil(client: RedisClient, name: str, type: str, junk: bytes | None) -> None:
    """Replace what a key holds by `junk`, or without it add what a version to come might."""
    match type:
        case "string":
            await client.command("SET", name, junk or b'{"of":"a version to come"}')
        case "hash":
            fields = await client.command("HKEYS", name) if junk else []
            for field in [*fields, junk or "zz"]:
                await client.command("HSET", name, field, junk or "1")
        case "list":
            many = await client.command("LLEN", name) if junk else 0
            if junk:
                await client.command("DEL", name)
            await client.command("RPUSH", name, *[junk or FUTURE] * (many + 1))
        case "zset":
            await client.command("ZADD", name, 0, junk or "zz:of-a-version-to-come")
        case "set":
            await client.command("SADD", name, junk or "zz")
        case "stream":
            await _spoil_stream(client, name, junk)
        case _:
            raise AssertionError(f"{name} is of type {type!r}")


async def _spoil_stream(client: RedisClient, name: str, junk: bytes | None) -> None:
    entries = await client.command("XRANGE", name, "-", "+")
    if junk is None:
        last = int(entries[-1][0].split(b"-")[0]) if entries else 0
        await client.command("XADD", name, f"{last + 1}-0", "v", 999, "m", FUTURE, "zz", "1")
        return
    await client.command("DEL", name)
    for id, flat in entries or [(b"1-0", [])]:
        fields = [part for field, _ in pairs(flat) for part in (field, junk)] or [junk, junk]
        await client.command("XADD", name, id, *fields)
