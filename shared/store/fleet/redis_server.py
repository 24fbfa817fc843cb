"""Facts about the Redis server, for operators."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from shared.errors import ReplyError
from shared.store import keys
from shared.store.client.packing import pack
from shared.store.client.redis_client import RedisClient, Value, pairs

_SETTINGS: Final = ("maxmemory-policy", "appendonly", "appendfsync")
ROLES: Final = ("gateway", "worker", "console")
"""Users in deploy/redis/users.acl."""

QUEUES: Final = ("turns", keys.BACKGROUND, "jobs", keys.SUBAGENT_WAKE)
"""Names of queues, of their leases and of their wake lists; not every name has all of these."""

_CLOCK_READINGS: Final = 3


class ServerHealth(msgspec.Struct, frozen=True):
    """The facts that every scrape of the metrics reads; None where the server does not answer.
    `clock_ahead_s` is how far its clock is ahead of ours. A limit of 0 means none. `writes_ok` is
    False when the last write to the append-only file failed. `aof_busy_s` is how long the server
    has been writing and syncing it since its start."""

    used_bytes: int | None
    limit_bytes: int | None
    writes_ok: bool | None
    clock_ahead_s: float
    append_only: bool | None = None
    aof_bytes: int | None = None
    aof_busy_s: float | None = None


class ServerFacts(ServerHealth, frozen=True, kw_only=True):
    """Facts about a server; None where it does not answer (hosted ones hide CONFIG). `version` is
    the product's own, `speaks` the release of Redis that it is compatible with. `restart_safe` is
    what `read_restart_safe` returns, `ping_s` the time of the quickest reply. `role` is `master`,
    or `slave` for a replica."""

    product: str
    version: str
    speaks: str
    policy: str | None
    fsync: str | None
    restart_safe: bool | None
    clients: int | None
    clients_limit: int | None
    commands_per_s: int | None
    evicted_keys: int | None
    role: str | None
    up_s: int | None
    ping_s: float
    replicas: int | None = None


async def read_server(client: RedisClient, *, config: bool = True) -> ServerFacts:
    """Read the facts; without `config`, which alone knows `fsync`, only by commands that few
    servers refuse. Raises RedisAway."""
    info = _lines(await _query(client, "INFO"))
    flat = await _query(client, "CONFIG", "GET", *_SETTINGS) if config else None
    ping_s, clock_ahead_s = await _clock(client)
    words = [word.decode() for word in flat] if isinstance(flat, list) else []
    settings = dict(pairs(words))
    product = info.get("server_name", "redis")
    speaks = info.get("redis_version", "")
    # INFO knows whether there is an append-only file, also where CONFIG is hidden.
    aof = settings.get("appendonly") or {"1": "yes", "0": "no"}.get(info.get("aof_enabled", ""))
    return ServerFacts(
        product=product,
        version=info.get(f"{product}_version", speaks),
        speaks=speaks,
        policy=settings.get("maxmemory-policy") or info.get("maxmemory_policy"),
        append_only=None if aof is None else aof == "yes",
        fsync=settings.get("appendfsync"),
        writes_ok=_writes_ok(info),
        restart_safe=await read_restart_safe(client) if aof == "yes" else None,
        used_bytes=_number(info.get("used_memory")),
        limit_bytes=_number(info.get("maxmemory")),
        clients=_number(info.get("connected_clients")),
        clients_limit=_number(info.get("maxclients")),
        commands_per_s=_number(info.get("instantaneous_ops_per_sec")),
        evicted_keys=_number(info.get("evicted_keys")),
        role=info.get("role"),
        replicas=_number(info.get("connected_slaves")),
        up_s=_number(info.get("uptime_in_seconds")),
        clock_ahead_s=clock_ahead_s,
        ping_s=ping_s,
    )


async def read_health(client: RedisClient) -> ServerHealth:
    """Read how full the server is, whether it can still write, and its time. Raises RedisAway."""
    info = _lines(await _query(client, "INFO", "memory", "persistence", "debug"))
    used = _number(info.get("used_memory"))
    limit = _number(info.get("maxmemory"))
    _, clock_ahead_s = await _clock(client)
    append_only = {"1": True, "0": False}.get(info.get("aof_enabled", ""))
    busy_us = _number(info.get("eventloop_duration_aof_sum"))
    return ServerHealth(
        used,
        limit,
        _writes_ok(info),
        clock_ahead_s,
        append_only,
        aof_bytes=_number(info.get("aof_current_size")),
        aof_busy_s=None if busy_us is None else busy_us / 1e6,
    )


async def read_fsync(client: RedisClient) -> str | None:
    """Read `appendfsync`; None when the server does not answer. Raises RedisAway. A client with a
    user name asks first whether it may: the roles of workers and of the console do, and the
    server's log of refusals should show intruders only."""
    asked = ("CONFIG", "GET", "appendfsync")
    if client.user and await _query(client, "ACL", "DRYRUN", client.user, *asked) != b"OK":
        return None
    reply = await _query(client, *asked)
    return reply[1].decode() if isinstance(reply, list) and len(reply) == 2 else None


async def read_restart_safe(client: RedisClient) -> bool | None:
    """Read whether the server keeps everything when it restarts with an append-only file.

    False when the user `default` may not do what scripts wrote: servers without the fix of
    redis#14545 or valkey#3984 replay EXEC with the rights of that user and drop what it may not do.
    None when the server does not tell. Raises RedisAway.
    """
    try:
        answer: object = await client.command(
            "ACL", "DRYRUN", "default", "XADD", f"{keys.PREFIX}restart", "*", "field", "value"
        )
    except ReplyError as error:
        # This release's list of users lets its roles ask. One that does not is older, and has the
        # user `default` that loses everything. Other users may be of a server that hides its list.
        return False if client.user in ROLES and str(error).startswith("NOPERM") else None
    return answer == b"OK"


async def read_broken_keys(client: RedisClient) -> list[str]:
    """Return the keys of the whole fleet that are of another type than they should be, by name.
    Raises RedisAway."""
    wanted = {name: key.type for name, key in keys.FLEET.items()}
    wanted |= {kind(name): kind.type for name in QUEUES for kind in (keys.queue, keys.leases, keys.wake)}
    flat = [word for pair in wanted.items() for word in pair]
    return [name.decode() for name in await client.run("fleet/broken_keys", wanted=pack(flat))]


def _writes_ok(info: dict[str, str]) -> bool | None:
    written = info.get("aof_last_write_status")
    return None if written is None else written == "ok"


async def _query(client: RedisClient, *parts: Value) -> object:
    try:
        answer: object = await client.command(*parts)
    except ReplyError:  # however a server says that it does not let us look
        return None
    return answer


async def _clock(client: RedisClient) -> tuple[float, float]:
    """Return the time of a reply, and how far the server's clock is ahead (within half of that)."""
    best = (float("inf"), 0.0)
    for _ in range(_CLOCK_READINGS):
        before = time.time()
        seconds, micros = await client.command("TIME")
        after = time.time()
        server = int(seconds) + int(micros) / 1_000_000
        # The quickest of the replies has the smallest error of the clock difference.
        best = min(best, (after - before, server - (before + after) / 2))
    return best


def _lines(info: object) -> dict[str, str]:
    if not isinstance(info, bytes):
        return {}
    pairs = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
