"""The jobs that turn conversations into memory. `context["deps"]` has `memory` (MemoryStore) and
`consolidator`."""

from __future__ import annotations

from typing import Any

from shared.store.sessions.memory import MemoryStore
from worker.jobs.retry_later import deadly, patiently
from worker.memory.consolidator import Consolidator

Context = dict[str, Any]


async def consolidate(context: Context, session: str) -> None:
    """Bring a conversation that has become long down to its newest entries. Raises TryLater."""
    made: Consolidator = context["deps"].consolidator
    keep, unread = made.settings.keep, deadly(context)
    await patiently(context, session, lambda patient: made.consolidate(session, keep, patient=patient, unread=unread))


async def archive(context: Context, session: str) -> None:
    """Bring what `/new` ended into memory. Raises TryLater."""
    made: Consolidator = context["deps"].consolidator
    unread = deadly(context)
    await patiently(context, session, lambda patient: made.archive(session, patient=patient, unread=unread))


async def idle(context: Context, session: str) -> None:
    """Bring a conversation that rests down to its last few entries; then it is settled. Raises
    TryLater."""
    made: Consolidator = context["deps"].consolidator
    memory: MemoryStore = context["deps"].memory

    async def work(patient: bool) -> None:
        due = await memory.idle.find(session)
        await made.consolidate(session, made.settings.idle_keep, patient=patient, unread=deadly(context))
        if due is not None and not (await memory.waiting(session)).archive:
            await memory.idle.settle(due)

    await patiently(context, session, work)
