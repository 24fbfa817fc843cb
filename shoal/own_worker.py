"""A worker inside another program, with tools and hooks of that program."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Final

from msgspec.structs import replace

from shared.embedded import EmbeddedFailed, EmbeddedValkey
from shared.errors import BadInput
from shared.ids import nonce
from shared.log import configure_guest, redact
from shared.settings import Settings, redis_url, secrets_of
from shared.settings.sections.redis_access import EMBEDDED, EMBEDDED_URL_FILE
from shared.settings.trust import load_trusted
from shared.store.client.redis_client import RedisClient
from shared.store.fleet.presence import list_processes
from worker.agent.hook import AgentHook
from worker.agent.tools.tool import Tool
from worker.lease.lease import Lease
from worker.process.loop_group import LoopGroup
from worker.process.worker_deps import WorkerDeps

DRAIN_S: Final = 10.0
"""Longest wait at the end of the block; the last 5 s are for turns that are cut."""

LATER_S: Final = 60.0
"""Pause before a job of memory is offered again, for a worker that runs such jobs."""


@contextlib.asynccontextmanager
async def local_worker(
    *, tools: Sequence[Tool] = (), hooks: Sequence[AgentHook] = (), settings: Settings | None = None
) -> AsyncIterator[Settings]:
    """Serve all chats in this process as long as the block runs, with these tools and hooks beside
    the usual ones. Yields the settings, by default those that `process_direct` uses. Where they
    want an embedded Valkey and none runs, one is started in `data.dir` and stopped at the end.

    It must be the only worker: another one would answer without these tools. Raises BadInput where
    one runs, or for a tool that cannot be offered; SettingsError; EmbeddedFailed."""
    settings = settings or load_trusted()
    configure_guest()
    for secret, setting in secrets_of(settings):
        redact(secret, setting)
    async with contextlib.AsyncExitStack() as stack:
        if settings.redis.url.reveal() == EMBEDDED:
            valkey = EmbeddedValkey(settings.data.dir)
            try:
                await asyncio.to_thread(valkey.start)
                stack.push_async_callback(asyncio.to_thread, valkey.stop)
            except EmbeddedFailed:
                if not (settings.data.dir / EMBEDDED_URL_FILE).exists():
                    raise
                # Else one runs already, and its address is in the folder.
        await _refuse_company(settings)
        # Beside a program of somebody else, metrics get any free port.
        settings = replace(settings, metrics=replace(settings.metrics, port=0))
        deps = WorkerDeps(settings, queues=(), owner=nonce(), link=None, isolated=True, tools=tools, hooks=hooks)
        stack.push_async_callback(deps.close)
        group = LoopGroup(drain_s=lambda: min(settings.worker.drain_s, DRAIN_S), give_up=lambda: serving.cancel())
        # A part that fails ends this worker, not the program that it is in.
        deps.end_process = lambda: group.on_signal(signal.SIGTERM)
        await deps.start()

        async def run(lease: Lease) -> None:
            await (deps.run_work if lease.claim.turn or lease.claim.subagent else _put_off)(lease)

        serving = asyncio.create_task(group.run(deps.make_loops(run)), name="local worker")
        await deps.until_connected()
        try:
            yield settings
        finally:
            group.on_signal(signal.SIGTERM)
            await asyncio.gather(serving, return_exceptions=True)


async def _refuse_company(settings: Settings) -> None:
    client = RedisClient(redis_url(settings), name="shoal-direct")
    try:
        others = [one.name for one in await list_processes(client) if one.kind == "worker" and not one.draining]
    finally:
        await client.close()
    if others:
        raise BadInput(
            "not_alone",
            f"worker {others[0]!r} serves the same chats, and would answer without these tools and hooks: stop it, or "
            "install them as a package (docs/plugins.md); several calls of one program share one local_worker()",
        )


async def _put_off(lease: Lease) -> None:
    await lease.queue.release(lease.claim, delay_s=LATER_S)
