"""A worker whose agent does nothing: Shoal's own loop and turn job, or stock arq doing the same turn.

`python -m proof.bench.noop shoal|redis-py|arq <redis url> <slots or poll delay> [how many]` prints `ready` and the ids
of its processes, and ends with its standard input. `redis-py` is Shoal with that library instead of our own connection.
Several are forks of one that has imported everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, Final

import arq
import arq.connections
import arq.worker
import uvloop

from proof.bench import redis_py
from proof.bench.children import Children, cpu_s
from shared import log
from shared.ids import nonce
from shared.messages.transcript import AssistantEntry
from shared.process.service import freeze_heap
from shared.settings import LogSettings
from shared.store.client.redis_client import RedisClient
from shared.store.turns.inbox import InboxLimits
from shared.store.turns.queue import LeaseQueue
from shared.store.turns.turn_writes import Turns
from worker.agent.history import saved_history
from worker.agent.model.model import TokenUsage
from worker.agent.turn import AgentResult
from worker.attempt.run_turn import RunTurn
from worker.lease.lease_loop import LeaseLoop
from worker.turn.conversation import Conversation
from worker.turn.journal import TurnJournal
from worker.turn.live_updates import LiveUpdates

ANSWER: Final = "ok"
NAME: Final = "bench-worker"
"""What the connections of our workers call themselves; arq's have no name."""

REPLIES: Final = "bench:replies"
"""Where the turns of arq say that they are done, by pub/sub."""


async def _nothing(conversation: Conversation, journal: TurnJournal, show: LiveUpdates) -> AgentResult:
    final = AssistantEntry(content=ANSWER, turn=1)
    entries = saved_history(conversation.entries[0], journal.entries, final)
    return AgentResult(content=ANSWER, entries=entries, rounds=1, usage=TokenUsage())


async def shoal(url: str, slots: int, ready: int) -> None:
    """One lease loop, as a worker process has it."""
    client = RedisClient(url, name=NAME)
    run = RunTurn(client, Turns(client, InboxLimits()), _nothing)
    loop = LeaseLoop(LeaseQueue(client, "turns", owner=nonce(), lease_s=15.0), slots=slots, run=run)
    working = asyncio.create_task(loop.run())
    await loop.connected.wait()
    freeze_heap()
    os.write(ready, b".")
    await working


async def turn_of_arq(ctx: dict[str, Any], session: str, text: str) -> None:
    """What a turn does at the least on arq: one at a time for a session, with the lock of the library that arq talks to
    Redis with, the conversation so far, what it gains, and the reply."""
    redis = ctx["redis"]
    lock = redis.lock(f"lock:{session}", timeout=15, blocking=False)
    if not await lock.acquire():
        raise arq.Retry(defer=0.05)
    await redis.lrange(f"history:{session}", 0, -1)
    async with redis.pipeline(transaction=False) as pipe:
        pipe.rpush(f"history:{session}", text, ANSWER)
        pipe.ltrim(f"history:{session}", -100, -1)
        pipe.publish(REPLIES, session)
        await pipe.execute()
    await lock.release()


async def stock(url: str, poll_s: float, ready: int) -> None:
    """Stock arq."""
    worker = arq.worker.Worker(
        functions=[turn_of_arq],
        redis_settings=arq.connections.RedisSettings.from_dsn(url),
        poll_delay=poll_s,
        max_jobs=100,
        keep_result=0,
        handle_signals=False,
    )
    working = asyncio.create_task(worker.async_run())
    os.write(ready, b".")
    await working


class Pool:
    """Such workers, seen from the bench."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids

    @property
    def cpu_s(self) -> float:
        """What they have used until now."""
        return sum(map(cpu_s, self.pids))


@contextlib.contextmanager
def workers(kind: str, url: str, number: float, many: int = 1) -> Iterator[Pool]:
    """So many of them. They end at once, and their leases lapse."""
    with Children() as start:
        parent = start("proof.bench.noop", kind, url, str(number), str(many), talks=True)
        ready, *pids = parent.line().split()
        assert ready == "ready"
        yield Pool([int(pid) for pid in pids])


def _be(kind: str, url: str, number: float, ready: int) -> None:
    if kind == "redis-py":
        redis_py.install()
    uvloop.run(stock(url, number, ready) if kind == "arq" else shoal(url, int(number), ready))


def main(kind: str, url: str, number: float, many: int) -> None:
    result, ready = os.pipe()
    pids = []
    for _ in range(many):
        pid = os.fork()
        if not pid:
            os.close(result)
            _be(kind, url, number, ready)
            os._exit(0)
        pids.append(pid)
    os.close(ready)
    while many:
        many -= len(os.read(result, many))
    print("ready", *pids, flush=True)
    sys.stdin.read()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    log.configure(LogSettings(level="error"), process="bench", for_good=True)
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1)
