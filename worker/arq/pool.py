"""Connections for arq. They are redis-py's, which nothing else here uses."""

from __future__ import annotations

from typing import Any, Final

from redis import asyncio as aioredis

from shared.store.client.redis_client import SOCKET_TIMEOUT_S

_NO_CLIENT_INFO: Final[dict[str, Any]] = {"lib_name": None, "lib_version": None}
"""A connection does not introduce itself as redis-py: two commands fewer after each reconnect, and
no right to use them is needed."""


def make_pool(url: str) -> aioredis.ConnectionPool:
    """Return a pool that connects when it is first used."""
    # Check that the certificate is for this host: redis-py would accept any one of the same
    # authority.
    tls: dict[str, Any] = {"ssl_check_hostname": True} if url.startswith("rediss://") else {}
    return aioredis.BlockingConnectionPool.from_url(
        url,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=SOCKET_TIMEOUT_S,
        max_connections=8,
        timeout=None,
        **_NO_CLIENT_INFO,
        **tls,
    )
