"""The jobs of memory, and how a job is tried again later. `context["deps"]` has `memory`
(MemoryStore) and `consolidator`."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final

from shared.errors import ModelError, RedisAway, Refused, TryLater
from shared.log import bind_work, logger
from shared.store.sessions.memory import MemoryChanged, MemoryStore
from shared.tasks import cancel_all
from worker.lease.lease import Lease
from worker.memory.consolidator import Consolidator

Context = dict[str, Any]

JOB_S: Final = 3600.0
SOON_S: Final = 30.0
FIRST_WAIT_S: Final = 60.0
WAIT_CAP_S: Final = 3600.0
PATIENT_TRIES: Final = 30  # waits double up to an hour each: together about a day
CRASHES_BEFORE_SKIP: Final = 3  # of workers, then a job leaves out the part that it was doing

log = logger("jobs")


async def consolidate(context: Context, session: str) -> None:
    """Reduce a long conversation to its newest entries. Raises TryLater."""
    made: Consolidator = context["deps"].consolidator
    keep = made.settings.keep
    unread = keeps_crashing(context)
    work = partial(made.consolidate, session, keep, unread=unread)
    await with_retries(context, session, lambda patient: work(patient=patient))


async def archive(context: Context, session: str) -> None:
    """Move the conversation that `/new` ended into memory. Raises TryLater."""
    made: Consolidator = context["deps"].consolidator
    work = partial(made.archive, session, unread=keeps_crashing(context))
    await with_retries(context, session, lambda patient: work(patient=patient))


async def idle(context: Context, session: str) -> None:
    """Reduce an idle conversation to its last entries; its agenda entry goes. Raises TryLater."""
    made: Consolidator = context["deps"].consolidator
    memory: MemoryStore = context["deps"].memory
    keep = made.settings.idle_keep
    unread = keeps_crashing(context)

    async def work(patient: bool) -> None:
        due = await memory.idle.find(session)
        await made.consolidate(session, keep, patient=patient, unread=unread)
        if due is not None and not (await memory.count_unconsolidated(session)).archive:
            await memory.idle.remove(due)

    await with_retries(context, session, work)


async def rework(context: Context, scope: str) -> None:
    """Rewrite the MEMORY.md of a scope from its HISTORY.md. It is due again after the next
    consolidation. A scope that keeps crashing workers is left as is until then. Raises TryLater."""
    consolidator: Consolidator = context["deps"].consolidator
    memory: MemoryStore = context["deps"].memory

    async def work(patient: bool) -> None:
        due = await memory.rework.find(scope)
        if keeps_crashing(context):
            log.error("rework given up", reason="crashes")
        else:
            await consolidator.rework(scope, patient=patient)
        if due is not None:
            await memory.rework.remove(due)

    await with_retries(context, scope, work)


async def with_retries(context: dict[str, Any], name: str, work: Callable[[bool], Awaitable[object]]) -> None:
    """Do `work(patient)` for the session or scope `name`. `patient` is False from the 31st try on:
    the work must then do without what it waited for. Raises TryLater when a later try may succeed,
    and at once when the worker drains: `work` is then cancelled, which must lose nothing. A bug is
    logged and ends the job: the sweep finds again what is due."""
    tries: int = context["job_try"]
    lease = _lease_of(context)
    with bind_work(session=name):
        try:
            async with asyncio.timeout(JOB_S) as limit, _ended_by_drain(limit, lease):
                await work(tries <= PATIENT_TRIES)
        except ModelError as exc:
            wait_s = max(wait_after(tries), exc.retry_after_s or 0.0)
            log.warning("job put off", reason=exc.kind, tries=tries, wait_s=round(wait_s))
            raise TryLater(exc.kind, wait_s) from exc
        except TimeoutError as exc:
            drained = lease is not None and lease.draining
            reason, wait_s = ("drain", 0.0) if drained else ("TimeoutError", SOON_S)
            log.warning("job put off", reason=reason, tries=tries)
            raise TryLater(reason, wait_s) from exc
        except (MemoryChanged, RedisAway, Refused) as exc:
            log.warning("job put off", reason=type(exc).__name__, tries=tries, wait_s=SOON_S)
            raise TryLater(type(exc).__name__, SOON_S) from exc
        except Exception:
            log.exception("job failed", tries=tries)


def keeps_crashing(context: dict[str, Any]) -> bool:
    """Return whether workers keep crashing with this job."""
    lease = _lease_of(context)
    return lease is not None and lease.claim.job_crashes >= CRASHES_BEFORE_SKIP


def _lease_of(context: dict[str, Any]) -> Lease | None:
    """Return the lease of this job; None when it was called without a worker."""
    leases: dict[str, Lease] = context.get("leases", {})
    return leases.get(context.get("job_id", ""))


@contextlib.asynccontextmanager
async def _ended_by_drain(limit: asyncio.Timeout, lease: Lease | None) -> AsyncIterator[None]:
    """Let a drain end the block as its time limit would."""

    async def watch() -> None:
        if lease is not None:
            await lease.until_draining()
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        await cancel_all([watching])


def wait_after(tries: int) -> float:
    """Return the seconds before the next try. The random part spreads jobs that failed together."""
    wait_s = min(WAIT_CAP_S, FIRST_WAIT_S * 2.0 ** min(tries - 1, 10))
    return wait_s * random.uniform(0.75, 1.0)
