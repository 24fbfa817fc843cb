"""The lease and the files of a turn or a subagent, for tools that act outside the store."""

from __future__ import annotations

from collections.abc import Mapping

from worker.turn.files import TurnFiles
from worker.turn.journal import LeaseJournal


class LeasedOutside:
    """The Outside port of work with this journal and these files."""

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
