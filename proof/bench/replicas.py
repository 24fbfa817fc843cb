"""What `redis.copies = 2` costs: a whole turn over a page, and what the servers use, beside `copies = 1`.

Both sides have a primary with a replica of its own, a gateway and a worker, a model that is no further than a function
call, and 8 people who talk at once. The sides take turns, so that what else the machine does is the same for both.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from proof.bench.chats import seated
from proof.bench.plan import Plan
from proof.bench.sessions import history, make_sessions
from proof.bench.stage import Stage, Want, stage
from proof.bench.table import Report, Rounds, quantile
from shared.embedded import EmbeddedValkey
from shared.store.client.redis_client import RedisClient
from tests.helpers import valkey
from tests.helpers.wait import eventually

ROUNDS: Final = 9
PEOPLE: Final = {"8 people": 8, "1 person": 1}


def measure(plan: Plan) -> Report:
    """Push to reply, and CPU."""
    return asyncio.run(_measure(plan))


async def _measure(plan: Plan) -> Report:
    rounds, turns = plan.repeats(ROUNDS), plan.of(160, 8)
    chats = {n: [f"r{n}c{i}" for i in range(turns)] for n in range(1 + rounds * len(PEOPLE))}
    found = Rounds()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        async with AsyncExitStack() as stack:
            on: dict[str, Stage] = {}
            for copies in (1, 2):
                replica = EmbeddedValkey(Path(folder) / f"replica{copies}")
                await asyncio.to_thread(replica.start)
                stack.callback(replica.stop)
                want = Want(ready=True, settings={"SHOAL_REDIS__COPIES": str(copies)})
                filled = partial(_fill, chats=[one for some in chats.values() for one in some], replica=replica)
                made = await stack.enter_async_context(stage(Path(folder) / str(copies), want, filled))
                on[f"copies = {copies}"] = made
                if not plan.quick:
                    async with seated(made.address, chats[0], max(PEOPLE.values())) as table:
                        await table.talk()  # warms up
            number = 0
            for _ in range(rounds):
                for people, many in PEOPLE.items():
                    number += 1
                    # A page may not send more at once.
                    some = chats[number][: max(1, turns * many // max(PEOPLE.values()))]
                    for name, side in on.items():
                        async with seated(side.address, some, many) as table:
                            before = await side.used()
                            seconds = await table.talk()
                            after = await side.used()
                        name = f"{name}, {people}"
                        found.add(f"{name}: push to reply p50", "ms", quantile(seconds, 0.5) * 1000)
                        found.add(f"{name}: push to reply p99", "ms", quantile(seconds, 0.99) * 1000)
                        for part in ("gateway", "worker", "Redis"):
                            used = (after[part] - before[part]) / len(some)
                            found.add(f"{name}: {part}", "ms CPU a turn", used * 1000)
    return Report(title="replicas: what redis.copies costs", figures=found.figures())


async def _fill(client: RedisClient, chats: list[str], replica: EmbeddedValkey) -> None:
    await make_sessions(client, chats, history(40))
    address = client.locator.address
    await client.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)  # no other replica comes
    await asyncio.to_thread(valkey.command, replica.url, "CONFIG", "SET", "masterauth", address.password)
    await asyncio.to_thread(valkey.command, replica.url, "REPLICAOF", address.host, str(address.port))

    async def in_step() -> bool:
        return b"state=online" in await client.command("INFO", "replication")

    await eventually(in_step, within_s=60, every_s=0.1, what="the replica")
