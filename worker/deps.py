"""Joins a worker: everything a running turn needs is made here, once a process."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from typing import Final

from shared.clock import SYSTEM_CLOCK
from shared.errors import RedisAway, TurnStopped
from shared.log import logger
from shared.metrics import EVENT_LOOP_LAG_SECONDS
from shared.settings import Settings, redis_url
from shared.store import keys
from shared.store.client import RedisClient
from shared.store.fanout import Fanout
from shared.store.inbox import InboxLimits
from shared.store.presence import PRESENCE_EVERY_S, Presence, announce, withdraw
from shared.store.queue import LeaseQueue
from shared.store.turns import Turns
from shared.version import VERSION
from worker.agent.hook import CompositeHook
from worker.agent.loop import run_agent
from worker.agent.tool import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.guard_link import GuardLink
from worker.jobs.run_turn import Conversation, RunTurn, TurnJournal
from worker.leases import LeaseLoop, Runner
from worker.live_show import LiveShow
from worker.llm.registry import build_model

LAG_EVERY_S: Final = 1.0

log = logger("worker")


class WorkerDeps:
    """What one worker process holds. `queues` are the queues it serves, `owner` the nonce on its leases."""

    def __init__(self, settings: Settings, *, queues: Sequence[str], owner: str, link: GuardLink | None) -> None:
        self.settings = settings
        self.owner = owner
        self.link = link
        self.redis_url = redis_url(settings)
        self.client = RedisClient(self.redis_url, name="shoal-worker")
        self.loops: list[LeaseLoop] = []
        self.draining = False
        self._queues = tuple(queues)
        self._tasks: list[asyncio.Task[None]] = []
        self._control = Fanout(self.client, on_gap=self._nothing_missed)
        limits = InboxLimits(log_days=settings.web.log_days)
        self._run_turn = RunTurn(
            self.client, Turns(self.client, limits), self._agent, timeout_s=settings.agent.turn_timeout_s
        )
        self._model = build_model(settings.model)
        self._tools = Toolbox(build_tools(settings))
        self._hook = CompositeHook(build_hooks(settings), report=_report)
        self._presence = Presence(
            kind="worker",
            name=owner[:12],
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=int(time.time()),
            version=VERSION,
            slots=settings.worker.turns if "turns" in self._queues else 0,
            details={"model": self._model.name, "queues": ",".join(self._queues)},
        )

    def make_loops(self, run_job: Runner) -> list[LeaseLoop]:
        """One lease loop for each queue this worker serves."""
        worker = self.settings.worker
        plans = {"turns": (worker.turns, self._run_turn), "jobs": (worker.jobs, run_job)}
        for name in self._queues:
            slots, runner = plans[name]
            queue = LeaseQueue(self.client, name, owner=self.owner, lease_s=worker.lease_s)
            self.loops.append(LeaseLoop(queue, slots=slots, run=runner, stand_in=self.link))
        return self.loops
