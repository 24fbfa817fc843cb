"""The job that writes a MEMORY.md anew. `context["deps"]` has `memory` (MemoryStore) and
`consolidator`."""

from __future__ import annotations

from typing import Any

from shared.log import logger
from shared.store.sessions.memory import MemoryStore
from worker.jobs.retry_later import keeps_crashing, with_retries
from worker.memory.consolidator import Consolidator

log = logger("jobs")


async def rework(context: dict[str, Any], scope: str) -> None:
    """Write the MEMORY.md of a scope anew from its HISTORY.md; it is due again after the next
    consolidation. One that workers keep dying of stays as it is until then.

    Raises TryLater.
    """
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
