"""What a process holds without knowing it, because the answer to an acquire got lost: leases that
carry its nonce."""

from __future__ import annotations

from shared.store.client.redis_client import RedisClient


async def leases_of_owner(client: RedisClient, leases: str, owner: str) -> list[tuple[str, str]]:
    """Return every lease of this owner in the HASH `leases`: member and token. Raises RedisAway."""
    found: dict[str, str] = {}
    cursor: bytes = b"0"
    while True:
        cursor, flat = await client.command("HSCAN", leases, cursor, "COUNT", 500)
        for member, lease in zip(flat[::2], flat[1::2], strict=True):
            whose, _, token = lease.decode().partition(":")
            if whose == owner:
                found[member.decode()] = token
        if cursor == b"0":
            return list(found.items())
