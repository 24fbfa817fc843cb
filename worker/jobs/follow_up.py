"""The jobs that follow a turn: they are queued once it was committed, and no turn waits for them."""

from __future__ import annotations

from dataclasses import dataclass

from shared.ids import WEB, split_session
from shared.settings import Settings
from shared.store.jobs.jobs import SessionJobs
from shared.store.turns.turn_writes import Committed


@dataclass(eq=False, frozen=True)
class FollowUpJobs:
    """Queues the jobs that a turn makes due; RunTurn calls it after each commit."""

    jobs: SessionJobs
    settings: Settings

    async def __call__(self, session: str, committed: Committed, answered: bool) -> None:
        """Queue what is due, by the result of the commit. Raises RedisAway, Refused."""
        if committed.entries >= self.settings.memory.consolidate_at:
            await self.jobs.consolidate(session)
        # Programs list their conversations, too, but nobody reads titles of those.
        if answered and committed.untitled and self.settings.agent.titles and split_session(session)[0] == WEB:
            await self.jobs.title(session)
