"""The steps of one turn: what an earlier worker left, what is said and done now, and what history
keeps of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shared.messages.transcript import (
    AssistantEntry,
    LedgerEntry,
    TakenEntry,
    ToolEntry,
    TranscriptEntry,
    UserEntry,
)
from worker.agent.model.ask import Reply
from worker.agent.model.model import ToolCallRequest
from worker.agent.tools.calls import requested_call, stored_call, unique_ids
from worker.agent.turn import AgentRunSpec, StoredReply, paired, resume_point, saved_history


class Steps:
    """Stands at first where the ledger in `spec.resume` ends: behind its last complete round, with
    a reply that was stored and not finished at hand. `rounds` counts over all attempts."""

    def __init__(self, spec: AgentRunSpec) -> None:
        self._spec = spec
        self._call_ids = {
            call.id for step in spec.resume if isinstance(step, AssistantEntry) for call in step.tool_calls
        }
        replies = [at for at, step in enumerate(spec.resume) if isinstance(step, AssistantEntry)]
        point = resume_point(spec.resume)
        whole = point is None or point.answered
        self._stored = None if whole else point
        complete = spec.resume if whole else spec.resume[: replies[-1]]
        self.entries: list[TranscriptEntry] = paired(self._said(complete))
        self.rounds = len(replies)

    def _said(self, steps: Iterable[LedgerEntry]) -> Iterator[TranscriptEntry]:
        for step in steps:
            match step:
                case AssistantEntry() | ToolEntry():
                    yield step
                case TakenEntry(messages=numbers):
                    yield from (self._spec.joined[n].entry for n in numbers if n in self._spec.joined)

    def calls(self) -> Iterator[ToolCallRequest]:
        """Every call whose result the model has seen."""
        for entry in self.entries:
            if isinstance(entry, AssistantEntry):
                yield from map(requested_call, entry.tool_calls)

    @property
    def answered(self) -> str:
        """The answers that messages came behind: they are a part of the final text."""
        said = (entry for entry in self.entries if isinstance(entry, AssistantEntry) and not entry.tool_calls)
        return "\n\n".join(entry.content for entry in said if entry.content)

    @property
    def stored(self) -> Reply | None:
        """The reply at hand."""
        if self._stored is None:
            return None
        said = self._stored.reply
        return Reply(text=said.content or "", calls=tuple(map(requested_call, said.tool_calls)))

    def take(self) -> StoredReply | None:
        """The reply at hand with how far it got; it is not at hand any more."""
        taken, self._stored = self._stored, None
        return taken

    def named(self, calls: Sequence[ToolCallRequest]) -> tuple[ToolCallRequest, ...]:
        """The calls of this round, each with an id that is its own in the turn."""
        return unique_ids(calls, self._call_ids, self.rounds)

    def add(self, entries: Iterable[TranscriptEntry]) -> None:
        """More was said and done."""
        self.entries.extend(entries)

    def entry(self, content: str | None, reply: Reply, at_ms: int, *, with_calls: bool = True) -> AssistantEntry:
        """A reply as it is kept."""
        return AssistantEntry(
            content=content,
            turn=self._spec.turn,
            tool_calls=tuple(map(stored_call, reply.calls)) if with_calls else (),
            reasoning=reply.reasoning,
            at=at_ms,
            seen=self._spec.files.stamp() if with_calls else "",
        )

    def best(self, text: str, note: str) -> str:
        """The last that was said, `text` before all others, and the note why it was not more."""
        steps = (step for step in reversed(self.entries) if isinstance(step, AssistantEntry) and step.tool_calls)
        said = [text, *(step.content for step in steps)]
        best = next((text for text in said if text), "")
        return f"{best}\n\n{note}" if best else note

    def saved(self, final: AssistantEntry) -> tuple[TranscriptEntry, ...]:
        """What history gains."""
        joined = [entry for entry in self.entries if isinstance(entry, UserEntry)]
        chars = self._spec.saved_result_chars
        return saved_history(self._spec.entry, self.entries, final, joined=joined, result_chars=chars)
