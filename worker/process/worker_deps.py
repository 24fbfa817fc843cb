"""The parts of a worker process: built and connected here, once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final

from shared.clock import SYSTEM_CLOCK
from shared.errors import RedisAway
from shared.log import logger
from shared.media.store import check_store
from shared.process.fleet_gauges import FleetGauges, warn_of_restart
from shared.process.listening import HealthServer
from shared.process.service import measure_lag
from shared.process.stats import Announcer
from shared.process.volume_gauges import VolumeGauges
from shared.settings import Settings, redis_url
from shared.store.client.redis_client import RedisClient, server_ms
from shared.store.fleet.spending import Spending
from shared.store.jobs.jobs import Jobs, SessionJobs
from shared.store.sessions.chats import Titles
from shared.store.sessions.memory import MemoryLimits, MemoryStore
from shared.store.turns.inbox import InboxLimits
from shared.store.turns.queue import LeaseQueue, SubagentCaps
from shared.store.turns.turn_writes import Turns
from shared.tasks import cancel_all, close_all, event_within
from shared.tracing import process as tracing
from worker.agent.hook import AgentHook
from worker.agent.tools.tool import Tool
from worker.attempt.quarantine import Quarantine
from worker.attempt.run_subagent import RunSubagent
from worker.attempt.run_turn import RunTurn
from worker.guards.workspace import check_folders
from worker.jobs.follow_up import FollowUpJobs
from worker.jobs.log_sweep import LogSweep
from worker.jobs.sweep import MemorySweep
from worker.jobs.ticks import Ticker
from worker.lease.lease import GuardianLink, Lease
from worker.lease.lease_loop import LeaseLoop, Runner
from worker.llm.question import try_model
from worker.llm.registry import DEMO
from worker.memory.consolidator import Consolidator, check_dream
from worker.process.loop_group import LoopGroup, StopListener, kill_process
from worker.process.worker_handle import QUEUES
from worker.sandbox.probe import SandboxFinder
from worker.titles.titler import Titler
from worker.turn.turn_agent import TurnAgent

LONG_TURN_ENTRIES: Final = 500
"""Entries that are loaded beyond the memory window: a long turn may fill the window without the
message that it answered."""

SANDBOX_CHECK_S: Final = 10.0  # longest wait of a turn for the first check for a sandbox
CONNECT_PATIENCE_S: Final = 2.0  # longest wait of background work for a connected worker

log = logger("worker")


class WorkerDeps:
    """The parts of one worker process. It serves `queues`, all when none is named; `owner` is the
    nonce on its leases. `isolated` is for the child of a quarantine, which isolates nothing.
    `tools` and `hooks` come on top of those of the settings."""

    def __init__(
        self,
        settings: Settings,
        *,
        queues: Sequence[str],
        owner: str,
        link: GuardianLink | None,
        isolated: bool = False,
        tools: Sequence[Tool] = (),
        hooks: Sequence[AgentHook] = (),
    ) -> None:
        self.owner = owner
        self.link = link
        self.redis_url = redis_url(settings)
        self.client = RedisClient(self.redis_url, name="shoal-worker", copies=settings.redis.copies)
        self.queues: Final = tuple(queues or QUEUES)
        self.started = self._warm = False
        self.end_process: Callable[[], object] = partial(os.kill, os.getpid(), signal.SIGTERM)
        self._settings = settings
        self._loops: list[LeaseLoop] = []
        self._loops_made = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        demo = settings.web.first_run and settings.model.name == DEMO
        self._stops = StopListener(self.client, self._loops, kill=kill_process if demo else None)
        self.memory = MemoryStore(self.client, MemoryLimits.of(settings.memory))
        jobs = SessionJobs(Jobs(self.client))
        self._turn_agent = turn_agent = TurnAgent(settings, self.client, self.memory, tools, hooks)
        check_dream(settings.memory, turn_agent.runner.timezone)
        check_folders(settings)
        self._models: Final = turn_agent.runner.models
        self.media = turn_agent.media
        self.workspaces = turn_agent.workspaces
        children = turn_agent.children
        self.log_sweep = LogSweep(self.client, settings.web)
        self.sweep = MemorySweep(self.memory, jobs, settings.memory, children)
        self._sandbox = SandboxFinder(settings, turn_agent.offer_exec)
        self._ticker = Ticker(
            turn_agent.schedules,
            settings.cron,
            heartbeat_s=settings.heartbeat.every_min * 60,
            read_heartbeat=turn_agent.read_heartbeat,
        )
        self._run_turn = RunTurn(
            self.client,
            Turns(self.client, InboxLimits.of(settings)),
            turn_agent,
            settings=settings.agent,
            on_commit=FollowUpJobs(jobs, settings),
            quarantine=None if isolated else Quarantine("turns", owner),
        )
        self._run_subagent = RunSubagent(
            children,
            turn_agent.run_subagent,
            settings=settings.agent,
            quarantine=None if isolated else Quarantine("jobs", owner),
        )
        self.consolidator: Consolidator  # set once the worker has started
        self.titler = Titler(Titles(self.client), self._models, settings, Spending(self.client))
        self._health = HealthServer(
            settings.metrics.host,
            settings.metrics.port_of("worker"),
            self._not_ready,
            refresh=FleetGauges(self.client, volumes=VolumeGauges.of(settings, workspaces=True)).refresh,
            spare=settings.metrics.port is None,
        )
        self._announcer = Announcer(
            self.client,
            "worker",
            self._state,
            name=owner[:12],
            slots=settings.worker.turns if "turns" in self.queues else 0,
            job_slots=settings.worker.jobs if "jobs" in self.queues else 0,
            provider_routes=self._models.provider_routes,
        )

    def context(self) -> dict[str, Any]:
        """Return the context of arq's functions, which LeaseWorker uses as well."""
        parts = {"deps": self, "client": self.client, "redis_url": self.redis_url}
        return parts | {"drain_s": self._settings.worker.drain_s, "lease_loops": self.make_loops}

    def make_loops(self, runner: Runner) -> list[LeaseLoop]:
        """Make one lease loop for each queue that this worker serves."""
        worker = self._settings.worker
        agent = self._settings.agent

        async def run(lease: Lease) -> None:
            await self._know_time()
            await runner(lease)

        for name in self.queues:
            queue = LeaseQueue(
                self.client,
                name,
                owner=self.owner,
                lease_s=worker.lease_s,
                history_window=agent.memory_window + LONG_TURN_ENTRIES,
                subagents=SubagentCaps(agent.subagents_per_session, agent.subagents_in_all),
                person_share=worker.share,
            )
            slots = worker.turns if name == "turns" else worker.jobs
            self._loops.append(LeaseLoop(queue, slots=slots, run=run, proxy=self.link))
        self._loops_made.set()
        return self._loops

    async def warm_up(self) -> None:
        """Do what takes long in a start and needs neither a port nor Redis."""
        await self._sandbox.find()
        await self._preload()
        self._warm = True

    async def start(self, slot: int = 0) -> None:
        """Open the health port of this slot and start the chores. Raises SettingsError if it is in
        use."""
        self._health.port += slot if self._health.port else 0
        await self._health.start()
        await check_store(self._settings.media)
        if copies := self._turn_agent.copies:
            await copies.check()
            self.start_background("unused copies", copies.keep_dropping())
        limits = await self._models.limits_of()
        self.consolidator = Consolidator(
            self.memory,
            self._models.get(),
            self._settings.memory,
            timezone=self._turn_agent.runner.timezone,
            max_tokens=limits.max_tokens,
            context_tokens=limits.context_tokens,
            spending=Spending(self.client),
            own_files=self._settings.agent.own_files,
        )
        await self._listen_for_stops()
        if "turns" in self.queues:
            self._turn_agent.mcp.start()
        self.start_background("sandbox", self._sandbox.keep_trying())
        self.start_background("presence", self._keep_announcing())
        self.start_background("model", self._preload_late())
        self.start_background("event loop lag", measure_lag())
        self.start_background("redis users", warn_of_restart(self.client))
        self.start_background("ticks", self._ticker.run())
        if self.link is not None:
            self.start_background("guard link", self.link.run(self._orphaned))
        self.started = True
        model = self._models.name
        port = self._health.port
        log.info("worker started", model=model, queues=self.queues, health_port=port)

    async def until_connected(self) -> None:
        """Return when all loops are connected, or after 2 s: then there is time for imports."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_PATIENCE_S):
                await self._loops_made.wait()
                for loop in self._loops:
                    await loop.connected.wait()

    def start_background(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Run `work` in the background until the worker is closed. If it fails, it drains."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._on_background_done)
        self._tasks.append(task)

    async def close(self) -> None:
        """Close everything. Safe while Redis is unavailable."""
        # An isolated process never started: the presence of this owner is that of its parent.
        farewell = [self._announcer.farewell] if self.started else []
        await close_all(
            partial(cancel_all, self._tasks),
            self._health.stop,
            self._sandbox.close,
            self._turn_agent.close,
            *farewell,
            self.client.close,
            tracing.stop,
        )

    async def run_work(self, lease: Lease) -> None:
        """Run a turn or a subagent to its end, or release it."""
        await self._until_sandbox_checked()
        await (self._run_turn if lease.claim.turn else self._run_subagent)(lease)

    async def ask_model(self) -> tuple[bool, str]:
        """Ask the model one question; return whether it answers, and what came."""
        return await try_model(self._settings.model)

    async def run_isolated(self, loop: LeaseLoop, group: LoopGroup) -> None:
        """Run `loop`, whose work another process has claimed, until it is drained."""
        self._loops.append(loop)
        try:
            await self._listen_for_stops()
            await self._know_time()
            await self._sandbox.find()
            await group.run([loop])
        finally:
            await self.close()

    async def _listen_for_stops(self) -> None:
        await self._stops.subscribe()
        self.start_background("control", self._stops.run())

    def _on_background_done(self, task: asyncio.Task[None]) -> None:
        """Drain when a background task fails: a restart is better than a half-working worker."""
        if not task.cancelled() and (error := task.exception()) is not None:
            name = task.get_name()
            log.error("background task failed", task=name, doing="draining", exc_info=error)
            self.end_process()

    def _orphaned(self) -> None:
        log.error("guardian lost", doing="draining")
        self.end_process()

    async def _preload_late(self) -> None:
        if not self._warm:
            await self.until_connected()
            await self._preload()

    async def _preload(self) -> None:
        """Load models and slow imports, late: importing takes time from the event loop."""
        await self._turn_agent.preload()
        if self._settings.tools.web:
            await asyncio.to_thread(import_module, "worker.guards.request")

    async def _know_time(self) -> None:
        """Set our clock by the server's before the first piece of work: what it plans must not
        depend on the clock of this machine. Afterwards each poll for schedules sets it."""
        if not SYSTEM_CLOCK.follows:
            with contextlib.suppress(RedisAway):
                SYSTEM_CLOCK.follow(server_ms(await self.client.command("TIME")))

    async def _until_sandbox_checked(self) -> None:
        if not self._sandbox.first_try_done.is_set():
            await event_within(self._sandbox.first_try_done, SANDBOX_CHECK_S)

    async def _keep_announcing(self) -> None:
        await self._announcer.announce()
        # What it can do is part of the presence, which does not wait for it
        await self._until_sandbox_checked()
        await self._announcer.run()

    def _state(self) -> dict[str, Any]:
        facts = {"model": self._settings.model.name, "queues": ",".join(self.queues)}
        return {
            "running": sum(loop.running for loop in self._loops),
            "draining": any(loop.draining for loop in self._loops),
            "details": facts | self._turn_agent.mcp.details() | self._sandbox.details(),
        }

    def _not_ready(self) -> str | None:
        if any(loop.draining for loop in self._loops):
            return "draining"
        if not self._loops or not all(loop.connected.is_set() for loop in self._loops):
            return "Redis has not answered yet, or is away"
        # Who waits for readiness and then asks for the state of the fleet finds this worker there.
        return None if self._announcer.announced else "its presence is not written yet"
