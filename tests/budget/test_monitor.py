"""The counter itself."""

from __future__ import annotations

from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import Inbox
from tests.helpers.build import say
from tests.helpers.monitor import counted, monitoring


async def test_commands_are_grouped_by_client_and_scripts_by_name(client: RedisClient, redis_url: str) -> None:
    """What a script calls is left out; one whose source is sent has its name all the same."""
    other = RedisClient(redis_url, name="another")
    async with monitoring(redis_url, client) as monitor:
        await other.command("PING")
        await say(Inbox(other))  # EVALSHA, which the server does not know, then EVAL
        await say(Inbox(other))
        await other.command("EVAL", "return 1", 0)
        await monitor.catch_up()
    sent = counted(monitor.log.of("another"))
    assert (sent["ping"], sent["turns/ingest"], sent["eval"]) == (1, 3, 1)
    assert "hset" not in counted(monitor.log.commands)
    assert not monitor.log.of("nobody")
    await other.close()
