"""What a subagent is to do, as its agent gets it: the counterpart of a turn's Conversation."""

from __future__ import annotations

import msgspec

from shared.messages.subagent import SubagentTask
from shared.messages.transcript import LedgerEntry
from shared.store.turns.queue import ChildWork, Claim


class Assignment(msgspec.Struct, frozen=True):
    """The task, and the steps that an earlier attempt made."""

    claim: Claim
    task: SubagentTask
    resume: tuple[LedgerEntry, ...]

    @property
    def work(self) -> ChildWork:
        """The rest of what the store handed over."""
        assert self.claim.child is not None
        return self.claim.child
