"""The hold of a turn, or of a subagent, on what is outside the store: its lease, and copies of its
files."""

from __future__ import annotations

from collections.abc import Mapping

from worker.turn.files import TurnFiles
from worker.turn.journal import LeaseJournal


class LeasedOutside:
    """The Outside of work with this journal and these files."""

    def __init__(self, journal: LeaseJournal, files: TurnFiles) -> None:
        self._journal = journal
        self._files = files

    @property
    def token(self) -> int:
        return int(self._journal.lease.claim.token)

    @property
    def fence(self) -> str:
        return self._journal.lease.claim.member

    async def until_doubtful(self) -> None:
        await self._journal.lease.until_suspended()

    async def copies(self) -> Mapping[str, bytes]:
        return await self._files.copies()
