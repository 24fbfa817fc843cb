"""A worker whose agent does nothing: Shoal's own loop and turn job, or stock arq doing the same turn.

`python -m tests.bench.noop shoal|arq <redis url> [slots or poll delay]` prints `ready`; each line on its standard input
is answered with the CPU seconds that it has used. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import arq
import arq.connections
import arq.worker
import psutil
import uvloop

from shared import log
from shared.ids import nonce
from shared.messages.transcript import AssistantEntry
from shared.settings import LogSettings
from shared.store.client import RedisClient
from shared.store.inbox import InboxLimits
from shared.store.queue import LeaseQueue
from shared.store.turns import Turns
from worker.agent.model import Usage
from worker.agent.turn import AgentResult, saved_history
from worker.conversation import Conversation
from worker.jobs.run_turn import RunTurn
from worker.leases import LeaseLoop
from worker.live_show import LiveShow
from worker.turn_journal import TurnJournal

ANSWER: Final = "ok"
REPLIES: Final = "bench:replies"
"""Where the turns of arq say that they are done, by pub/sub."""


async def _nothing(conversation: Conversation, journal: TurnJournal, show: LiveShow) -> AgentResult:
    final = AssistantEntry(content=ANSWER, turn=1)
    entries = saved_history(conversation.entries[0], journal.entries, final)
    return AgentResult(content=ANSWER, entries=entries, rounds=1, usage=Usage())


async def shoal(url: str, slots: int) -> None:
    """One lease loop, as a worker process has it."""
    client = RedisClient(url)
    run = RunTurn(client, Turns(client, InboxLimits()), _nothing)
    loop = LeaseLoop(LeaseQueue(client, "turns", owner=nonce(), lease_s=15.0), slots=slots, run=run)
    working = asyncio.create_task(loop.run())
    await loop.connected.wait()
    await _until_told(working)


async def turn_of_arq(ctx: dict[str, Any], session: str, text: str) -> None:
    """What a turn does at the least on arq: one at a time for a session, the conversation, and the reply."""
    redis = ctx["redis"]
    if not await redis.set(f"lock:{session}", "1", nx=True, px=15_000):
        raise arq.Retry(defer=0.05)
    async with redis.pipeline(transaction=False) as pipe:
        pipe.rpush(f"history:{session}", text, ANSWER)
        pipe.ltrim(f"history:{session}", -100, -1)
        pipe.publish(REPLIES, session)
        pipe.delete(f"lock:{session}")
        await pipe.execute()


async def stock(url: str, poll_s: float) -> None:
    """Stock arq."""
    worker = arq.worker.Worker(
        functions=[turn_of_arq],
        redis_settings=arq.connections.RedisSettings.from_dsn(url),
        poll_delay=poll_s,
        max_jobs=100,
        keep_result=0,
        handle_signals=False,
    )
    await _until_told(asyncio.create_task(worker.async_run()))


async def _until_told(working: asyncio.Task[Any]) -> None:
    ended, running = asyncio.Event(), asyncio.get_running_loop()

    def answer() -> None:
        for _line in iter(sys.stdin.readline, ""):
            print(time.process_time(), flush=True)
        running.call_soon_threadsafe(ended.set)

    threading.Thread(target=answer, daemon=True).start()
    print("ready", flush=True)
    waiting = asyncio.create_task(ended.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if working.done():
        working.result()


class Worker:
    """Such a process, seen from the bench."""

    def __init__(self, kind: str, url: str, number: float) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.bench.noop", kind, url, str(number)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the {kind} worker did not start")

    @property
    def cpu_s(self) -> float:
        """What it has used until now."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print("cpu", file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    @property
    def memory_mb(self) -> float:
        """Its resident memory."""
        return float(psutil.Process(self._process.pid).memory_info().rss) / 1e6

    def end(self) -> None:
        """Let it go at once; its leases with it."""
        self._process.kill()
        self._process.communicate(timeout=30)


@contextlib.contextmanager
def workers(kind: str, url: str, number: float, many: int = 1) -> Iterator[list[Worker]]:
    """So many of them."""
    started: list[Worker] = []
    try:
        while len(started) < many:
            started.append(Worker(kind, url, number))
        yield started
    finally:
        for worker in started:
            worker.end()


if __name__ == "__main__":
    log.configure(LogSettings(level="error"), process="bench")
    kind, address, number = sys.argv[1:]
    uvloop.run(shoal(address, int(float(number))) if kind == "shoal" else stock(address, float(number)))
