"""Joins a worker: everything a running turn needs is made here, once a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from typing import Final

import msgspec

from shared.clock import SYSTEM_CLOCK
from shared.errors import ModelError, RedisAway, TurnStopped
from shared.health import HealthServer
from shared.log import logger
from shared.metrics import MODEL_REQUESTS
from shared.readings import Readings
from shared.service import measure_lag
from shared.settings import Settings, redis_url
from shared.store import keys
from shared.store.client import RedisClient
from shared.store.fanout import Fanout
from shared.store.inbox import InboxLimits
from shared.store.presence import PRESENCE_EVERY_S, Presence, announce, withdraw
from shared.store.queue import LeaseQueue
from shared.store.turns import Turns
from shared.tasks import cancel_all
from shared.version import VERSION
from worker.agent.hook import CompositeHook
from worker.agent.loop import run_agent
from worker.agent.tool import Toolbox
from worker.agent.turn import AgentResult, AgentRunSpec
from worker.guard_link import GuardLink
from worker.hooks.logging import LoggingHook
from worker.hooks.metrics import MetricsHook
from worker.jobs.run_turn import Conversation, RunTurn, TurnJournal
from worker.leases import LeaseLoop, Runner
from worker.live_show import LiveShow
from worker.llm.registry import build_model
from worker.prompts.identity import system_text
from worker.tools.registry import build_tools

QUEUES: Final = ("turns", "jobs")

log = logger("worker")


class WorkerDeps:
    """What one worker process holds. `queues` are the queues it serves, `owner` the nonce on its leases."""

    def __init__(
        self, settings: Settings, *, queues: Sequence[str], owner: str, link: GuardLink | None, slot: int = 0
    ) -> None:
        self.owner = owner
        self.link = link
        self.redis_url = redis_url(settings)
        self.client = RedisClient(self.redis_url, name="shoal-worker")
        self._settings = settings
        self._queues = tuple(queues)
        self._loops: list[LeaseLoop] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._control = Fanout(self.client, on_gap=self._renew_now)
        limits = InboxLimits(log_days=settings.web.log_days)
        self._run_turn = RunTurn(
            self.client,
            Turns(self.client, limits),
            self._answer,
            settings=settings.agent,
        )
        self._model = build_model(settings.model)
        self._tools = Toolbox(build_tools(), report=_report)
        self._hook = CompositeHook([LoggingHook(log.debug), MetricsHook()], report=_report)
        self._system = system_text(settings.agent.dir)
        self._timezone = settings.agent.timezone or _machine_timezone()
        port = settings.metrics.port_of("worker")
        self._health = HealthServer(
            settings.metrics.host,
            port + slot if port else 0,
            self._not_ready,
            refresh=Readings(self.client).refresh,
            spare=settings.metrics.port is None,
        )
        self._presence = Presence(
            kind="worker",
            name=owner[:12],
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=SYSTEM_CLOCK.now_ms(),
            version=VERSION,
            slots=settings.worker.turns if "turns" in self._queues else 0,
            details={"model": settings.model.name, "queues": ",".join(self._queues)},
        )

    def make_loops(self, run_job: Runner) -> list[LeaseLoop]:
        """One lease loop for each queue this worker serves."""
        worker = self._settings.worker
        plans: dict[str, tuple[int, Runner]] = {
            "turns": (worker.turns, self._run_turn),
            "jobs": (worker.jobs, run_job),
        }
        for name in self._queues:
            slots, runner = plans[name]
            window = self._settings.agent.memory_window
            queue = LeaseQueue(self.client, name, owner=self.owner, lease_s=worker.lease_s, history_window=window)
            self._loops.append(LeaseLoop(queue, slots=slots, run=runner, stand_in=self.link))
        return self._loops

    async def start(self) -> None:
        """Open what a worker listens on, and say that it is there. Raises SettingsError for a taken port."""
        await self._health.start()
        await self._control.listen_raw(keys.CONTROL, self._heard)
        self._tasks = [
            asyncio.create_task(self._control.run(), name="control"),
            asyncio.create_task(self._keep_announcing(), name="presence"),
            asyncio.create_task(self._warm(), name="model"),
            asyncio.create_task(measure_lag(), name="event loop lag"),
        ]
        if self.link is not None:
            self._tasks.append(asyncio.create_task(self.link.run(self._orphaned), name="guard link"))
        for task in self._tasks:
            task.add_done_callback(self._chore_ended)
        log.info("worker started", model=self._model.name, queues=self._queues, health_port=self._health.port)

    async def close(self) -> None:
        """Close everything; harmless while Redis is away."""
        await cancel_all(self._tasks)
        await self._health.stop()
        await self._model.close()
        try:
            await withdraw(self.client, self._presence)
        except RedisAway:
            log.warning("redis away", doing="leaving")
        await self.client.close()

    async def _answer(self, conversation: Conversation, journal: TurnJournal, show: LiveShow) -> AgentResult:
        message, agent, model = conversation.message, self._settings.agent, self._settings.model
        spec = AgentRunSpec(
            session=conversation.session,
            entry=conversation.entry,
            channel=message.channel,
            chat_id=message.chat_id,
            system=self._system,
            history=conversation.history,
            resume=conversation.resume,
            timezone=self._timezone,
            max_rounds=agent.max_rounds,
            memory_window=agent.memory_window,
            max_tokens=model.max_tokens,
            temperature=model.temperature,
        )
        try:
            return await run_agent(spec, self._model, self._tools, journal, hook=self._hook, show=show)
        except ModelError as exc:
            MODEL_REQUESTS.labels(self._model.name, exc.kind).inc()
            raise

    def _heard(self, data: bytes) -> None:
        """A person said stop, somewhere: `<member> <turn>`."""
        member, _, turn = data.decode().rpartition(" ")
        for loop in self._loops:
            for lease in loop.find(member):
                if lease.claim.turn is not None and lease.claim.turn.n == int(turn):
                    lease.interrupt(TurnStopped())

    async def _renew_now(self) -> None:
        """What was said on the control channel while it was away is in the answers to a renewal."""
        for loop in self._loops:
            await loop.renew_once()

    def _chore_ended(self, task: asyncio.Task[None]) -> None:
        """A chore that breaks is a bug: drain and be started anew rather than live on by half."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("chore failed", chore=task.get_name(), doing="draining", exc_info=error)
            os.kill(os.getpid(), signal.SIGTERM)

    def _orphaned(self) -> None:
        log.error("guardian lost", doing="draining")
        os.kill(os.getpid(), signal.SIGTERM)

    async def _warm(self) -> None:
        await self._model.warm()
        log.info("model ready", model=self._model.name)

    async def _keep_announcing(self) -> None:
        while True:
            running = sum(loop.running for loop in self._loops)
            draining = any(loop.draining for loop in self._loops)
            presence = msgspec.structs.replace(self._presence, running=running, draining=draining)
            with contextlib.suppress(RedisAway):  # the lease loops say so
                await announce(self.client, presence)
            await asyncio.sleep(PRESENCE_EVERY_S)

    def _not_ready(self) -> str | None:
        if any(loop.draining for loop in self._loops):
            return "draining"
        if not self._loops or not all(loop.connected.is_set() for loop in self._loops):
            return "Redis has not answered yet, or is away"
        return None


def _report(where: str, error: BaseException) -> None:
    log.error("fault isolated", where=where, error=type(error).__name__, exc_info=error)


def _machine_timezone() -> str:
    """The machine's IANA time zone, as far as it says; else UTC."""
    link = os.path.realpath("/etc/localtime")
    name = link.partition("zoneinfo/")[2]
    return name or "UTC"
