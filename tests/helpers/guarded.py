"""A stand-in for a worker under the guardian: leases what is due, says so, and then behaves as it is told.

`python -m tests.helpers.guarded <redis url> <lease s> <behaviour> --guard FD,OWNER` with a behaviour of `tick` (live
on), `freeze` (the process lives, its event loop does not) or `end` (a clean end, with leases left behind).
"""

from __future__ import annotations

import asyncio
import sys
import time

from shared.store.client import RedisClient
from shared.store.queue import LeaseQueue
from worker.guard_link import GuardLink


async def main(url: str, lease_s: float, behaviour: str, fd: int, owner: str) -> None:
    client = RedisClient(url)
    link = GuardLink.from_fd(fd, lease_s=lease_s)
    queue = LeaseQueue(client, "turns", owner=owner, lease_s=lease_s)
    claims = await queue.acquire(10)
    await client.command("RPUSH", "test:said", f"{len(claims)}")
    if behaviour == "end":
        return
    if behaviour == "freeze":
        while True:
            time.sleep(1)  # blocks the event loop, as a regular expression without end would
    await link.run(lambda: sys.exit(3))


if __name__ == "__main__":
    url, lease, behaviour, _, guard = sys.argv[1:6]
    fd, owner = guard.split(",")
    asyncio.run(main(url, float(lease), behaviour, int(fd), owner))
