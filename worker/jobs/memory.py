"""The jobs of memory. `context["deps"]` has `memory` (MemoryStore) and `consolidator`."""

from __future__ import annotations

from functools import partial
from typing import Any

from shared.log import logger
from shared.store.sessions.memory import MemoryStore
from worker.jobs.retry_later import keeps_crashing, with_retries
from worker.memory.consolidator import Consolidator

Context = dict[str, Any]

log = logger("jobs")


async def consolidate(context: Context, session: str) -> None:
    """Reduce a long conversation to its newest entries. Raises TryLater."""
    made: Consolidator = context["deps"].consolidator
    keep, unread = made.settings.keep, keeps_crashing(context)
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
    keep, unread = made.settings.idle_keep, keeps_crashing(context)

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
