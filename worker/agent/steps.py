"""The steps of one turn, by earlier workers and this one, and the part that history keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
from msgspec.structs import replace

from shared.messages.transcript import AssistantEntry, JoinEntry, ToolCall, ToolEntry, TranscriptEntry, UserEntry
from worker.agent.history import StoredReply, pair_calls_with_results, resume_point, saved_history
from worker.agent.model.ask import ModelReply
from worker.agent.model.model import ToolCallRequest
from worker.agent.tools.client_calls import call_id
from worker.agent.tools.text import is_json_object
from worker.agent.turn import AgentRunSpec


class TurnSteps:
    """The transcript of a turn. It starts after the last complete round in `spec.resume`; a reply
    that was stored but not finished is available as `stored`. `rounds` counts over all attempts."""

    def __init__(self, spec: AgentRunSpec) -> None:
        self._spec = spec
        # Calls of the program's functions that came with the message are steps of the turn, too.
        resume = (*spec.steps, *spec.resume)
        replies = [(at, step) for at, step in enumerate(resume) if isinstance(step, AssistantEntry)]
        self._call_ids = {call.id for _, reply in replies for call in reply.tool_calls}
        point = resume_point(resume)
        whole = point is None or point.answered
        self._stored = None if whole else point
        # The steps of an unfinished reply are left out here: they are added when it is finished.
        complete = resume if whole else resume[: replies[-1][0]]
        entries: list[TranscriptEntry] = []
        for step in complete:
            match step:
                case AssistantEntry() | ToolEntry():
                    entries.append(step)
                case JoinEntry(messages=numbers):
                    entries += [spec.joined[at].entry for at in numbers if at in spec.joined]
        self.entries = pair_calls_with_results(entries)
        self.rounds = sum(isinstance(step, AssistantEntry) for step in spec.resume)

    def calls(self) -> Iterator[ToolCallRequest]:
        """Yield every call whose result the model has seen."""
        for entry in self.entries:
            if isinstance(entry, AssistantEntry):
                yield from map(_requested_call, entry.tool_calls)

    @property
    def answered_text(self) -> str:
        """The answers that were followed by further messages: they are a part of the final text."""
        replies = (entry for entry in self.entries if isinstance(entry, AssistantEntry))
        return "\n\n".join(one.content for one in replies if one.content and not one.tool_calls)

    @property
    def stored(self) -> ModelReply | None:
        """The reply that an earlier worker stored and did not finish."""
        if self._stored is None:
            return None
        reply = self._stored.reply
        calls = tuple(map(_requested_call, reply.tool_calls))
        return ModelReply(text=reply.content or "", calls=calls)

    def pop_stored(self) -> StoredReply | None:
        """Return the stored reply with the state of its calls, and forget it."""
        popped = self._stored
        self._stored = None
        return popped

    def with_unique_ids(self, reply: ModelReply, of_program: Collection[ToolCallRequest] = ()) -> ModelReply:
        """Return the reply of this round, each call with an id that is unique in the turn: some
        providers repeat or omit ids, by which the ledger finds intents, results and effects. Ids of
        calls `of_program` are made here, so that they are unique in the session."""
        named: list[ToolCallRequest] = []
        for at, call in enumerate(reply.calls):
            new = call_id(self._spec, self.rounds, at) if call in of_program else call.id
            if not new or new in self._call_ids:
                new = f"call_{self.rounds}_{at}"
            while new in self._call_ids:
                new += "_"
            self._call_ids.add(new)
            named.append(replace(call, id=new))
        return replace(reply, calls=tuple(named))

    def assistant_entry(self, content: str | None, reply: ModelReply, *, with_calls: bool = True) -> AssistantEntry:
        return AssistantEntry(
            content=content,
            turn=self._spec.turn,
            tool_calls=tuple(map(_stored_call, reply.calls)) if with_calls else (),
            reasoning=reply.reasoning,
            model=reply.model,
            at=self._spec.clock.now_ms(),
            seen=self._spec.files.stamp() if with_calls else "",
        )

    def best_text(self, text: str, note: str) -> str:
        """Return the newest text of the model, preferably `text`, with a note after it."""
        for step in reversed(self.entries):
            if not text and isinstance(step, AssistantEntry) and step.tool_calls:
                text = step.content or ""
        return f"{text}\n\n{note}" if text else note

    def history_entries(self, final: AssistantEntry) -> tuple[TranscriptEntry, ...]:
        joined = [entry for entry in self.entries if isinstance(entry, UserEntry)]
        spec = self._spec
        return saved_history(
            spec.entry,
            self.entries,
            final,
            joined=joined,
            result_chars=spec.saved_result_chars,
            thought_chars=spec.saved_thought_chars,
        )


def _stored_call(call: ToolCallRequest) -> ToolCall:
    """Return the call for the ledger, with repaired arguments if the model's are no JSON object."""
    text = call.raw
    if call.arguments is not None and not is_json_object(text):
        text = msgspec.json.encode(call.arguments).decode()
    return ToolCall(call.id, call.name, text, call.extra)


def _requested_call(call: ToolCall) -> ToolCallRequest:
    """Return a stored call as a request again."""
    text = call.arguments
    arguments = msgspec.json.decode(text) if is_json_object(text) else None
    return ToolCallRequest(call.id, call.name, arguments, text, call.extra)
