"""A stand-in for a worker under the guardian: leases what is due, says so, and then behaves as it is told.

`python -m tests.helpers.guarded <config as JSON> <behaviour> --guard FD,OWNER --slot N [--tell] [--spare]` with a
behaviour of `tick` (live on), `freeze` (the process lives, its event loop does not) or `end` (a clean end, with leases
left behind).
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time

from shared.store.client.redis_client import RedisClient
from shared.store.turns.queue import LeaseQueue
from worker.lease.lease import GuardianLink
from worker.process.worker_handle import GuardianConfig


async def main(config: GuardianConfig, behaviour: str, link: socket.socket, owner: str) -> None:
    client = RedisClient(config.redis_url)
    guard = GuardianLink(link, lease_s=config.lease_s)
    if "--spare" in sys.argv:
        await client.command("SET", "test:spare", "waits")
        if await guard.slot_to_fill() is None:
            return
    queue = LeaseQueue(client, "turns", owner=owner, lease_s=config.lease_s)
    claims = await queue.acquire(10)
    while "--spare" in sys.argv and not claims:  # the guardian gives back what the dead one had in the same moment
        claims = await queue.acquire_next(10)
    living = asyncio.create_task(guard.run(lambda: sys.exit(3))) if behaviour == "tick" else None
    await client.command("RPUSH", "test:said", f"{len(claims)}")  # its first tick came before
    if behaviour == "end":
        return
    if behaviour == "freeze":
        while True:
            time.sleep(1)  # blocks the event loop, as a regular expression without end would
    assert living is not None
    await living


if __name__ == "__main__":
    words, behaviour, _, given = sys.argv[1:5]
    fd, owner = given.split(",")
    link, config = socket.socket(fileno=int(fd)), GuardianConfig(**json.loads(words))
    if "--tell" in sys.argv:
        config.send(link)
    asyncio.run(main(config, behaviour, link, owner))
