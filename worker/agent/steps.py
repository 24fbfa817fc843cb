"""The steps of one turn: those of earlier workers, those of this one, and the entries that history
keeps of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shared.messages.transcript import (
    AssistantEntry,
    JoinEntry,
    LedgerEntry,
    ToolEntry,
    TranscriptEntry,
    UserEntry,
)
from worker.agent.model.ask import ModelReply
from worker.agent.model.model import ToolCallRequest
from worker.agent.tools.calls import requested_call, stored_call, unique_ids
from worker.agent.turn import AgentRunSpec, StoredReply, pair_calls_with_results, resume_point, saved_history


class TurnSteps:
    """The transcript of a turn. It starts after the last complete round in `spec.resume`; a reply
    that was stored but not finished is available as `stored`. `rounds` counts over all attempts."""

    def __init__(self, spec: AgentRunSpec) -> None:
        self._spec = spec
        self._call_ids = {
            call.id for step in spec.resume if isinstance(step, AssistantEntry) for call in step.tool_calls
        }
        replies = [at for at, step in enumerate(spec.resume) if isinstance(step, AssistantEntry)]
        point = resume_point(spec.resume)
        whole = point is None or point.answered
        self._stored = None if whole else point
        # The steps of an unfinished reply are left out here: they are added when it is finished.
        complete = spec.resume if whole else spec.resume[: replies[-1]]
        self.entries: list[TranscriptEntry] = pair_calls_with_results(self._transcript_of(complete))
        self.rounds = len(replies)

    def _transcript_of(self, steps: Iterable[LedgerEntry]) -> Iterator[TranscriptEntry]:
        for step in steps:
            match step:
                case AssistantEntry() | ToolEntry():
                    yield step
                case JoinEntry(messages=numbers):
                    yield from (self._spec.joined[n].entry for n in numbers if n in self._spec.joined)

    def calls(self) -> Iterator[ToolCallRequest]:
        """Yield every call whose result the model has seen."""
        for entry in self.entries:
            if isinstance(entry, AssistantEntry):
                yield from map(requested_call, entry.tool_calls)

    @property
    def answered_text(self) -> str:
        """The answers that were followed by further messages: they are a part of the final text."""
        answers = (entry for entry in self.entries if isinstance(entry, AssistantEntry) and not entry.tool_calls)
        return "\n\n".join(entry.content for entry in answers if entry.content)

    @property
    def stored(self) -> ModelReply | None:
        """The reply that an earlier worker stored and did not finish."""
        if self._stored is None:
            return None
        reply = self._stored.reply
        return ModelReply(text=reply.content or "", calls=tuple(map(requested_call, reply.tool_calls)))

    def pop_stored(self) -> StoredReply | None:
        """Return the stored reply with the state of its calls, and forget it."""
        popped, self._stored = self._stored, None
        return popped

    def with_unique_ids(self, calls: Sequence[ToolCallRequest]) -> tuple[ToolCallRequest, ...]:
        """Return the calls of this round, each with an id that is unique in the turn."""
        return unique_ids(calls, self._call_ids, self.rounds)

    def add(self, entries: Iterable[TranscriptEntry]) -> None:
        self.entries.extend(entries)

    def assistant_entry(
        self, content: str | None, reply: ModelReply, at_ms: int, *, with_calls: bool = True
    ) -> AssistantEntry:
        """Return a reply in the form of the ledger."""
        return AssistantEntry(
            content=content,
            turn=self._spec.turn,
            tool_calls=tuple(map(stored_call, reply.calls)) if with_calls else (),
            reasoning=reply.reasoning,
            at=at_ms,
            seen=self._spec.files.stamp() if with_calls else "",
        )

    def best_text(self, text: str, note: str) -> str:
        """Return the newest text of the model, preferably `text`, followed by a note that the turn
        is not finished."""
        steps = (step for step in reversed(self.entries) if isinstance(step, AssistantEntry) and step.tool_calls)
        best = next((text for text in [text, *(step.content for step in steps)] if text), "")
        return f"{best}\n\n{note}" if best else note

    def history_entries(self, final: AssistantEntry) -> tuple[TranscriptEntry, ...]:
        """Return the entries that history gains from this turn."""
        joined = [entry for entry in self.entries if isinstance(entry, UserEntry)]
        chars = self._spec.saved_result_chars
        return saved_history(self._spec.entry, self.entries, final, joined=joined, result_chars=chars)
