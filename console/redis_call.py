"""Calls of console commands to Redis, with the settings of the current folder."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from shared.errors import RedisAway

if TYPE_CHECKING:
    from shared.store.client.redis_client import RedisClient

T = TypeVar("T")
P = ParamSpec("P")


def redis_command(work: Callable[Concatenate[RedisClient, P], Awaitable[None]]) -> Callable[P, None]:
    """Make a command of a coroutine that also gets a client."""

    @functools.wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with_redis(lambda client: work(client, *args, **kwargs))

    return run


def with_redis(work: Callable[[RedisClient], Awaitable[T]]) -> T:
    """Run `work` with a client of its own. Raises SettingsError, RedisAway, and what it raises."""
    import asyncio

    from shared.settings import RedisUrl, redis_url
    from shared.settings.trust import load_trusted
    from shared.store.client.redis_client import RedisClient

    settings = load_trusted()
    url = redis_url(settings)

    async def run() -> T:
        client = RedisClient(url, name="shoal-console", copies=settings.redis.copies)
        try:
            return await work(client)
        except RedisAway as exc:
            raise RedisAway(f"{exc}; looked at {RedisUrl(url)}: is it running, and is redis.url right?") from exc
        finally:
            await client.close()

    return asyncio.run(run())
