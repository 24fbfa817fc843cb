"""The mark of a turn or a subagent: sources of strangers' text that it has read, and what it marks
in turn."""

from __future__ import annotations

from collections.abc import Iterable

from shared.errors import BadInput
from shared.media.reference import read_reference
from shared.messages.inbound import OWN_HISTORY, InboundMessage
from shared.messages.sources import OF_PROGRAMS, Sources, merge_sources, source_label
from shared.messages.subagent import UNKNOWN_SOURCES, UNMARKED, is_subagent_report
from shared.messages.transcript import LedgerEntry, ToolEntry
from shared.store.sessions.workspace_marks import WorkspaceMarks


class TurnMark:
    """The sources of one turn. `before` mark its chat already, or the task of a subagent; `own` are
    those that it read itself, perhaps again. The first result after a source was read takes it into
    the ledger (`pop_unwritten`), so that a successor starts with the same mark."""

    def __init__(self, before: Sources = ()) -> None:
        self.own: Sources = ()
        self._before = before
        self._unwritten: Sources = ()

    @property
    def sources(self) -> Sources:
        return merge_sources(self._before, self.own)

    def add(self, sources: Iterable[str]) -> None:
        """Mark the turn."""
        new = [label for label in map(source_label, sources) if label and label not in self.own]
        self.own = merge_sources(self.own, new)
        self._unwritten = merge_sources(self._unwritten, new)

    def add_ledger(self, steps: Iterable[LedgerEntry]) -> None:
        """Mark the turn with what the steps of earlier attempts read."""
        for step in steps:
            if isinstance(step, ToolEntry) and step.sources:
                self.own = merge_sources(self.own, step.sources)

    def add_messages(self, messages: Iterable[InboundMessage]) -> None:
        """Mark the turn with what its messages bring."""
        for message in messages:
            if sources := message_sources(message):
                self.add(sources)

    def pop_unwritten(self) -> Sources:
        popped = self._unwritten
        self._unwritten = ()
        return popped


class WorkspaceMark:
    """The mark of the workspace that a turn works in, and of the operator's `folder` there. The
    store is asked after each call that reads there, not once: subagents of the same chat may write
    meanwhile. Methods raise RedisAway."""

    def __init__(
        self, mark: TurnMark, store: WorkspaceMarks | None = None, session: str = "", folder: str = ""
    ) -> None:
        self.turn = mark
        self.folder = folder
        self._store = store
        self._session = session
        self._reads = self._settled = 0

    async def before_write(self) -> None:
        """Mark the workspace with the mark of the turn. Nothing may be written before that. Each
        write marks it: since the last one, a person may have cleared the mark."""
        await self.settle()
        if self._store is not None and (sources := self.turn.sources):
            await self._store.add(self._session, sources, self.folder)

    async def read_mark(self) -> Sources:
        """Return what marks the workspace and the folder, without reading anything there."""
        return () if self._store is None else await self._store.read(self._session, self.folder)

    def note_read(self) -> None:
        """Note that something was read; a search reads many files, and asks the store once."""
        self._reads += 1

    async def settle(self) -> None:
        """Mark the turn with the mark of the workspace if it read there. Called once the text was
        read: a mark is stored before its text, so that it cannot be missed. Calls that run beside
        each other settle each for itself: none returns before the mark of what it read is known."""
        reads = self._reads
        if reads > self._settled and self._store is not None:
            self.turn.add(await self._store.read(self._session, self.folder))
            self._settled = max(self._settled, reads)


def message_sources(message: InboundMessage) -> Sources:
    """Return the sources that a message brings: its own, files that a person sent, a conversation
    that a program sent along, and what a subagent read."""
    unknown = is_subagent_report(message) and not message.sources and UNMARKED not in message.metadata
    return merge_sources(
        message.sources,
        UNKNOWN_SOURCES if unknown else (),
        (OF_PROGRAMS,) if message.history and OWN_HISTORY not in message.metadata else (),
        map(_file_label, message.media),
    )


def _file_label(reference: str) -> str:
    try:
        return source_label(f"file {read_reference(reference).name}")
    except BadInput:
        return "a file"
