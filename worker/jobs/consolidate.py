"""The jobs that turn conversations into memory. `context["deps"]` has `memory` (MemoryStore) and
`consolidator`."""

from __future__ import annotations

from typing import Any

from shared.store.sessions.memory import MemoryStore
from worker.jobs.retry_later import keeps_crashing, with_retries
from worker.memory.consolidator import Consolidator

Context = dict[str, Any]


async def consolidate(context: Context, session: str) -> None:
    """Bring a conversation that has become long down to its newest entries. Raises TryLater."""
    consolidator: Consolidator = context["deps"].consolidator
    keep, unread = consolidator.settings.keep, keeps_crashing(context)
    await with_retries(
        context, session, lambda patient: consolidator.consolidate(session, keep, patient=patient, unread=unread)
    )


async def archive(context: Context, session: str) -> None:
    """Bring what `/new` ended into memory. Raises TryLater."""
    consolidator: Consolidator = context["deps"].consolidator
    unread = keeps_crashing(context)
    await with_retries(context, session, lambda patient: consolidator.archive(session, patient=patient, unread=unread))


async def idle(context: Context, session: str) -> None:
    """Bring a conversation that rests down to its last few entries; then it is settled. Raises
    TryLater."""
    consolidator: Consolidator = context["deps"].consolidator
    memory: MemoryStore = context["deps"].memory

    async def work(patient: bool) -> None:
        due = await memory.idle.find(session)
        await consolidator.consolidate(
            session, consolidator.settings.idle_keep, patient=patient, unread=keeps_crashing(context)
        )
        if due is not None and not (await memory.count_unconsolidated(session)).archive:
            await memory.idle.remove(due)

    await with_retries(context, session, work)
